"""Arbitrary bytes sent to any state give a typed error. They never crash it and never change it."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cast import Cast, entropy_for, flip, make_terms, names, ring_sum

from coterie.errors import LocalProtocolError, PeerProtocolError
from coterie.secagg import Step, client, messages, steps

NAME = "client-01"


def casts(active: bool) -> dict[Step, Cast]:
    """A session stopped in each step, waiting for the clients' messages."""
    return {
        step: Cast(make_terms(5, active=active)).play_until(step)
        for step in steps.ROWS
        if active or step is not Step.CONFIRM
    }


STOPPED = {active: casts(active) for active in (False, True)}
WAITING = {active: dict(list(stopped.items())[1:]) for active, stopped in STOPPED.items()}
"""The same without the first step, in which clients have no state yet."""
noise = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=40) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=12,
    ).map(msgspec.msgpack.encode),
)


def with_checksum(body: bytes) -> bytes:
    return body + messages.checksum(body)


@settings(max_examples=100)
@given(noise, st.booleans(), st.booleans(), st.data())
def test_a_client_refuses_random_bytes(body: bytes, checksummed: bool, active: bool, data: st.DataObject) -> None:
    cast = data.draw(st.sampled_from(list(WAITING[active].values())))
    before = client.park(cast.states[NAME])
    with pytest.raises(PeerProtocolError):
        cast.answer(cast.states[NAME], NAME, with_checksum(body) if checksummed else body)
    assert client.park(cast.states[NAME]) == before


@settings(max_examples=100)
@given(noise, st.booleans(), st.booleans(), st.data())
def test_the_server_rejects_random_bytes(body: bytes, checksummed: bool, active: bool, data: st.DataObject) -> None:
    cast = data.draw(st.sampled_from(list(STOPPED[active].values())))
    server = cast.server
    before = (server.step, server.advertisers, server.sharers, server.survivors, server.revealers)
    rejected = server.receive(NAME, with_checksum(body) if checksummed else body)
    assert rejected is not None
    assert rejected.sender == NAME
    assert (server.step, server.advertisers, server.sharers, server.survivors, server.revealers) == before


@settings(max_examples=100)
@given(st.booleans(), st.integers(0, 10**6), st.booleans(), st.data())
def test_a_flipped_bit_is_noticed_unless_the_checksum_is_repaired(
    active: bool, bit: int, repaired: bool, data: st.DataObject
) -> None:
    """Damage is always noticed. With a repaired checksum, the message is accepted or refused with a typed error."""
    cast = data.draw(st.sampled_from(list(WAITING[active].values())))
    message = cast.inbox[NAME]
    damaged = flip(message, bit % (8 * len(message)))
    if repaired:
        damaged = with_checksum(damaged[: -messages.CHECKSUM_BYTES])
    fresh = Cast(cast.terms).play_until(cast.server.step)
    try:
        fresh.reply(NAME, damaged)
    except PeerProtocolError:
        return
    assert repaired


@pytest.mark.parametrize("active", [False, True])
def test_messages_of_another_step_are_refused(active: bool) -> None:
    for step, cast in WAITING[active].items():
        for other, elsewhere in WAITING[active].items():
            if other is not step:
                with pytest.raises(PeerProtocolError, match="not a"):
                    cast.answer(cast.states[NAME], NAME, elsewhere.inbox[NAME])


@settings(max_examples=100)
@given(noise, st.booleans())
def test_random_bytes_are_not_resumed_as_a_state(body: bytes, checksummed: bool) -> None:
    with pytest.raises(LocalProtocolError):
        client.resume(with_checksum(body) if checksummed else body)


@settings(max_examples=100)
@given(st.data())
def test_a_damaged_state_is_not_resumed(data: st.DataObject) -> None:
    """Without the checksum, most damage would give a state with other masks or shares than those that were sent."""
    waiting = [cast for stopped in WAITING.values() for cast in stopped.values()]
    parked = client.park(data.draw(st.sampled_from(waiting)).states[NAME])
    with pytest.raises(LocalProtocolError):
        client.resume(flip(parked, data.draw(st.integers(0, 8 * len(parked) - 1))))


@pytest.mark.parametrize("me", [-1, -5, 5, 1 << 40])
def test_a_state_is_that_of_a_client_in_the_terms(me: int) -> None:
    state, _ = client.join(make_terms(5), NAME, entropy_for(NAME))
    with pytest.raises(LocalProtocolError):
        client.resume(client.park(msgspec.structs.replace(state, me=me)))


@pytest.mark.parametrize("active", [False, True])
def test_every_state_parks_and_resumes_to_itself(active: bool) -> None:
    cast = Cast(make_terms(5, active=active, circles=(0, 0, 1, 1, 1)))
    while cast.server.step is not Step.REVEAL:
        cast.play()
        for state in cast.states.values():
            assert client.resume(client.park(state)) == state
    result = cast.finish()
    for state in cast.states.values():
        assert client.resume(client.park(state)) == state
        with pytest.raises(LocalProtocolError, match="over"):
            cast.answer(state, NAME, b"")
    assert (result.total == ring_sum(cast.terms, cast.inputs, names(5))).all()


@pytest.mark.parametrize("active", [False, True])
def test_no_representation_or_error_shows_a_secret(active: bool) -> None:
    """Every secret a party ever holds, against every text it ever shows."""
    cast = Cast(make_terms(5, active=active))
    shown: list[str] = []
    secrets: set[bytes] = set()
    while True:
        for name, state in cast.states.items():
            secrets |= set(_byte_fields(msgspec.to_builtins(state, builtin_types=(bytes,))))
            shown += [repr(state), str(state), f"{state}"]
            try:
                cast.answer(state, name, flip(cast.inbox.get(name, b"\0"), 9))
            except (PeerProtocolError, LocalProtocolError) as error:
                shown += [repr(error), str(error)]
        cast.server.receive(NAME, b"noise")
        shown += [repr(cast.server), repr(cast.server.rejected), repr(cast.terms)]
        if cast.server.step is Step.REVEAL:
            break
        cast.play()
    for data in cast.replies().values():
        revelation = messages.decode(data, messages.Revelation, "test", cast.terms.digest)
        shown += [repr(revelation), repr(revelation.self_shares), repr(revelation.key_shares)]
        secrets |= {entry.share for entry in revelation.self_shares}
    public = {cast.terms.session, *cast.terms.identities}
    text = "\n".join(shown)
    for secret in secrets - public:
        assert secret.hex() not in text
        assert repr(secret)[2:-1] not in text


def _byte_fields(value: object) -> list[bytes]:
    if isinstance(value, bytes):
        return [value] if len(value) >= 16 else []
    if isinstance(value, dict):
        value = list(value.values())
    return [found for item in value for found in _byte_fields(item)] if isinstance(value, list | tuple) else []
