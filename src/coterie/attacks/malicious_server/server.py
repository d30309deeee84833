"""A malicious server and its colluding clients, against real honest clients.

The server may send any message to any client, and records all replies. It computes only with secrets that it really
reconstructed, from shares that were revealed to it or sealed for its own keys.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from coterie.arithmetic.ring import RingVector
from coterie.attacks.malicious_server.witness import Witness
from coterie.crypto import shamir
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.entropy import DeterministicEntropy, Entropy
from coterie.crypto.signing import SIGNATURE_BYTES, Identity
from coterie.errors import CoterieError, LocalProtocolError, VerificationError
from coterie.secagg import AnyState, Shared, Terms, messages, rules
from coterie.secagg import client as protocol
from coterie.secagg.envelopes import open_shares, sealing_keys
from coterie.secagg.masking import adds, mask_vector, pair_seed
from coterie.secagg.messages import SEALED_BYTES, Advertisement, Confirmation, Envelope, Fingerprints

_NO_MARKS = Fingerprints(bytes(16), bytes(16))

M = TypeVar("M", bound=messages.Message)


@lru_cache(maxsize=64)
def simulated_identity(name: str) -> Identity:
    """Return the signing key of a simulated client: the same in every session, and not a secret."""
    return Identity.generate(DeterministicEntropy(b"identity of " + name.encode()))


@dataclass(eq=False)
class Person:
    """An honest client in a session, and what the server knows about it; a client that joins twice is two objects."""

    client: int
    state: AnyState
    advertisement: Advertisement
    entropy: Entropy
    shared: Shared | None = None
    """Its secrets. The server never uses them; they are only for checking its results."""
    book: tuple[Advertisement, ...] = ()
    envelopes: Mapping[int, Envelope] = field(default_factory=dict)
    """The shares that it dealt, by holder."""
    own_marks: Fingerprints = _NO_MARKS
    carried: tuple[int, ...] | None = None
    """The clients whose masks are on its input; None before the input is sent."""
    masked: RingVector | None = None
    statement: bytes = b""
    announced: frozenset[int] = frozenset()
    """The last survivor set that was announced to it, and that it accepted."""
    self_shares: dict[int, bytes] = field(default_factory=dict)
    key_shares: dict[int, bytes] = field(default_factory=dict)

    @property
    def seed(self) -> bytes:
        """The name of the key book that it accepted."""
        if self.shared is None:
            raise LocalProtocolError("this client has accepted no key book")
        return self.shared.seed


class LyingServer:
    """One session with a malicious server."""

    def __init__(
        self,
        terms: Terms,
        colluders: Collection[int] = (),
        inputs: Mapping[int, RingVector] | None = None,
    ) -> None:
        """Begin a session; a client without a given input masks zeros."""
        self.terms = terms
        self.colluders = frozenset(colluders)
        self.honest = [number for number in range(len(terms.clients)) if number not in self.colluders]
        self.persons: list[Person] = []
        self.answered: list[tuple[Person, frozenset[int]]] = []
        """The clients that revealed shares, and for which survivors."""
        self.revealed: set[bytes] = set()
        """The shares that were revealed."""
        self.witness = Witness()
        self.refusals: list[CoterieError] = []
        self._inputs = inputs or {}
        self.keys: dict[bytes, PrivateKey] = {}
        """The keys of the server and its colluders, by their public halves."""
        self._entropy = DeterministicEntropy(b"server" + terms.session)

    # Messages that the server and its colluders create.

    def identity(self, number: int) -> Identity | None:
        """Return a client's signing key; None if the server is trusted."""
        return simulated_identity(self.terms.clients[number]) if self.terms.active else None

    def forge(self, number: int, masking_key: bytes | None = None) -> Advertisement:
        """Return keys of the server's own in the name of a client, with an invalid signature."""
        keys = [PrivateKey.generate(self._entropy, f"{len(self.keys)}/{purpose}") for purpose in ("sealing", "masking")]
        self.keys |= {key.public: key for key in keys}
        sealing, masking = (key.public for key in keys)
        signature = bytes(SIGNATURE_BYTES) if self.terms.active else None
        return Advertisement(self.terms.digest, number, sealing, masking_key or masking, signature)

    def collude(self, number: int, masking_key: bytes | None = None) -> Advertisement:
        """Return a colluder's advertisement with its signature; the masking key may be a copied one."""
        forged = self.forge(number, masking_key)
        keys = forged.sealing_key, forged.masking_key
        signature = self._sign(number, rules.advertisement_context(self.terms, number, *keys))
        return Advertisement(self.terms.digest, number, *keys, signature)

    def envelope(self, sender: int, receiver: Person, dealer: Person | None) -> Envelope | None:
        """Return what a dealer sealed for this client; envelopes of the server's own are empty."""
        if dealer is None:
            return Envelope(sender, bytes(SEALED_BYTES), _NO_MARKS)
        dealt = dealer.envelopes.get(receiver.client)
        return None if dealt is None else Envelope(sender, dealt.sealed, dealt.marks)

    def statement(self, number: int, seed: bytes, sharers: Collection[int]) -> bytes:
        """Return the statement of a colluder, with any content."""
        carried = set(sharers).intersection(self.terms.graph(seed).neighbours(number))
        return self._sign(number, rules.masks_context(self.terms, seed, number, carried)) or b""

    def confirmation(self, number: int, seed: bytes, survivors: Collection[int]) -> Confirmation:
        """Return the confirmation of a colluder, with any content."""
        signature = self._sign(number, rules.survivors_context(self.terms, seed, survivors))
        return Confirmation(self.terms.digest, number, signature or b"")

    def _sign(self, number: int, context: bytes) -> bytes | None:
        identity = self.identity(number)
        return identity.sign(context) if identity else None

    # Answers and refusals of honest clients.

    def enter(self, number: int) -> Person:
        """Let an honest client join."""
        entropy = self._source(f"person {len(self.persons)} in ".encode() + self.terms.session)
        state, reply = self._join(number, entropy)
        self.persons.append(Person(number, state, self._read(reply, Advertisement), entropy))
        return self.persons[-1]

    def share(self, person: Person, book: Iterable[Advertisement]) -> bool:
        """Show a key book; the client deals its shares, and the server opens those sealed for its own keys."""
        entries = sorted(book, key=lambda entry: entry.sender)
        if not self.terms.active:  # a client is then shown its neighbours' keys only
            neighbours = self.terms.graph(rules.graph_seed(self.terms, ())).neighbours(person.client)
            entries = [entry for entry in entries if entry.sender in neighbours]
        answer = self._ask(person, messages.KeyBook(self.terms.digest, tuple(entries)))
        if answer is None or not isinstance(person.state, Shared):
            return False
        shown, reply = answer
        dealt = self._read(reply, messages.SharedKeys)
        person.book, person.shared, person.own_marks = shown.advertisements, person.state, dealt.own_marks
        person.envelopes = {envelope.peer: envelope for envelope in dealt.envelopes}
        for entry in person.book:
            key, envelope = self.keys.get(entry.sealing_key), person.envelopes.get(entry.sender)
            if key is not None and envelope is not None:
                binding = self.terms.digest, person.seed
                _, opening = sealing_keys(key, entry.sender, person.advertisement, *binding)
                with suppress(VerificationError):  # the number is in the book twice: sealed for the other key
                    shares = open_shares(opening, envelope, *binding, person.client, entry.sender)
                    person.self_shares[entry.sender], person.key_shares[entry.sender] = shares
        return True

    def mask(self, person: Person, envelopes: Iterable[Envelope | None]) -> bool:
        """Deliver envelopes; the client masks its input."""
        given = tuple(sorted((entry for entry in envelopes if entry), key=lambda entry: entry.peer))
        answer = self._ask(person, messages.Deliveries(self.terms.digest, given))
        if answer is None:
            return False
        delivered, reply = answer
        sent = self._read(reply, messages.MaskedInput)
        person.masked = self.terms.ring.unpack(sent.payload, self.terms.length)
        person.carried = tuple(entry.peer for entry in delivered.envelopes)
        person.statement = sent.statement or b""
        return True

    def confirm(
        self, person: Person, survivors: Collection[int], sharers: Collection[int], statements: Mapping[int, bytes]
    ) -> Confirmation | None:
        """Announce survivors; the client signs them (active mode only)."""
        size = len(self.terms.clients)
        announcement = messages.Announcement(
            self.terms.digest,
            messages.encode_members(survivors, size),
            messages.encode_members(sharers, size),
            tuple(messages.Statement(number, signature) for number, signature in sorted(statements.items())),
        )
        answer = self._ask(person, announcement)
        if answer is None:
            return None
        self._note_announced(person, answer[0])
        return self._read(answer[1], Confirmation)

    def reveal(self, person: Person, survivors: Collection[int], confirmations: Iterable[Confirmation] = ()) -> bool:
        """Show the confirmations, or announce survivors if there are none; the client reveals its shares."""
        if self.terms.active:
            testimony = tuple(sorted(confirmations, key=lambda entry: entry.sender))
            confirmed = self._ask(person, messages.Testimony(self.terms.digest, testimony))
            reply = confirmed and confirmed[1]
        else:
            members = messages.encode_members(survivors, len(self.terms.clients))
            announced = self._ask(person, messages.Announcement(self.terms.digest, members))
            if announced is not None:
                self._note_announced(person, announced[0])
            reply = announced and announced[1]
        if reply is None:
            return False
        self.answered.append((person, person.announced))
        revelation = self._read(reply, messages.Revelation)
        self.revealed.update(entry.share for entry in revelation.self_shares)
        self.revealed.update(entry.share for entry in revelation.key_shares)
        self._file(person.client, revelation)
        return True

    def _note_announced(self, person: Person, announcement: messages.Announcement) -> None:
        survivors = messages.decode_members(announcement.survivors, len(self.terms.clients), messages.SERVER)
        person.announced = frozenset(survivors)

    def _file(self, holder: int, revelation: messages.Revelation) -> None:
        """Sort shares by dealer; a client that joined twice has two dealings."""
        terms = self.terms.digest
        for dealer in self.persons:
            sealed = dealer.envelopes.get(holder)
            marks = dealer.own_marks if holder == dealer.client else sealed.marks if sealed else None
            if marks is None:
                continue
            for own in revelation.self_shares:
                same = own.dealer == dealer.client
                if same and marks.self_share == rules.self_share_mark(terms, own.dealer, holder, own.share):
                    dealer.self_shares[holder] = own.share
            for key in revelation.key_shares:
                same = key.dealer == dealer.client
                if same and marks.key_share == rules.key_share_mark(terms, key.dealer, holder, key.share):
                    dealer.key_shares[holder] = key.share

    def _ask(self, person: Person, message: M) -> tuple[M, bytes] | None:
        """Return the message that was finally sent, and the answer; None if it was refused."""
        try:
            with self.witness.watch(person):
                person.state, reply = self._answer(person, messages.encode(message))
        except CoterieError as error:
            self.refusals.append(error)
            return None
        return message, reply

    def _source(self, seed: bytes) -> Entropy:
        return DeterministicEntropy(seed)

    def _join(self, number: int, entropy: Entropy) -> tuple[AnyState, bytes]:
        return protocol.join(self.terms, self.terms.clients[number], entropy, self.identity(number))

    def _answer(self, person: Person, data: bytes) -> tuple[AnyState, bytes]:
        vector = self._inputs.get(person.client)
        return protocol.answer(
            person.state,
            data,
            entropy=person.entropy,
            vector=self.terms.ring.zeros(self.terms.length) if vector is None else vector,
            identity=self.identity(person.client),
        )

    def _read(self, reply: bytes, kind: type[M]) -> M:
        return messages.decode(reply, kind, "client", self.terms.digest)

    # Computations of the server.

    def masking_keys(self) -> dict[bytes, PrivateKey]:
        """Return every masking key that the server holds, by its public half: its own, and reconstructed ones."""
        recovered = [self._combine(person, person.key_shares) for person in self.persons]
        keys = [PrivateKey(secret) for secret in recovered if secret is not None]
        return self.keys | {key.public: key for key in keys}

    def self_seed(self, person: Person) -> bytes | None:
        """Return a client's self seed, if the server has enough shares of it."""
        return self._combine(person, person.self_shares)

    def pair_seed(self, keys: Mapping[bytes, PrivateKey], person: Person, entry: Advertisement) -> bytes | None:
        """Return the seed of the mask between a client and a peer, if the server has the key of either."""
        binding = self.terms.digest, person.seed
        if (key := keys.get(entry.masking_key)) is not None:
            return pair_seed(key, entry.sender, person.advertisement, *binding)
        if (key := keys.get(person.advertisement.masking_key)) is not None:
            return pair_seed(key, person.client, entry, *binding)
        return None

    def unmask(self, person: Person) -> RingVector | None:
        """Return a masked input without every mask whose seed the server can compute; None if it was never sent."""
        if person.masked is None or person.carried is None:
            return None
        keys, self_seed = self.masking_keys(), self.self_seed(person)
        added: list[bytes] = []
        subtracted = [] if self_seed is None else [self_seed]
        for entry in person.book:
            seed = self.pair_seed(keys, person, entry) if entry.sender in person.carried else None
            if seed is not None:
                (subtracted if adds(person.client, entry.sender) else added).append(seed)
        vector = person.masked.copy()
        mask_vector(vector, added, subtracted)
        self.terms.ring.reduce(vector)
        return vector

    def _combine(self, dealer: Person, shares: Mapping[int, bytes]) -> bytes | None:
        if dealer.shared is None:
            return None
        threshold = self.terms.threshold_for(self.terms.graph(dealer.seed).degree(dealer.client) + 1)
        holders = sorted(shares)[:threshold]
        if len(holders) < threshold:
            return None
        return shamir.combine([holder + 1 for holder in holders], [shares[holder] for holder in holders])


