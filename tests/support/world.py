"""A server that lies, with the clients that collude with it, against real honest clients.

The server shows every client what it likes and writes down all that comes back. What it can do with it is decided by
linear algebra, over secrets that it really put together: each masked input is one equation, input plus signed masks; a
mask whose seed the server can compute is known, every other one is an unknown. What cancels all unknowns, it learns.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.cast import identity_for

from coterie.crypto import shamir, signing
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.entropy import DeterministicEntropy
from coterie.crypto.signing import Identity
from coterie.errors import CoterieError, VerificationError
from coterie.secagg import AnyState, Shared, Terms, messages, rules
from coterie.secagg import client as protocol
from coterie.secagg.envelopes import open_shares, sealing_keys
from coterie.secagg.masking import adds, pair_seed
from coterie.secagg.messages import SEALED_BYTES, Advertisement, Confirmation, Envelope, Fingerprints

PRIME = (1 << 31) - 1
Matrix = NDArray[np.int64]


@dataclass(eq=False)
class Person:
    """An honest client in a session; one that joins twice is two persons with one input."""

    client: int
    state: AnyState
    advertisement: Advertisement
    entropy: DeterministicEntropy
    book: tuple[Advertisement, ...] = ()
    shared: Shared | None = None
    dealt: messages.SharedKeys | None = None
    carried: tuple[int, ...] | None = None
    statement: bytes = b""
    self_shares: dict[int, bytes] = field(default_factory=dict)
    key_shares: dict[int, bytes] = field(default_factory=dict)

    @property
    def seed(self) -> bytes:
        assert self.shared is not None
        return self.shared.seed


class World:
    """One session with a lying server."""

    def __init__(self, terms: Terms, colluders: Collection[int] = ()) -> None:
        self.terms = terms
        self.colluders = frozenset(colluders)
        self.honest = [number for number in range(len(terms.clients)) if number not in self.colluders]
        self.persons: list[Person] = []
        self.answered: set[tuple[bytes, frozenset[int]]] = set()
        entropy = DeterministicEntropy(b"colluders")
        self.sealing = {number: PrivateKey.generate(entropy, f"sealing/{number}") for number in self.colluders}
        self.masking = {number: PrivateKey.generate(entropy, f"masking/{number}") for number in self.colluders}

    # What the server and its colluders do.

    def identity(self, number: int) -> Identity:
        return _identity(self.terms.clients[number], self.terms.identities[number])

    def collude(self, number: int, masking_key: bytes | None = None) -> Advertisement:
        """A colluder's advertisement, with a key of its own or one it copied."""
        keys = self.sealing[number].public, masking_key or self.masking[number].public
        signature = self.identity(number).sign(rules.advertisement_context(self.terms, number, *keys))
        return Advertisement(self.terms.digest, number, *keys, signature)

    def envelope(self, sender: int, receiver: Person, dealer: Person | None) -> Envelope | None:
        """The envelope that a dealer sealed for this client; a colluder's is empty, for it needs none."""
        if dealer is None:
            return Envelope(sender, bytes(SEALED_BYTES), Fingerprints(bytes(16), bytes(16)))
        for envelope in dealer.dealt.envelopes if dealer.dealt else ():
            if envelope.peer == receiver.client:
                return Envelope(sender, envelope.sealed, envelope.marks)
        return None

    def statement(self, number: int, seed: bytes, sharers: Collection[int]) -> bytes:
        """What a colluder states: whatever is asked for."""
        carried = set(sharers).intersection(self.terms.graph(seed).neighbours(number))
        return self.identity(number).sign(rules.masks_context(self.terms, seed, number, carried))

    def confirmation(self, number: int, seed: bytes, survivors: Collection[int]) -> Confirmation:
        """What a colluder confirms: whatever is asked for."""
        signature = self.identity(number).sign(rules.survivors_context(self.terms, seed, survivors))
        return Confirmation(self.terms.digest, number, signature)

    # What honest clients answer, or refuse.

    def enter(self, number: int) -> Person:
        entropy = DeterministicEntropy(b"person" + bytes([number, len(self.persons)]))
        state, reply = protocol.join(self.terms, self.terms.clients[number], entropy, self.identity(number))
        advertisement = messages.decode(reply, Advertisement, "test", self.terms.digest)
        self.persons.append(Person(number, state, advertisement, entropy))
        return self.persons[-1]

    def share(self, person: Person, book: Iterable[Advertisement]) -> bool:
        """Show a key book; the client deals its shares, of which colluders read theirs."""
        book = tuple(sorted(book, key=lambda entry: entry.sender))
        reply = self._ask(person, messages.KeyBook(self.terms.digest, book))
        if reply is None:
            return False
        assert isinstance(person.state, Shared)
        person.book, person.shared = book, person.state
        person.dealt = messages.decode(reply, messages.SharedKeys, "test", self.terms.digest)
        for envelope in person.dealt.envelopes:
            if envelope.peer in self.colluders:
                key = self.sealing[envelope.peer]
                _, opening = sealing_keys(key, envelope.peer, person.advertisement, self.terms.digest, person.seed)
                shares = open_shares(opening, envelope, self.terms.digest, person.seed, person.client, envelope.peer)
                person.self_shares[envelope.peer], person.key_shares[envelope.peer] = shares
        return True

    def mask(self, person: Person, envelopes: Iterable[Envelope | None]) -> bool:
        """Deliver envelopes; the client masks its input."""
        delivered = tuple(sorted((entry for entry in envelopes if entry), key=lambda entry: entry.peer))
        reply = self._ask(person, messages.Deliveries(self.terms.digest, delivered))
        if reply is None:
            return False
        masked = messages.decode(reply, messages.MaskedInput, "test", self.terms.digest)
        person.carried, person.statement = tuple(entry.peer for entry in delivered), masked.statement or b""
        return True

    def confirm(
        self, person: Person, survivors: Collection[int], sharers: Collection[int], statements: Mapping[int, bytes]
    ) -> Confirmation | None:
        """Announce survivors; the client signs them."""
        size = len(self.terms.clients)
        reply = self._ask(
            person,
            messages.Announcement(
                self.terms.digest,
                messages.encode_members(survivors, size),
                messages.encode_members(sharers, size),
                tuple(messages.Statement(number, signature) for number, signature in sorted(statements.items())),
            ),
        )
        return None if reply is None else messages.decode(reply, Confirmation, "test", self.terms.digest)

    def reveal(self, person: Person, survivors: Collection[int], confirmations: Iterable[Confirmation]) -> bool:
        """Show who confirmed; the client reveals its shares, which are those of one dealing or another."""
        testimony = tuple(sorted(confirmations, key=lambda entry: entry.sender))
        reply = self._ask(person, messages.Testimony(self.terms.digest, testimony))
        if reply is None:
            return False
        self.answered.add((person.seed, frozenset(survivors)))
        revelation = messages.decode(reply, messages.Revelation, "test", self.terms.digest)
        for dealer in self.persons:
            marks = self._marks(dealer, person.client)
            for self_share in revelation.self_shares:
                mark = rules.self_share_mark(self.terms.digest, self_share.dealer, person.client, self_share.share)
                if marks is not None and self_share.dealer == dealer.client and marks.self_share == mark:
                    dealer.self_shares[person.client] = self_share.share
            for key_share in revelation.key_shares:
                mark = rules.key_share_mark(self.terms.digest, key_share.dealer, person.client, key_share.share)
                if marks is not None and key_share.dealer == dealer.client and marks.key_share == mark:
                    dealer.key_shares[person.client] = key_share.share
        return True

    def _ask(self, person: Person, message: messages.Message) -> bytes | None:
        try:
            person.state, reply = protocol.answer(
                person.state,
                messages.encode(message),
                entropy=person.entropy,
                vector=self.terms.ring.zeros(self.terms.length),
                identity=self.identity(person.client),
            )
        except CoterieError:
            return None
        return reply

    def _marks(self, dealer: Person, holder: int) -> Fingerprints | None:
        if dealer.dealt is None:
            return None
        if dealer.client == holder:
            return dealer.dealt.own_marks
        return next((entry.marks for entry in dealer.dealt.envelopes if entry.peer == holder), None)

    # What follows from it.

    def leaks(self) -> bool:
        """Whether anything follows but sums over those aggregated, of at least two honest clients each."""
        learned, allowed = self.learned(), self.allowed()
        return _rank(np.vstack([allowed, learned])) > _rank(allowed)

    def learned(self) -> Matrix:
        """A basis of what the server can compute: one row of coefficients of the honest inputs for each."""
        known = self._known_seeds()
        seeds: dict[bytes, int] = {}
        masks: list[dict[bytes, int]] = []
        masking = [person for person in self.persons if person.carried is not None]
        for person in masking:
            assert person.shared is not None
            signed = {person.shared.self_seed: 1}
            for peer in person.shared.peers:
                if person.carried is not None and peer.client in person.carried:
                    sign = 1 if adds(person.client, peer.client) else -1
                    signed[peer.pair_seed] = signed.get(peer.pair_seed, 0) + sign
            masks.append({seed: sign for seed, sign in signed.items() if seed not in known})
            for seed in masks[-1]:
                seeds.setdefault(seed, len(seeds))
        equations = np.zeros((len(masking), len(seeds) + len(self.honest)), np.int64)
        for row, person in enumerate(masking):
            for seed, sign in masks[row].items():
                equations[row, seeds[seed]] = sign % PRIME
            equations[row, len(seeds) + self.honest.index(person.client)] = 1
        reduced = _echelon(equations)
        return reduced[~reduced[:, : len(seeds)].any(axis=1), len(seeds) :]

    def allowed(self) -> Matrix:
        """Sums over the honest parts of every set that clients helped to open; a part of one is not allowed."""
        rows = [np.zeros(len(self.honest), np.int64)]
        for seed, survivors in self.answered:
            graph = self.terms.graph(seed)
            left = set(self.terms.aggregated(survivors)) - self.colluders
            while left:
                part, frontier = set(), [left.pop()]
                while frontier:
                    node = frontier.pop()
                    part.add(node)
                    found = left.intersection(graph.neighbours(node))
                    left -= found
                    frontier.extend(found)
                if len(part) > 1:
                    rows.append(np.array([number in part for number in self.honest], np.int64))
        return np.array(rows)

    def _known_seeds(self) -> set[bytes]:
        known: set[bytes] = set()
        keys = list(self.masking.values())
        for person in self.persons:
            if self_seed := self._combine(person, person.self_shares):
                known.add(self_seed)
            if secret := self._combine(person, person.key_shares):
                keys.append(PrivateKey(secret))
        publics = {key.public: key for key in keys}
        for person in self.persons:
            for entry in person.book:
                if key := publics.get(entry.masking_key):
                    known.add(pair_seed(key, entry.sender, person.advertisement, self.terms.digest, person.seed))
                if (key := publics.get(person.advertisement.masking_key)) and entry.sender != person.client:
                    known.add(pair_seed(key, person.client, entry, self.terms.digest, person.seed))
        return known

    def _combine(self, dealer: Person, shares: Mapping[int, bytes]) -> bytes | None:
        if dealer.shared is None:
            return None
        threshold = self.terms.threshold_for(self.terms.graph(dealer.seed).degree(dealer.client) + 1)
        if len(shares) < threshold:
            return None
        holders = sorted(shares)[:threshold]
        return shamir.combine([holder + 1 for holder in holders], [shares[holder] for holder in holders])


