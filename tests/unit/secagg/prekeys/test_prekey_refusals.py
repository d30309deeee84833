"""What clients and server refuse in sessions with prekeys: each refusal by its message."""

from collections.abc import Callable

import msgspec
import pytest
from tests.support.cast import entropy_for, identity_for, make_terms
from tests.support.prekey_cast import ISSUED, POPULATION, PrekeyCast

from coterie.crypto.entropy import SystemEntropy
from coterie.errors import ConfigError, CoterieError, LocalProtocolError, PeerProtocolError, ThresholdError
from coterie.secagg import Step, Terms, messages
from coterie.secagg.prekeys import Contributed, PrekeyBook, Signed, accept, client, issue
from coterie.secagg.prekeys.messages import (
    SHARE_BYTES,
    BookInvitation,
    MaskedContribution,
    OpenedShares,
    Prekey,
    SurvivorList,
    SurvivorProof,
)

ME = "client-00"
PAIRS = tuple(number // 2 for number in range(12))


def change(data: bytes, kind: type[messages.M], **fields: object) -> bytes:
    """Return a message with some fields replaced and a checksum that fits."""
    message = messages.decode(data, kind, "test", None)
    return messages.encode(msgspec.structs.replace(message, **fields))


def contributed(terms: Terms, lost: tuple[int, ...] = ()) -> tuple[PrekeyCast, dict[str, bytes]]:
    """Play the first trip; return the messages of the server after it."""
    cast = PrekeyCast(terms)
    for name in terms.clients:
        if terms.index[name] not in lost:
            assert cast.server.receive(name, cast.contribute(name)) is None
    return cast, cast.server.close()


def rejection(cast: PrekeyCast, name: str, message: bytes) -> str:
    """Return why the server rejects a message."""
    rejected = cast.server.receive(name, message)
    assert rejected is not None
    return rejected.reason


# The book.


def test_a_client_refuses_a_book_without_it() -> None:
    cast = PrekeyCast(make_terms(4, active=True))
    with pytest.raises(PeerProtocolError, match="without it"):
        accept(cast.book, "stranger", cast.secrets[ME], POPULATION)


def test_a_client_refuses_a_prekey_that_is_not_the_one_it_uses() -> None:
    cast = PrekeyCast(make_terms(4, active=True))
    with pytest.raises(PeerProtocolError, match="another prekey"):
        accept(cast.book, ME, cast.secrets["client-01"], POPULATION)


def _swapped(cast: PrekeyCast, victim: int, prekey: Prekey) -> PrekeyBook:
    return PrekeyBook(cast.terms, tuple(prekey if at == victim else old for at, old in enumerate(cast.book.prekeys)))


def test_prekeys_must_be_signed_by_their_owners() -> None:
    cast = PrekeyCast(make_terms(4, active=True))
    entropy = SystemEntropy()
    forged = issue(POPULATION, "client-02", ISSUED, entropy, identity_for("client-03"))[1]
    unsigned = issue(POPULATION, "client-02", ISSUED, entropy, None)[1]
    elsewhere = issue(b"another population", "client-02", ISSUED, entropy, identity_for("client-02"))[1]
    newer = msgspec.structs.replace(cast.book.prekeys[2], issued=ISSUED + 1)
    for prekey in forged, unsigned, elsewhere, newer:
        with pytest.raises(PeerProtocolError, match="client-02 did not sign"):
            accept(_swapped(cast, 2, prekey), ME, cast.secrets[ME], POPULATION)


def test_a_client_refuses_old_prekeys_copied_ones_and_those_of_low_order() -> None:
    cast = PrekeyCast(make_terms(4))
    accept(cast.book, ME, cast.secrets[ME], POPULATION, oldest=ISSUED)
    with pytest.raises(PeerProtocolError, match="too old"):
        accept(cast.book, ME, cast.secrets[ME], POPULATION, oldest=ISSUED + 1)
    with pytest.raises(PeerProtocolError, match="stands twice"):
        accept(_swapped(cast, 2, cast.book.prekeys[3]), ME, cast.secrets[ME], POPULATION)
    with pytest.raises(PeerProtocolError, match="malformed"):
        accept(_swapped(cast, 2, Prekey(bytes(32), ISSUED)), ME, cast.secrets[ME], POPULATION)


@pytest.mark.parametrize("threshold", [1, 5, 8])
def test_against_an_active_server_the_threshold_is_at_least_the_quorum_and_at_most_all_clients(threshold: int) -> None:
    cast = PrekeyCast(make_terms(7, active=True, threshold=threshold, colluders=0 if threshold == 1 else 4))
    with pytest.raises(PeerProtocolError, match="shares open a secret"):
        accept(cast.book, ME, cast.secrets[ME], POPULATION)


def test_bytes_that_are_no_invitation_are_refused() -> None:
    book = PrekeyCast(make_terms(4)).book
    assert PrekeyBook.read(book.invitation()) == book
    with pytest.raises(PeerProtocolError, match="not a BookInvitation"):
        PrekeyBook.read(b"nonsense")
    other = PrekeyCast(make_terms(5)).book
    invitation = messages.decode(book.invitation(), BookInvitation, "test", None)
    for wrong, reason in (
        (msgspec.structs.replace(invitation, body=b"?"), "cannot be accepted"),
        (msgspec.structs.replace(invitation, prekeys=invitation.prekeys[1:]), "one prekey for each"),
        (msgspec.structs.replace(invitation, terms=other.digest), "another session"),
    ):
        with pytest.raises(PeerProtocolError, match=reason):
            PrekeyBook.read(messages.encode(wrong))


def test_a_client_signs_with_its_identity_in_the_terms_only() -> None:
    cast = PrekeyCast(make_terms(4, active=True))
    invited = accept(cast.book, ME, cast.secrets[ME], POPULATION)
    for wrong in None, identity_for("client-01"):
        with pytest.raises(ConfigError, match="identity"):
            invited.contribute(cast.inputs[ME], SystemEntropy(), wrong)


# Survivor lists.


def test_a_client_answers_only_for_its_own_contribution() -> None:
    cast, outgoing = contributed(make_terms(6, active=True))
    marks = bytearray(messages.decode(outgoing[ME], SurvivorList, "test", None).marks)
    marks[0] ^= 1
    for wrong, reason in (
        ({"marks": bytes(marks)}, "without this client's contribution"),
        ({"marks": bytes(marks[:-1])}, "one for each survivor"),
        ({"survivors": messages.encode_members(range(1, 6), 6), "marks": bytes(marks[16:])}, "without this client"),
    ):
        with pytest.raises(PeerProtocolError, match=reason):
            cast.answer(ME, change(outgoing[ME], SurvivorList, **wrong))


def test_sums_of_too_few_clients_are_refused() -> None:
    cast, outgoing = contributed(make_terms(6, active=True, colluders=2))
    told = messages.decode(outgoing[ME], SurvivorList, "test", None)
    few = change(outgoing[ME], SurvivorList, survivors=messages.encode_members(range(3), 6), marks=told.marks[:48])
    with pytest.raises(ThresholdError, match="minimum is 4"):
        cast.answer(ME, few)


def test_if_many_clients_are_missing_nothing_is_revealed_without_confirmation() -> None:
    """The rule of the direct path, with circles: below the floor a list with envelopes is refused."""
    terms = make_terms(12, active=True, colluders=1, circles=PAIRS)
    cast, outgoing = contributed(terms, lost=(3, 5, 7))
    assert cast.server.step is Step.CONFIRM
    with pytest.raises(ThresholdError, match="must be confirmed"):
        cast.answer(ME, change(outgoing[ME], SurvivorList, envelopes=()))


def test_an_honest_but_curious_server_may_not_ask_for_confirmation() -> None:
    cast, outgoing = contributed(make_terms(4))
    with pytest.raises(PeerProtocolError, match="nobody does in this mode"):
        cast.answer(ME, change(outgoing[ME], SurvivorList, envelopes=None))


def test_envelopes_of_lost_clients_are_refused_and_damaged_ones_are_skipped() -> None:
    cast, outgoing = contributed(make_terms(6, active=True), lost=(5,))
    told = messages.decode(outgoing[ME], SurvivorList, "test", None)
    assert told.envelopes is not None
    first, second, *rest = told.envelopes
    lost = msgspec.structs.replace(first, dealer=5)
    with pytest.raises(PeerProtocolError, match="not to be aggregated"):
        cast.answer(ME, change(outgoing[ME], SurvivorList, envelopes=(*told.envelopes, lost)))
    with pytest.raises(PeerProtocolError, match="repeated or unsorted"):
        cast.answer(ME, change(outgoing[ME], SurvivorList, envelopes=(second, first, *rest)))
    swapped = (msgspec.structs.replace(first, sealed=second.sealed), second, *rest)
    reply = cast.answer(ME, change(outgoing[ME], SurvivorList, envelopes=swapped))
    opened = messages.decode(reply, OpenedShares, "test", None)
    assert [entry.dealer for entry in opened.dealers] == [0, 2, 3, 4]


# Proofs.


def confirmed() -> tuple[PrekeyCast, dict[str, bytes]]:
    terms = make_terms(12, active=True, colluders=1, circles=PAIRS)
    cast, outgoing = contributed(terms, lost=(3, 5, 7))
    for name, message in outgoing.items():
        assert cast.server.receive(name, cast.answer(name, message)) is None
    assert isinstance(cast.states[ME], Signed)
    return cast, cast.server.close()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda entries: entries[: len(entries) // 2], "clients confirmed the survivors"),
        (lambda entries: entries[:1] * 9, "repeated or unsorted"),
        (
            lambda entries: (*entries[:-1], msgspec.structs.replace(entries[0], sender=7)),
            "repeated or unsorted|survive",
        ),
        (lambda entries: (*entries[:-1], msgspec.structs.replace(entries[0], sender=11)), "forged its confirmation"),
    ],
)
def test_a_quorum_must_have_signed_the_same_list(
    wrong: Callable[[tuple[object, ...]], tuple[object, ...]], reason: str
) -> None:
    cast, outgoing = confirmed()
    proof = messages.decode(outgoing[ME], SurvivorProof, "test", None)
    with pytest.raises(CoterieError, match=reason):
        cast.answer(ME, change(outgoing[ME], SurvivorProof, signatures=wrong(proof.signatures)))
    assert cast.answer(ME, outgoing[ME])