def show_book(server: LyingServer, persons: Iterable[Person], book: Iterable[Advertisement] | None = None) -> None:
    """Show the same key book to all: by default with the keys of all joined clients and of the colluders."""
    persons = list(persons)
    entries = list(book or [*(person.advertisement for person in persons), *map(server.collude, server.colluders)])
    for person in persons:
        server.share(person, entries)


def deliver(
    server: LyingServer, persons: Iterable[Person], withheld: Mapping[int, Collection[int]] | None = None
) -> None:
    """Deliver to all clients the envelopes of their neighbours, except those that are withheld."""
    dealers = {person.client: person for person in reversed(server.persons) if person.shared}
    for person in persons:
        if person.shared is None:
            continue
        known = {entry.sender for entry in person.book} - set((withheld or {}).get(person.client, ()))
        peers = known.intersection(server.terms.graph(person.seed).neighbours(person.client))
        server.mask(person, [server.envelope(peer, person, dealers.get(peer)) for peer in sorted(peers)])


def announce(
    server: LyingServer, persons: Iterable[Person], survivors: Collection[int], sharers: Collection[int]
) -> None:
    """Announce survivors with all statements, then show the signatures on that set to the clients that signed."""
    persons = [person for person in persons if person.carried and person.client in survivors]
    if not persons:
        return
    if not server.terms.active:
        for person in persons:
            server.reveal(person, survivors)
        return
    seed = persons[0].seed
    statements = {number: server.statement(number, seed, sharers) for number in server.colluders}
    masked = [person for person in server.persons if person.carried and person.seed == seed]
    statements |= {person.client: person.statement for person in masked}
    signed = {person: server.confirm(person, survivors, sharers, statements) for person in persons}
    for person, own in signed.items():
        if own is not None:
            same = [
                entry for other, entry in signed.items() if entry is not None and other.announced == person.announced
            ]
            colluding = [
                server.confirmation(number, seed, person.announced) for number in server.colluders & person.announced
            ]
            server.reveal(person, person.announced, [*same, *colluding])
