"""The work and the state of a client depend on its neighbours, not on the number of clients."""

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest
from tests.support.cast import Cast, entropy_for, make_terms, names

from coterie.crypto import signing
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.entropy import SystemEntropy
from coterie.errors import PeerProtocolError, ThresholdError, VerificationError
from coterie.graphs.topology import Complete, Harary, Topology
from coterie.secagg import Confirmed, Finished, Joined, Masked, Shared, Step, Terms, messages, park, resume, rules
from coterie.secagg.client import Holding, Peer
from coterie.secagg.members import Members
from coterie.secagg.messages import KEY_SHARE_BYTES, SEALED_BYTES, SELF_SHARE_BYTES, Fingerprints

ME, DEGREE = 3, 8
SMALL, LARGE = 200, 4_000
MARKS = Fingerprints(bytes(16), bytes(16))


def large_terms(size: int, *, circles: bool) -> Terms:
    groups = tuple(number // 4 for number in range(size)) if circles else None
    return make_terms(size, topology=Harary(DEGREE), circles=groups, minimum=size // 2)


def lines_of(work: Callable[[], object]) -> int:
    """Count the lines of Python that run; a loop over all clients would show."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def neighbours(terms: Terms) -> tuple[int, ...]:
    return terms.graph(rules.graph_seed(terms, ())).neighbours(ME)


def masked(terms: Terms) -> Masked:
    peers = neighbours(terms)
    held = tuple(Holding(peer, bytes(SELF_SHARE_BYTES), bytes(KEY_SHARE_BYTES)) for peer in (*peers, ME))
    return Masked(terms, ME, rules.graph_seed(terms, ()), held, peers, ())


def announcement(terms: Terms) -> bytes:
    lost = {number for number in range(len(terms.clients)) if number % 40 == 20}
    survivors = messages.encode_members(set(range(len(terms.clients))) - lost, len(terms.clients))
    return messages.encode(messages.Announcement(terms.digest, survivors))


def share(terms: Terms) -> Callable[[], object]:
    def advertisement(number: int) -> messages.Advertisement:
        keys = [PrivateKey.generate(SystemEntropy(), "key").public for _ in range(2)]
        return messages.Advertisement(terms.digest, number, *keys)

    book = tuple(advertisement(number) for number in neighbours(terms))
    message = messages.encode(messages.KeyBook(terms.digest, book))
    joined = Joined(terms, ME, bytes(range(32)), bytes(range(1, 33)))
    return lambda: joined.share(message, entropy_for("me"))


def mask(terms: Terms) -> Callable[[], object]:
    peers = tuple(Peer(peer, bytes(32), bytes(16)) for peer in neighbours(terms))
    own = Holding(ME, bytes(SELF_SHARE_BYTES), bytes(KEY_SHARE_BYTES))
    shared = Shared(terms, ME, rules.graph_seed(terms, ()), bytes(16), peers, own)
    envelopes = tuple(messages.Envelope(peer.client, bytes(SEALED_BYTES), MARKS) for peer in peers)
    message = messages.encode(messages.Deliveries(terms.digest, envelopes))
    return lambda: shared.mask(message, terms.ring.zeros(terms.length))


def reveal(terms: Terms) -> Callable[[], object]:
    state, message = masked(terms), announcement(terms)
    return lambda: state.reveal(message)


def consider(terms: Terms) -> Callable[[], object]:
    state, message = masked(terms), announcement(terms)
    return lambda: state.consider(message)


@pytest.mark.parametrize("circles", [False, True])
@pytest.mark.parametrize("step", [share, mask, reveal, consider])
def test_no_client_step_loops_over_all_clients(step: Callable[[Terms], Callable[[], object]], circles: bool) -> None:
    step(large_terms(SMALL // 2, circles=circles))()  # does what is done once in a process
    few, many = (step(large_terms(size, circles=circles)) for size in (SMALL, LARGE))
    assert lines_of(many) < lines_of(few) + 60  # a few lines depend on where the neighbours are on the ring


def test_checking_statements_takes_no_loop_over_the_neighbours_of_neighbours() -> None:
    def lines(size: int) -> int:
        cast = Cast(make_terms(size, active=True)).play_until(Step.CONFIRM)
        name = cast.terms.clients[0]
        return lines_of(lambda: cast.answer(cast.states[name], name, cast.inbox[name]))

    assert lines(24) < 2.5 * lines(12)


def test_a_finished_client_keeps_one_bit_for_each_client() -> None:
    terms = large_terms(LARGE, circles=False)
    finished, _ = masked(terms).reveal(announcement(terms))
    assert isinstance(finished.aggregated, bytes)
    assert len(finished.aggregated) == LARGE // 8
    assert list(Members(finished.aggregated, LARGE)) == [number for number in range(LARGE) if number % 40 != 20]
    assert len(park(finished)) < len(terms.to_bytes()) + LARGE // 8 + 200


def test_states_of_earlier_versions_can_be_resumed() -> None:
    """They list clients where later ones have a bitmap."""
    cast = Cast(make_terms(5, active=True)).play_until(Step.REVEAL)
    name = cast.terms.clients[0]
    state = cast.states[name]
    assert isinstance(state, Confirmed)
    listed = resume(park(msgspec.structs.replace(state, survivors=tuple(range(5)))))
    assert isinstance(listed, Confirmed)
    assert listed.survivors == tuple(range(5))
    assert cast.answer(listed, name, cast.inbox[name]) == cast.answer(state, name, cast.inbox[name])
    finished = Finished(cast.terms, 0, (0, 1, 4))
    assert resume(park(finished)) == finished


def test_messages_and_states_are_not_tracked_by_the_garbage_collector() -> None:
    terms = make_terms(4)
    parts: list[object] = [
        messages.Envelope(1, bytes(SEALED_BYTES), MARKS),
        MARKS,
        messages.KeyBook(terms.digest, ()),
        Peer(1, bytes(32), bytes(16)),
        masked(large_terms(SMALL, circles=False)),
    ]
    assert not any(gc.is_tracked(part) for part in parts)


@pytest.mark.parametrize("active", [False, True])
def test_what_all_clients_get_is_encoded_once(active: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: Counter[str] = Counter()
    encode = messages.encode

    def counted(message: messages.Message) -> bytes:
        encoded[type(message).__name__] += 1
        return encode(message)

    cast = Cast(make_terms(7, active=active))
    closing = cast.server.close

    def close() -> dict[str, bytes]:
        with monkeypatch.context() as patch:
            patch.setattr(messages, "encode", counted)
            return closing()

    monkeypatch.setattr(cast.server, "close", close)
    cast.finish()
    assert encoded["KeyBook"] == (1 if active else 7)
    assert encoded["Announcement"] == (7 if active else 1)  # against an active server with its neighbours' statements
    assert encoded["Testimony"] == active


# Signatures.


@pytest.mark.parametrize("topology", [Complete(), Harary(6)])
def test_only_signatures_that_prove_something_are_verified(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    terms = make_terms(12, active=True, topology=topology, colluders=2)
    cast, verified = Cast(terms), Counter[str]()
    verify, at = signing.verify, ""

    def counted(public: bytes, signature: bytes, context: bytes) -> None:
        verified[at] += 1
        verify(public, signature, context)

    monkeypatch.setattr(signing, "verify", counted)
    for step in Step.ADVERTISE, Step.SHARE, Step.MASK, Step.CONFIRM, Step.REVEAL:
        at = f"clients, {step}"
        replies = cast.replies()
        at = f"server, {step}"
        cast.deliver(replies)
        cast.inbox = cast.server.close()
    degree = terms.graph(cast.server.view().seed).degree(0)
    assert verified == {
        "clients, share": 12 * 11,  # everybody's keys, but not one's own
        "clients, confirm": 12 * degree,  # the neighbours' statements
        "clients, reveal": 12 * (terms.quorum - 1),  # a quorum, of which one's own signature needs no proof
        "server, advertise": 12,
        "server, mask": 12,
        "server, confirm": 12,
    }


def shown(cast: Cast, *forged: int) -> bytes:
    """What client 0 is shown, with these signatures replaced by others."""
    good = messages.decode(cast.inbox[cast.terms.clients[0]], messages.Testimony, "server", cast.terms.digest)
    entries = [
        msgspec.structs.replace(entry, signature=bytes(64)) if entry.sender in forged else entry
        for entry in good.confirmations
    ]
    return messages.encode(msgspec.structs.replace(good, confirmations=tuple(entries)))


def test_a_quorum_of_true_signatures_is_enough_and_none_of_it_may_be_forged() -> None:
    terms = make_terms(9, active=True, colluders=2)
    cast = Cast(terms).play_until(Step.REVEAL)
    name, state = terms.clients[0], cast.states[terms.clients[0]]
    assert terms.quorum == 6
    _, reply = cast.answer(state, name, shown(cast))
    for forged in (0,), (6,), (6, 7, 8):  # its own, and beyond the quorum
        assert cast.answer(state, name, shown(cast, *forged))[1] == reply
    for number in range(1, 6):
        with pytest.raises(PeerProtocolError, match="forged its confirmation"):
            cast.answer(state, name, shown(cast, number))


def test_a_signature_counts_once_and_only_for_survivors() -> None:
    terms = make_terms(6, active=True, colluders=1)
    cast = Cast(terms).play_until(Step.REVEAL)
    good = messages.decode(cast.inbox[terms.clients[0]], messages.Testimony, "server", terms.digest).confirmations
    survivors, context = range(6), rules.survivors_context(terms, cast.server.view().seed, range(6))
    rules.check_quorum(terms, context, survivors, good[: terms.quorum])
    with pytest.raises(ThresholdError):
        rules.check_quorum(terms, context, survivors, good[: terms.quorum - 1] * 2)
    with pytest.raises(ThresholdError):
        rules.check_quorum(terms, context, survivors, good[1 : terms.quorum], own=0)  # it must be among them too
    with pytest.raises(PeerProtocolError, match="did not survive"):
        rules.check_quorum(terms, context, range(5), good)  # although there is a quorum without it


def test_a_book_with_other_keys_of_ones_own_is_refused() -> None:
    """The client's own entry needs no signature only because it has the client's own keys."""
    terms = make_terms(4, active=True)
    cast = Cast(terms)
    cast.play_until(Step.SHARE)
    name = terms.clients[1]
    good = messages.decode(cast.inbox[name], messages.KeyBook, "server", terms.digest)
    other = PrivateKey.generate(SystemEntropy(), "key").public
    entries = list(good.advertisements)
    entries[1] = msgspec.structs.replace(entries[1], masking_key=other)
    changed = messages.encode(msgspec.structs.replace(good, advertisements=tuple(entries)))
    with pytest.raises(PeerProtocolError, match=f"client {names(4)[1]} did not sign"):
        cast.answer(cast.states[name], name, changed)
    unsigned = messages.encode(
        msgspec.structs.replace(
            good,
            advertisements=tuple(
                msgspec.structs.replace(entry, signature=None) if entry.sender == 1 else entry
                for entry in good.advertisements
            ),
        )
    )
    assert cast.answer(cast.states[name], name, unsigned)  # the keys are its own, so it needs no signature


def test_a_masked_input_without_a_statement_is_refused() -> None:
    terms = make_terms(5, active=True)
    cast = Cast(terms).play_until(Step.MASK)
    seed = cast.server.view().seed
    with pytest.raises(VerificationError):
        rules.check_statement(terms, seed, 1, Members.of(range(5), 5), None)