def test_signatures_of_the_lost_do_not_count() -> None:
    cast, outgoing = confirmed()
    proof = messages.decode(outgoing[ME], SurvivorProof, "test", None)
    moved = tuple(sorted((*proof.signatures[1:], msgspec.structs.replace(proof.signatures[0], sender=5)),
                         key=lambda entry: entry.sender))  # fmt: skip
    with pytest.raises(PeerProtocolError, match="did not survive"):
        cast.answer(ME, change(outgoing[ME], SurvivorProof, signatures=moved))


# The server.


def test_the_server_rejects_contributions_that_do_not_fit() -> None:
    cast = PrekeyCast(make_terms(6, active=True, circles=(0, 0, 1, 1, 2, 2)))
    reply = cast.contribute(ME)
    made = messages.decode(reply, MaskedContribution, "test", None)
    for wrong, reason in (
        ({"envelopes": made.envelopes[1:]}, "exactly the others"),
        ({"envelopes": (made.envelopes[0][:-1], *made.envelopes[1:])}, "exactly the others"),
        ({"pads": made.pads[:-1]}, "masks it shares"),
        ({"key_marks": made.key_marks[1:]}, "commit to one key"),
        ({"payload": made.payload[:-1]}, "does not verify"),
        ({"signature": None}, "not signed"),
        ({"seed_mark": bytes(16)}, "does not verify"),
        ({"sender": 1}, "another client"),
    ):
        assert reason in rejection(cast, ME, change(reply, MaskedContribution, **wrong))
    assert cast.server.receive(ME, reply) is None
    assert "already heard" in rejection(cast, ME, reply)
    assert "not in the terms" in rejection(cast, "stranger", reply)


