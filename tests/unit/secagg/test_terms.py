from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cast import Cast, entropy_for, identity_for, make_terms, names

from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.signing import Identity
from coterie.errors import ConfigError, InputError, LocalProtocolError, PeerProtocolError, ThresholdError
from coterie.graphs.table import is_complete
from coterie.graphs.topology import Complete, ErdosRenyi, Harary, Topology
from coterie.secagg import Server, Step, Terms, ThreatMode, client, messages
from coterie.secagg.invitation import read_invitation
from coterie.secagg.members import Members


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"session": b"short"}, "random bytes"),
        ({"clients": ("alone",)}, "a session has between 2 and"),
        ({"clients": ("twin", "twin")}, "distinct"),
        ({"bits": 0}, "bits"),
        ({"bits": 65}, "bits"),
        ({"length": 0}, "at least one entry"),
        ({"threshold": 0}, "at least 1"),
        ({"minimum": 1}, "minimum"),
        ({"minimum": 7}, "minimum"),
        ({"circles": (0, 1)}, "circle number for each"),
        ({"mode": ThreatMode.ACTIVE_SERVER}, "identity key"),
        ({"active": True, "identities": (b"x" * 32,) * 6}, "identity key"),
        ({"active": True, "identities": tuple(bytes([n]) for n in range(6))}, "identity key"),
        ({"active": True, "colluders": -1}, "between 0 and 4"),
        ({"active": True, "colluders": 5}, "between 0 and 4 may collude"),
        ({"active": True, "colluders": 2, "threshold": 2}, "must be above"),
        ({"active": True, "topology": Harary(4)}, "number of colluders"),
        ({"topology": "star"}, "a topology is one of Complete, ErdosRenyi, Harary .*not 'star'"),
    ],
)
def test_impossible_terms_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_terms(6, **changes)


def test_equal_terms_have_equal_digests_and_any_change_shows() -> None:
    base = make_terms()
    assert base.digest == make_terms().digest
    different = [
        make_terms(7),
        make_terms(session=b"another session!"),
        make_terms(bits=21),
        make_terms(length=6),
        make_terms(topology=Harary(2)),
        make_terms(topology=Harary(4)),
        make_terms(topology=ErdosRenyi(0.5)),
        make_terms(threshold=3),
        make_terms(circles=(0, 0, 0, 1, 1, 1)),
        make_terms(minimum=3),
        make_terms(active=True),
        make_terms(roster=b"another roster"),
        make_terms(content=b"another model"),
        make_terms(active=True, colluders=2),
    ]
    digests = {terms.digest for terms in different}
    assert len(digests) == len(different)
    assert base.digest not in digests


def test_terms_travel_as_bytes() -> None:
    for terms in (make_terms(), make_terms(active=True, circles=(1,) * 6, topology=ErdosRenyi(0.3), colluders=1)):
        assert Terms.from_bytes(terms.to_bytes()) == terms


@settings(max_examples=100)
@given(st.lists(st.sampled_from([0, 1, 2, -1, 2**63]), min_size=6, max_size=6), st.sets(st.integers(0, 5)))
def test_only_complete_circles_are_aggregated(circles: list[int], survivors: set[int]) -> None:
    terms = make_terms(circles=tuple(circles))
    whole = {
        client for client in range(6) if all(mate in survivors for mate in range(6) if circles[mate] == circles[client])
    }
    assert terms.aggregated(survivors) == whole == set(terms.summed(Members.of(survivors, 6)))
    assert make_terms().aggregated(survivors) == survivors


def test_the_default_threshold_is_a_majority_of_the_shares() -> None:
    terms = make_terms()
    assert all(2 * terms.threshold_for(shares) > shares for shares in range(1, 50))
    assert make_terms(threshold=2).threshold_for(9) == 2


@pytest.mark.parametrize("topology", [Complete(), Harary(4)])
@settings(max_examples=100)
@given(size=st.integers(2, 40), data=st.data())
def test_quorum_and_threshold_follow_from_the_number_of_colluders(
    topology: Topology, size: int, data: st.DataObject
) -> None:
    colluders = data.draw(st.integers(0, size - 2))
    terms = make_terms(size, active=True, colluders=colluders, topology=topology)
    assert terms.tolerated == colluders
    assert size >= terms.quorum
    assert 2 * terms.quorum > size + colluders >= 2 * (terms.quorum - 1)
    for shares in range(1, size + 1):
        threshold = terms.threshold_for(shares)
        assert shares >= threshold > min(colluders, shares - 1)
        assert 2 * threshold > shares
    assert terms.fewest == (colluders + 2 if is_complete(topology, size) else 2)


