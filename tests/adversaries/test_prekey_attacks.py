"""Attacks on the two-trip protocol: each succeeds with its rule off, and fails with it on."""

import numpy as np
import pytest
from tests.support.cast import entropy_for, identity_for, make_terms
from tests.support.prekey_cast import POPULATION, PrekeyCast

from coterie.arithmetic.ring import RingVector
from coterie.crypto import shamir
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.context import bind
from coterie.crypto.sealing import unseal
from coterie.errors import PeerProtocolError
from coterie.secagg import messages
from coterie.secagg.masking import adds, mask_vector
from coterie.secagg.prekeys import Prekey, PrekeyBook, accept, client, issue, rules
from coterie.secagg.prekeys.messages import SHARE_BYTES, MaskedContribution

VICTIM = 2


def read_input(book: PrekeyBook, secrets: dict[int, bytes], reply: bytes) -> RingVector:
    """Remove every mask of a contribution with the secrets of all other prekeys in its book."""
    made = messages.decode(reply, MaskedContribution, "victim", book.digest)
    terms, shares = book.terms, {}
    added: list[bytes] = []
    subtracted: list[bytes] = []
    for holder, secret in secrets.items():
        pair = client._agree(book, PrivateKey(secret), holder, VICTIM)
        key = client._envelope_key(book.digest, pair.opening, VICTIM, holder, made.seed_mark)
        context = rules.envelope_context(book.digest, VICTIM, holder, made.seed_mark)
        shares[holder] = unseal(key, made.envelopes[holder - (holder > VICTIM)], context)[:SHARE_BYTES]
        (subtracted if adds(VICTIM, holder) else added).append(pair.seed)
    holders = sorted(shares)[: book.threshold]
    subtracted.append(shamir.combine([holder + 1 for holder in holders], [shares[holder] for holder in holders]))
    vector = terms.ring.unpack(made.payload, terms.length)
    mask_vector(vector, added, subtracted)
    terms.ring.reduce(vector)
    return vector


@pytest.mark.parametrize("checked", [False, True])
def test_a_server_that_puts_its_own_keys_into_the_book_reads_the_input(
    checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast = PrekeyCast(make_terms(6, active=True, colluders=0))
    name = cast.terms.clients[VICTIM]
    entropy, secrets = entropy_for("the server"), {}
    prekeys: list[Prekey] = list(cast.book.prekeys)
    for number, other in enumerate(cast.terms.clients):
        if number != VICTIM:  # it can sign, but not with the others' identities
            forger = identity_for("the server")
            secrets[number], prekeys[number] = issue(POPULATION, other, 0, entropy, forger, f"forged/{number}")
    book = PrekeyBook(cast.terms, tuple(prekeys))
    if checked:
        with pytest.raises(PeerProtocolError, match="did not sign"):
            cast.contribute(name, book)
        return
    monkeypatch.setattr(rules, "check_prekeys", lambda *_: None)
    assert (read_input(book, secrets, cast.contribute(name, book)) == cast.inputs[name]).all()


@pytest.mark.parametrize("bound", [False, True])
def test_a_restored_disk_never_masks_two_inputs_with_the_same_mask(
    bound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random numbers may repeat after a restore, but the masks depend on the input too."""
    cast = PrekeyCast(make_terms(6, active=True, colluders=0))
    name, ring = cast.terms.clients[VICTIM], cast.terms.ring
    if not bound:
        monkeypatch.setattr(client, "digest", lambda _: bytes(32))
    inputs = [np.full(cast.terms.length, value, ring.dtype) for value in (3, 10)]
    payloads = []
    for vector in inputs:
        invited = accept(cast.book, name, cast.secrets[name], POPULATION)
        _, reply = invited.contribute(vector, entropy_for(name), cast.identities[name])
        made = messages.decode(reply, MaskedContribution, name, cast.book.digest)
        payloads.append(ring.unpack(made.payload, cast.terms.length))
    difference = payloads[1] - payloads[0]
    ring.reduce(difference)
    assert bool((difference == 7).all()) is not bound


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("distinct", [False, True])
def test_a_colluder_that_copies_a_prekey_makes_masks_cancel(
    numbered: bool, distinct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client adds its mask with one peer and subtracts that with another. With one key both are the same mask.

    Binding the clients' numbers is one defence, and refusing a book with a repeated key is another.
    """
    if not numbered:
        monkeypatch.setattr(rules, "pair_context", lambda book, *_: bind("prekey-pair", book))
    if not distinct:
        monkeypatch.setattr(rules, "check_distinct", lambda *_: None)
    cast = PrekeyCast(make_terms(3, active=True, colluders=1))
    names, victim = cast.terms.clients, cast.terms.clients[1]
    first = cast.book.prekeys[0]
    context = rules.prekey_context(POPULATION, names[2], first.key, first.issued)
    copied = Prekey(first.key, first.issued, identity_for(names[2]).sign(context))
    book = PrekeyBook(cast.terms, (*cast.book.prekeys[:2], copied))
    if distinct:
        with pytest.raises(PeerProtocolError, match="a prekey stands twice"):
            cast.contribute(victim, book)
        return
    invited = accept(book, victim, cast.secrets[victim], POPULATION)
    left: list[bytes] = []

    def record(_vector: object, added: list[bytes], subtracted: list[bytes], _parallel: object = None) -> None:
        left.extend(set(added) ^ set(subtracted))

    monkeypatch.setattr(client, "mask_vector", record)
    invited.contribute(cast.inputs[victim], entropy_for(victim), cast.identities[victim])
    assert len(left) == (3 if numbered else 1)  # without numbers, only the client's own mask hides its input


@pytest.mark.parametrize("limited", [False, True])
def test_old_prekeys_whose_secrets_leaked_open_the_input(limited: bool) -> None:
    """Their owners signed them, and their secrets were found on old disks: only the limit on age excludes them."""
    cast = PrekeyCast(make_terms(6, active=True, colluders=0))
    name = cast.terms.clients[VICTIM]
    secrets = {number: cast.secrets[other] for number, other in enumerate(cast.terms.clients) if number != VICTIM}
    oldest = 1 + max(prekey.issued for prekey in cast.book.prekeys) if limited else 0
    if limited:
        with pytest.raises(PeerProtocolError, match="too old"):
            accept(cast.book, name, cast.secrets[name], POPULATION, oldest=oldest)
        return
    invited = accept(cast.book, name, cast.secrets[name], POPULATION, oldest=oldest)
    _, reply = invited.contribute(cast.inputs[name], entropy_for(name), cast.identities[name])
    assert (read_input(cast.book, secrets, reply) == cast.inputs[name]).all()