@pytest.mark.parametrize("circles", [None, (0, 0, 1, 1, 2, 2)])
def test_a_vector_that_is_not_well_packed_leaves_nothing_at_the_server(circles: tuple[int, ...] | None) -> None:
    cast = PrekeyCast(make_terms(6, circles=circles))
    reply = cast.contribute(ME)
    made = messages.decode(reply, MaskedContribution, "test", None)
    for payload, reason in ((made.payload[:-1], "bytes"), (made.payload[:-1] + b"\xff", "padding")):
        assert reason in rejection(cast, ME, change(reply, MaskedContribution, payload=payload))
    assert (cast.server.survivors, cast.server.refills, cast.server.view().sums) == ((), {}, {})
    assert cast.server.receive(ME, reply) is None


def test_fresh_prekeys_travel_with_contributions() -> None:
    cast = PrekeyCast(make_terms(4))
    fresh = issue(POPULATION, ME, ISSUED, SystemEntropy(), None)[1]
    invited = accept(cast.book, ME, cast.secrets[ME], POPULATION)
    _, reply = invited.contribute(cast.inputs[ME], entropy_for(ME), prekeys=[fresh])
    assert cast.server.receive(ME, reply) is None
    assert cast.server.refills == {ME: (fresh,)}


def test_too_few_contributions_or_signatures_end_the_session() -> None:
    with pytest.raises(ThresholdError, match="minimum"):
        contributed(make_terms(6, active=True, colluders=0, circles=(0, 0, 1, 1, 2, 2)), lost=(1, 3, 5))
    with pytest.raises(ThresholdError, match="4 are needed"):
        contributed(make_terms(6, active=True, colluders=0), lost=(1, 3, 5))
    terms = make_terms(12, active=True, colluders=1, circles=PAIRS)
    cast, outgoing = contributed(terms, lost=(3, 5, 7))
    for name in sorted(outgoing)[:6]:
        cast.server.receive(name, cast.answer(name, outgoing[name]))
    with pytest.raises(ThresholdError, match="6 clients confirmed"):
        cast.server.close()


