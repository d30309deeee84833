"""Attacks by clients that lie, are late or repeat messages: they fail with the defence on, and succeed with it off."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cast import Cast, flip, identity_for, make_terms, names, ring_sum

from coterie.errors import PeerProtocolError, ThresholdError
from coterie.secagg import Step, messages, rules

VILLAIN = "client-01"


def replay(kind: str) -> tuple[Cast, str, bytes]:
    """Return a session, a client, and a recorded masked input to replay in that client's name."""
    cast = Cast(make_terms(5)).play_until(Step.MASK)
    if kind == "session":
        other = Cast(make_terms(5, session=b"quite another session")).play_until(Step.MASK)
        return cast, VILLAIN, other.reply(VILLAIN, other.inbox[VILLAIN])
    message = cast.reply("client-03", cast.inbox["client-03"])
    cast.deliver({"client-03": message})
    return cast, "client-03" if kind == "repetition" else VILLAIN, message


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("session", "another session"), ("sender", "another client"), ("repetition", "already heard")],
)
def test_replayed_inputs_are_rejected(kind: str, reason: str) -> None:
    cast, sender, message = replay(kind)
    rejected = cast.server.receive(sender, message)
    assert rejected is not None
    assert rejected.sender == sender
    assert reason in rejected.reason
    remaining = [name for name in names(5) if name != "client-03" or kind == "session"]
    cast.deliver(cast.replies(remaining))
    cast.inbox = cast.server.close()
    result = cast.finish()
    assert (result.total == ring_sum(cast.terms, cast.inputs, names(5))).all()