@lru_cache(maxsize=64)
def _identity(name: str, public: bytes) -> Identity:
    identity = identity_for(name)
    assert identity.public == public
    return identity


def _echelon(matrix: Matrix) -> Matrix:
    """Row echelon form over a prime field; zero rows are left out."""
    rows, rank = matrix % PRIME, 0
    for column in range(rows.shape[1]):
        pivots = np.flatnonzero(rows[rank:, column])
        if len(pivots) == 0:
            continue
        rows[[rank, rank + pivots[0]]] = rows[[rank + pivots[0], rank]]
        rows[rank] = rows[rank] * pow(int(rows[rank, column]), -1, PRIME) % PRIME
        others = np.arange(len(rows)) != rank
        rows[others] = (rows[others] - rows[others, column, None] * rows[rank]) % PRIME
        rank += 1
    return rows[:rank]


def _rank(matrix: Matrix) -> int:
    return len(_echelon(matrix))


def idealise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace key agreement and signatures by hashing, for speed.

    They then protect nobody from one who computes the hashes, but this server does not: it uses keys that it holds and
    signatures that it was given, and what it learns from them is decided as before.
    """

    def make(self: PrivateKey, secret: bytes) -> None:
        self._key, self.public = secret, hashlib.sha256(b"public" + secret).digest()  # type: ignore[assignment]

    def agree(self: PrivateKey, peer_public: bytes, context: bytes, size: int = 32) -> bytes:
        pair = b"".join(sorted((self.public, peer_public)))
        return hashlib.shake_256(pair + context).digest(size)

    def sign(self: Identity, context: bytes) -> bytes:
        return hashlib.shake_256(self.public + context).digest(signing.SIGNATURE_BYTES)

    def verify(public: bytes, signature: bytes, context: bytes) -> None:
        if hashlib.shake_256(public + context).digest(signing.SIGNATURE_BYTES) != signature:
            raise VerificationError("a signature does not verify")

    monkeypatch.setattr(PrivateKey, "__init__", make)
    monkeypatch.setattr(PrivateKey, "agree", agree)
    monkeypatch.setattr(PrivateKey, "secret", lambda self: self._key)
    monkeypatch.setattr(Identity, "sign", sign)
    monkeypatch.setattr(signing, "verify", verify)