def test_just_under_a_third_may_collude_unless_said_otherwise() -> None:
    found = {size: make_terms(size, active=True).tolerated for size in (2, 3, 4, 7, 12, 100)}
    assert found == {2: 0, 3: 0, 4: 1, 7: 2, 12: 3, 100: 33}
    assert make_terms(12, colluders=3).tolerated == 0  # a server that follows the protocol gains nothing by them here
    assert make_terms(12, active=True, minimum=9).fewest == 9


def test_terms_with_an_unknown_topology_are_refused() -> None:
    body = msgspec.msgpack.encode(
        msgspec.to_builtins(make_terms(), builtin_types=(bytes,)) | {"topology": {"type": "star"}}
    )
    with pytest.raises(ConfigError, match="no topology is called 'star'"):
        Terms.from_bytes(body)


# Misuse by the caller and misbehaviour of the other side are different errors.


def test_joining_needs_a_name_and_an_identity() -> None:
    with pytest.raises(ConfigError, match="not in the terms"):
        client.join(make_terms(), "stranger", SystemEntropy())
    terms = make_terms(active=True)
    for identity in (None, Identity.generate(SystemEntropy())):
        with pytest.raises(ConfigError, match="identity"):
            client.join(terms, "client-01", SystemEntropy(), identity)


def test_a_wrong_vector_is_refused_before_anything_is_sent() -> None:
    cast = Cast(make_terms()).play_until(Step.MASK)
    state = cast.states["client-01"]
    assert isinstance(state, client.Shared)
    terms = cast.terms
    for vector in (terms.ring.zeros(4), terms.ring.zeros(5) + (1 << 20), terms.ring.zeros(5).astype(float)):
        with pytest.raises(InputError):
            state.mask(cast.inbox["client-01"], vector)


def test_survivors_are_confirmed_against_an_active_server_only() -> None:
    curious = Cast(make_terms()).play_until(Step.REVEAL)
    active = Cast(make_terms(active=True)).play_until(Step.CONFIRM)
    state = curious.states["client-01"]
    assert isinstance(state, client.Masked)
    with pytest.raises(LocalProtocolError, match="active server"):
        state.confirm(curious.inbox["client-01"], identity_for("client-01"))
    state = active.states["client-01"]
    assert isinstance(state, client.Masked)
    with pytest.raises(LocalProtocolError, match="confirmed before"):
        state.reveal(active.inbox["client-01"])


def test_answering_without_the_vector_or_the_identity_is_refused() -> None:
    entropy = entropy_for("client-01")
    cast = Cast(make_terms(active=True)).play_until(Step.MASK)
    with pytest.raises(LocalProtocolError, match="vector"):
        client.answer(cast.states["client-01"], cast.inbox["client-01"], entropy=entropy)
    vector = cast.inputs["client-01"]
    with pytest.raises(ConfigError, match="identity"):
        client.answer(cast.states["client-01"], cast.inbox["client-01"], entropy=entropy, vector=vector)
    cast.play_until(Step.CONFIRM)
    with pytest.raises(ConfigError, match="identity"):
        client.answer(cast.states["client-01"], cast.inbox["client-01"], entropy=entropy)


def test_the_sum_is_available_when_the_last_step_is_closed() -> None:
    cast = Cast(make_terms()).play_until(Step.REVEAL)
    with pytest.raises(LocalProtocolError, match="no sum in step reveal"):
        _ = cast.server.aggregate
    result = cast.finish()
    assert cast.server.step is Step.DONE
    assert cast.server.aggregate is result
    with pytest.raises(LocalProtocolError, match="nothing to close"):
        cast.server.close()


@pytest.mark.parametrize("active", [False, True])
def test_an_invitation_carries_the_terms(active: bool) -> None:
    terms = make_terms(active=active, circles=(0, 0, 1, 1, 2, 2))
    invitations = Server(terms).invite()
    assert invitations.keys() == set(terms.clients)
    assert {read_invitation(message) for message in invitations.values()} == {terms}


def test_an_invitation_to_impossible_terms_is_the_servers_fault() -> None:
    body = msgspec.msgpack.encode(msgspec.structs.asdict(make_terms()) | {"session": b"short"})
    message = messages.encode(messages.Invitation(bytes(32), body))
    with pytest.raises(PeerProtocolError, match="at least 16 random bytes"):
        read_invitation(message)
    terms = make_terms()
    forged = messages.encode(messages.Invitation(bytes(32), terms.to_bytes()))
    with pytest.raises(PeerProtocolError, match="another session"):
        read_invitation(forged)