def test_the_server_rejects_shares_that_were_not_asked_for() -> None:
    terms = make_terms(6, circles=(0, 0, 1, 1, 2, 2))
    cast, outgoing = contributed(terms, lost=(5,))
    reply = cast.answer(ME, outgoing[ME])
    opened = messages.decode(reply, OpenedShares, "test", None)
    assert [len(entry.shares) for entry in opened.dealers] == [2 * SHARE_BYTES] * 4
    first, *rest = opened.dealers
    for wrong, reason in (
        ((*opened.dealers, msgspec.structs.replace(first, dealer=4)), "not aggregated"),
        ((msgspec.structs.replace(first, shares=first.shares[1:]), *rest), "other shares"),
        ((*rest, first), "unsorted"),
    ):
        assert reason in rejection(cast, ME, change(reply, OpenedShares, dealers=wrong))
    assert cast.server.receive(ME, reply) is None
    assert "takes no part" in rejection(cast, "client-05", reply)


def test_no_step_is_possible_after_the_end() -> None:
    cast = PrekeyCast(make_terms(4, active=True))
    assert cast.server.step is Step.CONTRIBUTE
    with pytest.raises(LocalProtocolError, match="no sum"):
        _ = cast.server.aggregate
    cast.play()
    with pytest.raises(LocalProtocolError, match="over"):
        cast.server.close()
    with pytest.raises(LocalProtocolError, match="over"):
        cast.answer(ME, b"")
    assert "after the session" in rejection(cast, ME, b"")


# States.


def test_states_and_views_show_no_secret() -> None:
    cast, outgoing = contributed(make_terms(4, active=True))
    state = cast.states[ME]
    assert isinstance(state, Contributed)
    assert state.consider(outgoing[ME]).aggregated == set(cast.terms.clients)
    shown = f"{state!r} {cast.server!r} {cast.server.view()!r} {cast.book!r}"
    shown += repr(accept(cast.book, ME, cast.secrets[ME], POPULATION))
    assert state.own.hex() not in shown
    assert "secret" in repr(cast.server.view())


def test_a_damaged_state_is_refused() -> None:
    cast, _ = contributed(make_terms(4, active=True))
    parked = client.park(cast.states[ME])
    assert client.resume(parked) == cast.states[ME]
    for wrong in b"", parked[:-1], parked[:40] + bytes([parked[40] ^ 1]) + parked[41:]:
        with pytest.raises(LocalProtocolError, match="state"):
            client.resume(wrong)


def test_a_contribution_repeated_with_another_input_has_other_masks() -> None:
    """A restored disk and even the same randomness never put one mask over two inputs."""
    cast = PrekeyCast(make_terms(4, active=True))
    one = messages.decode(cast.contribute(ME), MaskedContribution, "test", None)
    cast.inputs[ME] = cast.terms.ring.zeros(cast.terms.length)
    two = messages.decode(cast.contribute(ME), MaskedContribution, "test", None)
    assert one.seed_mark != two.seed_mark
    assert not set(one.envelopes) & set(two.envelopes)