@pytest.mark.parametrize("kind", ["session", "sender", "repetition"])
def test_replayed_inputs_falsify_the_sum_without_the_check(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cast, sender, message = replay(kind)
    with monkeypatch.context() as undefended:
        undefended.setattr(messages, "check_session", lambda *_: None)
        undefended.setattr(messages, "check_sender", lambda *_: None)
        if kind == "repetition":
            cast.server._survivors.clear()  # a server that forgets which clients sent an input
        assert cast.server.receive(sender, message) is None
    if kind != "session":
        cast.server._survivors.add(cast.terms.index["client-03"])
    heard = cast.server.survivors
    cast.deliver(cast.replies([name for name in names(5) if name not in heard]))
    cast.inbox = cast.server.close()
    for name in heard:  # the state of the replayed client has not changed
        if not hasattr(cast.states[name], "held"):
            cast.reply(name, Cast(cast.terms).play_until(Step.MASK).inbox[name])
    result = cast.finish()
    assert (result.total != ring_sum(cast.terms, cast.inputs, result.clients)).any()


def test_a_message_of_another_step_is_rejected() -> None:
    cast = Cast(make_terms(5))
    first = cast.replies()
    cast.deliver(first)
    cast.inbox = cast.server.close()
    rejected = cast.server.receive(VILLAIN, first[VILLAIN])
    assert rejected is not None
    assert "not a SharedKeys" in rejected.reason
    result = cast.finish()
    assert (result.total == ring_sum(cast.terms, cast.inputs, names(5))).all()


def test_unknown_and_late_clients_are_rejected_in_every_step() -> None:
    cast = Cast(make_terms(5))
    silent = "client-04"
    while True:
        for sender, reason in (("stranger", "not in the terms"), (silent, "takes no part")):
            if sender != silent or cast.server.step is not Step.ADVERTISE:
                rejected = cast.server.receive(sender, b"anything")
                assert rejected is not None
                assert reason in rejected.reason
        if cast.server.step is Step.REVEAL:
            break
        cast.play(without=[silent])
    cast.finish()
    rejected = cast.server.receive(VILLAIN, b"anything")
    assert rejected is not None
    assert "after the session ended" in rejected.reason


# --- A masked input that arrives after the survivors were announced.


def hold_back() -> tuple[Cast, bytes]:
    """Play up to the shares without the villain's input, and return it."""
    late = Cast(make_terms(5)).play_until(Step.MASK).replies()[VILLAIN]
    return Cast(make_terms(5)).play_until(Step.REVEAL, {Step.MASK: [VILLAIN]}), late


def test_late_input_is_rejected_and_does_not_touch_the_sum() -> None:
    cast, late = hold_back()
    assert cast.server.receive(VILLAIN, late) is not None
    result = cast.finish()
    assert VILLAIN not in result.clients
    assert (result.total == ring_sum(cast.terms, cast.inputs, result.clients)).all()


def test_late_input_falsifies_the_sum_if_the_step_stays_open() -> None:
    cast, late = hold_back()
    cast.server.step = Step.MASK  # a server that never closed the step it announced
    assert cast.server.receive(VILLAIN, late) is None
    cast.server.step = Step.REVEAL
    result = cast.finish()
    assert (result.total != ring_sum(cast.terms, cast.inputs, result.clients)).any()


# --- A client that reveals garbage.


def garbage(cast: Cast, revelation: bytes, kind: str, liar: int = 0) -> bytes:
    """Change a symbol of each share, another one for each liar, so that errors do not cancel in a secret."""
    opened = messages.decode(revelation, messages.Revelation, "test", cast.terms.digest)
    entries = getattr(opened, kind)
    assert entries
    mauled = tuple(msgspec.structs.replace(entry, share=flip(entry.share, 16 * liar)) for entry in entries)
    return messages.encode(msgspec.structs.replace(opened, **{kind: mauled}))


def reveal_garbage(kind: str) -> Cast:
    """Play a session until shares are revealed; one client dropped out, and the villain's shares are wrong."""
    cast = Cast(make_terms(7)).play_until(Step.REVEAL, {Step.MASK: ["client-06"]})
    replies = cast.replies()
    replies[VILLAIN] = garbage(cast, replies[VILLAIN], kind)
    cast.deliver(replies)
    return cast


@pytest.mark.parametrize("kind", ["self_shares", "key_shares"])
def test_the_sender_of_wrong_shares_is_named_and_the_round_succeeds(kind: str) -> None:
    cast = reveal_garbage(kind)
    result = cast.unmask()
    (rejected,) = cast.server.rejected
    assert rejected.sender == VILLAIN
    assert rejected.step is Step.REVEAL
    assert "wrong" in rejected.reason
    assert VILLAIN not in cast.server.revealers
    assert VILLAIN in result.clients  # its input was right
    assert (result.total == ring_sum(cast.terms, cast.inputs, names(7)[:6])).all()


@given(liars=st.sets(st.integers(0, 5), min_size=1), kind=st.sampled_from(["self_shares", "key_shares"]))
@settings(max_examples=20)
def test_wrong_shares_are_corrected_until_too_few_right_ones_are_left(liars: set[int], kind: str) -> None:
    """Four of six revealed shares reconstruct a secret. Either all liars are named or none, and nobody else is."""
    cast = Cast(make_terms(7)).play_until(Step.REVEAL, {Step.MASK: ["client-06"]})
    villains = {cast.terms.clients[liar] for liar in liars}
    cast.deliver(
        {
            name: garbage(cast, reply, kind, number) if name in villains else reply
            for number, (name, reply) in enumerate(cast.replies().items())
        }
    )
    if len(liars) > 2:
        with pytest.raises(ThresholdError, match="too few shares"):
            cast.unmask()
    else:
        result = cast.unmask()
        assert (result.total == ring_sum(cast.terms, cast.inputs, names(7)[:6])).all()
    used = liars & {0, 1, 2, 3}  # of the holders that revealed, the first four are taken
    named = {rejected.sender for rejected in cast.server.rejected}
    assert named == (villains if used else set())
    assert cast.server.revealers == tuple(name for name in names(7)[:6] if name not in named)


@pytest.mark.parametrize("kind", ["self_shares", "key_shares"])
def test_wrong_shares_falsify_the_sum_without_fingerprints(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for mark in ("self_share_mark", "key_share_mark", "self_seed_mark"):
        monkeypatch.setattr(rules, mark, lambda *_: bytes(16))
    cast = reveal_garbage(kind)
    if kind == "key_shares":  # a wrong key is still recognised: its public half was advertised
        with pytest.raises(PeerProtocolError, match="another key") as caught:
            cast.unmask()
        assert caught.value.peer == "client-06"  # a client that did nothing wrong
    else:
        result = cast.unmask()
        assert (result.total != ring_sum(cast.terms, cast.inputs, result.clients)).any()


def test_shares_of_the_wrong_kind_or_of_unknown_clients_are_rejected() -> None:
    cast = Cast(make_terms(5)).play_until(Step.REVEAL)
    reply = cast.replies([VILLAIN])[VILLAIN]
    opened = messages.decode(reply, messages.Revelation, "test", cast.terms.digest)
    key_share = messages.KeyShareOf(0, bytes(messages.KEY_SHARE_BYTES))
    stranger = messages.SelfShareOf(60_000, bytes(messages.SELF_SHARE_BYTES))
    for bad in (
        msgspec.structs.replace(opened, key_shares=(key_share,)),
        msgspec.structs.replace(opened, self_shares=(*opened.self_shares, stranger)),
        msgspec.structs.replace(opened, self_shares=opened.self_shares[::-1]),
        msgspec.structs.replace(opened, self_shares=(opened.self_shares[0], *opened.self_shares)),
    ):
        assert cast.server.receive(VILLAIN, messages.encode(bad)) is not None
    assert cast.server.receive(VILLAIN, reply) is None


def test_repeated_shares_of_a_key_are_rejected() -> None:
    cast = Cast(make_terms(5)).play_until(Step.REVEAL, {Step.MASK: ["client-04"]})
    reply = cast.replies([VILLAIN])[VILLAIN]
    opened = messages.decode(reply, messages.Revelation, "test", cast.terms.digest)
    bad = messages.encode(msgspec.structs.replace(opened, key_shares=2 * opened.key_shares))
    rejected = cast.server.receive(VILLAIN, bad)
    assert rejected is not None
    assert "repeated" in rejected.reason
    assert cast.server.receive(VILLAIN, reply) is None


# --- Dealers whose shares are inconsistent.


@pytest.mark.parametrize("field", ["self_seed_mark", "masking_key"])
def test_a_dealer_that_lies_about_its_secrets_is_named(field: str) -> None:
    dropped = {Step.MASK: [VILLAIN]} if field == "masking_key" else {}
    cast = Cast(make_terms(5)).play_until(Step.SHARE)
    replies = cast.replies()
    if field == "self_seed_mark":
        dealt = messages.decode(replies[VILLAIN], messages.SharedKeys, "test", cast.terms.digest)
        replies[VILLAIN] = messages.encode(msgspec.structs.replace(dealt, self_seed_mark=bytes(16)))
    cast.deliver(replies)
    cast.inbox = cast.server.close()
    cast.play_until(Step.REVEAL, dropped)
    if field == "masking_key":
        index = cast.terms.index[VILLAIN]
        other = cast.server._advertisements[0].masking_key
        cast.server._advertisements[index] = msgspec.structs.replace(
            cast.server._advertisements[index], masking_key=other
        )
    with pytest.raises(PeerProtocolError) as caught:
        cast.finish()
    assert caught.value.peer == VILLAIN


def test_shares_for_the_wrong_holders_are_rejected() -> None:
    cast = Cast(make_terms(5)).play_until(Step.SHARE)
    reply = cast.replies()[VILLAIN]
    dealt = messages.decode(reply, messages.SharedKeys, "test", cast.terms.digest)
    for envelopes in (dealt.envelopes[1:], dealt.envelopes[::-1], (*dealt.envelopes, dealt.envelopes[-1])):
        bad = messages.encode(msgspec.structs.replace(dealt, envelopes=envelopes))
        rejected = cast.server.receive(VILLAIN, bad)
        assert rejected is not None
        assert "exactly its neighbours" in rejected.reason


@pytest.mark.parametrize("field", ["sealing_key", "masking_key"])
def test_low_order_keys_are_rejected_by_the_server(field: str) -> None:
    cast = Cast(make_terms(5))
    reply = cast.replies()[VILLAIN]
    advertised = messages.decode(reply, messages.Advertisement, "test", cast.terms.digest)
    bad = messages.encode(msgspec.structs.replace(advertised, **{field: bytes(32)}))
    rejected = cast.server.receive(VILLAIN, bad)
    assert rejected is not None
    assert "low order" in rejected.reason


# --- Signatures, against an active server.


def test_missing_and_foreign_signatures_are_rejected() -> None:
    cast = Cast(make_terms(5, active=True))
    replies = cast.replies()
    good = messages.decode(replies[VILLAIN], messages.Advertisement, "test", cast.terms.digest)
    other = messages.decode(replies["client-02"], messages.Advertisement, "test", cast.terms.digest)
    for signature in (None, other.signature):
        bad = messages.encode(msgspec.structs.replace(good, signature=signature))
        assert cast.server.receive(VILLAIN, bad) is not None
    cast.deliver(replies)
    cast.inbox = cast.server.close()
    cast.play_until(Step.CONFIRM)
    confirmations = cast.replies()
    stolen = messages.decode(confirmations["client-02"], messages.Confirmation, "test", cast.terms.digest)
    forged = messages.encode(msgspec.structs.replace(stolen, sender=cast.terms.index[VILLAIN]))
    assert cast.server.receive(VILLAIN, forged) is not None
    cast.deliver(confirmations)
    cast.inbox = cast.server.close()
    result = cast.finish()
    assert (result.total == ring_sum(cast.terms, cast.inputs, names(5))).all()


def test_without_a_quorum_of_confirmations_the_round_ends() -> None:
    cast = Cast(make_terms(5, active=True)).play_until(Step.CONFIRM)
    cast.deliver(cast.replies(names(5)[:2]))
    with pytest.raises(ThresholdError, match="confirmed"):
        cast.server.close()


# --- Statements and keys, against an active server.


@pytest.mark.parametrize("kind", ["missing", "forged", "of fewer masks"])
def test_an_input_with_a_bad_statement_is_rejected_and_counts_as_missing(kind: str) -> None:
    cast = Cast(make_terms(7, active=True)).play_until(Step.MASK)
    replies = cast.replies()
    good = messages.decode(replies[VILLAIN], messages.MaskedInput, "test", cast.terms.digest)
    fewer = rules.masks_context(cast.terms, cast.server.view().seed, cast.terms.index[VILLAIN], [0, 2, 3])
    statement = {
        "missing": None,
        "forged": flip(good.statement or b""),
        "of fewer masks": identity_for(VILLAIN).sign(fewer),
    }[kind]
    rejected = cast.server.receive(VILLAIN, messages.encode(msgspec.structs.replace(good, statement=statement)))
    assert rejected is not None
    assert rejected.sender == VILLAIN
    cast.deliver({name: reply for name, reply in replies.items() if name != VILLAIN})
    cast.inbox = cast.server.close()
    result = cast.finish()
    assert result.clients == tuple(name for name in names(7) if name != VILLAIN)
    assert (result.total == ring_sum(cast.terms, cast.inputs, result.clients)).all()


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("circles", [None, (0, 0, 1, 1, 2, 2, 3)])
def test_a_badly_packed_vector_is_rejected_and_counts_as_missing(circles: tuple[int, ...] | None, active: bool) -> None:
    cast = Cast(make_terms(7, active=active, colluders=1 if active else None, circles=circles)).play_until(Step.MASK)
    replies = cast.replies()
    villain = names(7)[-1]
    good = messages.decode(replies[villain], messages.MaskedInput, "test", cast.terms.digest)
    padded = bytes(good.payload[:-1]) + b"\xff"
    for payload, reason in ((bytes(good.payload[:-1]), "bytes"), (padded, "padding")):
        bad = messages.encode(msgspec.structs.replace(good, payload=memoryview(payload)))
        rejected = cast.server.receive(villain, bad)
        assert rejected is not None
        assert reason in rejected.reason
    view = cast.server.view()
    assert (view.sums, view.survivors, view.statements) == ({}, frozenset(), {})
    cast.deliver({name: reply for name, reply in replies.items() if name != villain})
    cast.inbox = cast.server.close()
    result = cast.finish()
    assert result.clients == names(7)[:-1]
    assert (result.total == ring_sum(cast.terms, cast.inputs, result.clients)).all()


@pytest.mark.parametrize("circles", [None, (0, 0, 0, 1, 1, 1, 2)])
def test_leaving_after_masking_does_not_end_the_round(circles: tuple[int, ...] | None) -> None:
    cast = Cast(make_terms(7, active=True, circles=circles)).play_until(Step.CONFIRM)
    cast.play(without=[VILLAIN, "client-03"])
    result = cast.finish()
    assert result.clients == names(7)
    assert (result.total == ring_sum(cast.terms, cast.inputs, names(7))).all()


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("field", ["sealing_key", "masking_key"])
def test_a_client_that_advertises_a_key_of_another_client_is_rejected(field: str, active: bool) -> None:
    cast = Cast(make_terms(5, active=active))
    replies = cast.replies()
    theirs, own = (
        messages.decode(replies[name], messages.Advertisement, "test", cast.terms.digest)
        for name in ("client-00", VILLAIN)
    )
    copy = msgspec.structs.replace(own, **{field: theirs.masking_key}, signature=None)
    if active:
        context = rules.advertisement_context(cast.terms, own.sender, copy.sealing_key, copy.masking_key)
        copy = msgspec.structs.replace(copy, signature=identity_for(VILLAIN).sign(context))
    cast.deliver({"client-00": replies.pop("client-00")})
    rejected = cast.server.receive(VILLAIN, messages.encode(copy))
    assert rejected is not None
    assert "twice" in rejected.reason
    del replies[VILLAIN]
    cast.deliver(replies)
    cast.inbox = cast.server.close()
    assert cast.finish().clients == tuple(name for name in names(5) if name != VILLAIN)