@pytest.mark.parametrize("step", [Step.ADVERTISE, Step.SHARE, Step.MASK])
def test_a_step_with_too_few_clients_ends_the_round(step: Step) -> None:
    cast = Cast(make_terms(minimum=4)).play_until(step)
    cast.deliver(cast.replies(names(6)[:3]))
    with pytest.raises(ThresholdError, match="minimum is 4"):
        cast.server.close()


def test_a_step_with_no_message_at_all_ends_the_round() -> None:
    with pytest.raises(ThresholdError):
        Server(make_terms()).close()


def test_unmasking_says_who_is_short_of_shares() -> None:
    cast = Cast(make_terms(6, threshold=4)).play_until(Step.REVEAL, {Step.MASK: ["client-05"]})
    with pytest.raises(ThresholdError) as caught:
        cast.finish(without=names(6)[:2])
    assert caught.value.shortfall == dict.fromkeys(names(6), (3, 4))


def test_a_client_with_too_few_neighbours_refuses_to_share() -> None:
    cast = Cast(make_terms(6, topology=Complete())).play_until(Step.SHARE)
    book = messages.decode(cast.inbox["client-01"], messages.KeyBook, "test", cast.terms.digest)
    short = messages.encode(messages.KeyBook(cast.terms.digest, book.advertisements[:2]))
    with pytest.raises(ThresholdError, match="3 of 6 share holders advertised"):
        cast.reply("client-01", short)


def test_key_books_with_strangers_or_out_of_order_are_refused() -> None:
    cast = Cast(make_terms(6, topology=Harary(4))).play_until(Step.SHARE)
    book = messages.decode(cast.inbox["client-01"], messages.KeyBook, "test", cast.terms.digest).advertisements
    known = {entry.sender for entry in book}
    extra = next(number for number in range(6) if number not in known and number != 1)
    beyond, stranger = (
        msgspec.structs.replace(book[-1], sender=sender, sealing_key=b"x" * 32, masking_key=b"y" * 32)
        for sender in (6, extra)
    )
    for entries, reason in (
        (book[::-1], "unsorted"),
        ((*book, book[-1]), "repeated"),
        ((*book, beyond), "not in the terms"),
        (
            tuple(sorted([*book, stranger], key=lambda entry: entry.sender)),
            "not a neighbour",
        ),
    ):
        with pytest.raises(PeerProtocolError, match=reason):
            cast.reply("client-01", messages.encode(messages.KeyBook(cast.terms.digest, entries)))


def test_deliveries_from_strangers_are_refused() -> None:
    cast = Cast(make_terms(6)).play_until(Step.MASK, {Step.ADVERTISE: ["client-05"]})
    delivered = messages.decode(cast.inbox["client-01"], messages.Deliveries, "test", cast.terms.digest).envelopes
    stranger = msgspec.structs.replace(delivered[-1], peer=5)
    with pytest.raises(PeerProtocolError, match="never advertised"):
        cast.reply("client-01", messages.encode(messages.Deliveries(cast.terms.digest, (*delivered, stranger))))


@settings(max_examples=100)
@given(st.sets(st.integers(0, 20)), st.integers(21, 40))
def test_sets_of_clients_have_one_encoding(members: set[int], size: int) -> None:
    data = messages.encode_members(members, size)
    assert set(messages.decode_members(data, size, "test")) == members
    for bad in (data + b"\0", data[:-1], (1 << size).to_bytes((size + 8) // 8, "little")):
        with pytest.raises(PeerProtocolError):
            messages.decode_members(bad, size, "test")


def test_messages_hide_their_content() -> None:
    cast = Cast(make_terms()).play_until(Step.MASK)
    data = cast.replies()["client-01"]
    message = messages.decode(data, messages.MaskedInput, "test", cast.terms.digest)
    assert repr(message) == f"<MaskedInput of session {cast.terms.digest.hex()[:8]}>"


@pytest.mark.parametrize(("circles", "vectors"), [(None, 1), ((0, 0, 1, 1, 2, 2), 3)])
def test_the_server_keeps_one_vector_or_one_for_each_circle(circles: tuple[int, ...] | None, vectors: int) -> None:
    cast = Cast(make_terms(6, circles=circles)).play_until(Step.MASK)
    cast.deliver(cast.replies())
    assert len(cast.server.view().sums) == vectors
    held = [value for value in vars(cast.server).values() if isinstance(value, np.ndarray)]
    assert held == []
    cast.inbox = cast.server.close()
    cast.finish()
    assert cast.server.view().sums == {}
