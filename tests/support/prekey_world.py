"""A lying server against real clients of the two-trip protocol, and a judge that knows none of its rules.

A world is a small population with colluders, some books, and a random strategy. The strategy decides which clients get
which book, which prekeys are in it, which survivors and contributions each client is told, where each envelope goes,
and whether a client is asked to reveal at once or to sign first. Honest clients run the real code with real keys,
signatures and ciphertexts. The world enforces what a client's memory enforces in a deployment: a prekey is used once,
and a state answers once.

The judge collects every seed that the server can really compute: from the colluders' own keys, and from shares that
combine to a secret with the right mark. All other seeds are unknowns. A combination of honest inputs is derivable if no
unknown is left in it. The judge does not use the clients' rules, but the definition of what the server may learn: for
each book at most one sum, with all coefficients one, over whole circles, with at least two honest clients in it.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.support.cast import identity_for

from coterie.crypto import shamir
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.entropy import DeterministicEntropy, Entropy
from coterie.crypto.keystream import SEED_BYTES
from coterie.crypto.sealing import unseal
from coterie.crypto.signing import Identity
from coterie.errors import CoterieError, VerificationError
from coterie.secagg import Terms, ThreatMode, messages
from coterie.secagg.prekeys import Contributed, Prekey, PrekeyBook, Signed, client, issue, rules
from coterie.secagg.prekeys.messages import (
    SHARE_BYTES,
    MaskedContribution,
    OpenedShares,
    SealedShares,
    SurvivorList,
    SurvivorProof,
    SurvivorSignature,
)

PRIME = (1 << 61) - 1
POPULATION = bytes(32)
LENGTH, BITS = 1, 32

Row = dict[Any, int]


@dataclass(frozen=True)
class Memory:
    """The rules that a client's memory enforces; False leaves one out."""

    one_use: bool = True
    """A prekey is used once."""
    one_list: bool = True
    """Under one book a client answers for one survivor list, ever."""
    all_masks: bool = True
    """An input has the masks of all clients; without this rule, those that the server names."""
    high_threshold: bool = True
    """The threshold is at least a quorum, as clients require; without this rule, any number above the colluders."""


@dataclass(eq=False)
class Given:
    """One contribution of an honest client, as it was made and as the server received it."""

    book: PrekeyBook
    number: int
    message: MaskedContribution
    state: Contributed
    row: Row
    signed: dict[bytes, Signed] = field(default_factory=dict)
    answered: bytes | None = None
    """The survivor list that was answered."""


class PrekeyWorld:
    """One random population, and one random strategy against it."""

    def __init__(self, seed: int, fraction: float, patch: pytest.MonkeyPatch, memory: Memory | None = None) -> None:
        self.rng = random.Random(seed)
        self.memory = memory or Memory()
        size = self.rng.choice((1, 1, 2, 2, 3))
        count = self.rng.randint(-(-4 // size), (0, 8, 4, 3)[size])
        self.circle = [number // size for number in range(size * count)]
        self.everybody = range(len(self.circle))
        self.colluders = set(self.rng.sample(self.everybody, int(fraction * len(self.circle))))
        self.names = [f"client-{number:02}" for number in self.everybody]
        self.identities = [identity_for(name) for name in self.names]
        self.entropy: Entropy = DeterministicEntropy(str(seed).encode())
        self.population, self.roster_digest = POPULATION, b""
        self._prepare()
        self.prekeys = [[self._issue(number, serial) for serial in range(3)] for number in self.everybody]
        self._recorded: list[tuple[list[bytes], list[bytes]]] = []
        patch.setattr(client, "mask_vector", self._record)
        self.copying = self.rng.random() < 0.2
        self.books = self._make_books()
        self.given: list[Given] = []
        self.shares: dict[int, dict[int, dict[int, bytes]]] = defaultdict(lambda: defaultdict(dict))
        self.signatures: dict[tuple[bytes, bytes], dict[int, bytes]] = defaultdict(dict)
        self.answers = 0
        self.informed = False
        """Whether the server learnt a sum; set by :meth:`leak`."""
        self._contribute()
        self._announce()

    def _prepare(self) -> None:
        """Set the population that prekeys are signed for, and the roster of sessions."""

    def _issue(self, number: int, serial: int) -> tuple[bytes, Prekey]:
        identity = self.identities[number]
        return issue(self.population, self.names[number], 0, self.entropy, identity, f"prekey/{number}/{serial}")

    def _record(self, _vector: object, added: list[bytes], subtracted: list[bytes], _parallel: object = None) -> None:
        """Record the seeds that an input is masked by, in place of masking it."""
        if not self.memory.all_masks and self.rng.random() < 0.5:
            kept = self.rng.random()
            added = [seed for at, seed in enumerate(added) if at == 0 or self.rng.random() < kept]
            subtracted = [seed for seed in subtracted if self.rng.random() < kept]
        self._recorded.append((added, subtracted))

    # Books.

    def _make_books(self) -> list[PrekeyBook]:
        rng, circles = self.rng, sorted(set(self.circle))
        chosen = [circle for circle in circles if rng.random() < 0.9] or circles
        books = [self._make_book(0, chosen, None)]
        for name in range(1, rng.choice((1, 1, 1, 2, 2, 3))):
            books.append(self._make_book(name, chosen if rng.random() < 0.7 else circles, rng.choice(books)))
        return books

    def _make_book(self, name: int, circles: Collection[int], base: PrekeyBook | None) -> PrekeyBook:
        rng = self.rng
        members = [number for number in self.everybody if self.circle[number] in circles]
        if len(members) < max(3, len(self.colluders) + 2):
            members = list(self.everybody)
        if rng.random() < 0.3:
            rng.shuffle(members)
        size, c = len(members), len(self.colluders)
        quorum = (size + c) // 2 + 1
        threshold = min(rng.randint(quorum if self.memory.high_threshold else c + 1, size) for _ in range(3))
        same_session = base is not None and rng.random() < 0.5
        terms = Terms(
            session=base.terms.session if base is not None and same_session else bytes([name]) * 16,
            clients=tuple(self.names[number] for number in members),
            bits=BITS,
            length=LENGTH,
            threshold=threshold,
            circles=tuple(self.circle[number] for number in members),
            mode=ThreatMode.ACTIVE_SERVER,
            colluders=c,
            identities=tuple(self.identities[number].public for number in members),
            roster=self.roster_digest,
            content=bytes([name]) if base is not None and rng.random() < 0.3 else b"",
        )
        before = dict(zip(base.terms.clients, base.prekeys, strict=True)) if base else {}
        change = rng.choice((0.0, 0.3, 1.0))
        prekeys: list[Prekey] = []
        for number in members:
            prekey = before.get(self.names[number])
            if prekey is None or rng.random() < change:
                prekey = rng.choice(self.prekeys[number])[1]
            if self.copying and number in self.colluders and rng.random() < 0.7:
                prekey = self._copied(number, prekeys)
            prekeys.append(prekey)
        return PrekeyBook(terms, tuple(prekeys))

    def _copied(self, number: int, before: list[Prekey]) -> Prekey:
        """Sign an honest client's key as a colluder's own."""
        honest = [pair[1] for other in self.everybody if other not in self.colluders for pair in self.prekeys[other]]
        key = self.rng.choice([*before, *honest]).key
        context = rules.prekey_context(self.population, self.names[number], key, 0)
        return Prekey(key, 0, self.identities[number].sign(context))

    def secret(self, number: int, prekey: Prekey) -> bytes | None:
        """Return the secret of a prekey that this client made itself."""
        return next((secret for secret, made in self.prekeys[number] if made == prekey), None)

    # Trip 1.

    def _contribute(self) -> None:
        rng = self.rng
        for number in self.everybody:
            if number in self.colluders:
                continue
            used: set[Prekey] = set()
            shown = [book for book in self.books if rng.random() < 0.95]
            shown += [book for book in shown if rng.random() < 0.2]
            rng.shuffle(shown)
            for book in shown:
                if self.names[number] not in book.terms.index:
                    continue
                at = book.terms.index[self.names[number]]
                prekey = book.prekeys[at]
                secret = self.secret(number, prekey)
                if secret is None or (self.memory.one_use and prekey in used):
                    continue
                self._enter(book, number, secret)
                used.add(prekey)

    def _enter(self, book: PrekeyBook, number: int, secret: bytes) -> None:
        try:
            invited = client.accept(book, self.names[number], secret, self.population)
        except CoterieError:
            return
        entropy = DeterministicEntropy(f"{len(self.given)}".encode())
        vector = np.zeros(LENGTH, book.terms.ring.dtype)
        state, reply = invited.contribute(vector, entropy, self.identities[number])
        added, subtracted = self._recorded.pop()
        row: Row = defaultdict(int)
        row["input", len(self.given)] = 1
        for sign, seeds in (1, added), (-1, subtracted):
            for seed in seeds:
                row[seed] += sign
        message = messages.decode(reply, MaskedContribution, "honest", book.digest)
        self.given.append(Given(book, invited.me, message, state, row))

    # Trips 2 and 3.

    def _announce(self) -> None:
        rng = self.rng
        pool = [set(self.everybody)]
        direct_share = rng.choice((0.0, 0.5, 1.0))
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            other = set(rng.choice(pool))
            for _ in range(rng.choice((1, 1, 2))):
                circle = rng.choice(sorted(set(self.circle)))
                members = {number for number in self.everybody if self.circle[number] == circle}
                other = other - members if rng.random() < 0.6 else other ^ {rng.choice(sorted(members))}
            pool.append(other)
        if rng.random() < 0.3:  # one survivor set for all, which is not the full one
            pool = pool[-1:]
        tailored = rng.random() < 0.15
        core = {self.circle[number] for number in rng.sample(self.everybody, 1)}
        asked: list[tuple[Given, dict[int, tuple[bytes, Given | None]], bool]] = []
        for given in self.given:
            here = rng.sample(pool, rng.randint(1, len(pool)))
            if tailored:
                own = self.circle[self._person(given.book, given.number)]
                close = {n for n in self.everybody if self.circle[n] in core | {own}}
                here = [close | self.colluders]
            asked.extend((given, self._told(given, members), rng.random() < direct_share) for members in here)
        rng.shuffle(asked)
        for given, told, direct in asked:
            if direct:
                self._ask(given, told)
            else:
                self._ask_to_sign(given, told)
        for given, told, direct in asked:
            if not direct:
                self._show_proof(given, told)

    def _person(self, book: PrekeyBook, number: int) -> int:
        return self.names.index(book.terms.clients[number])

    def _told(self, given: Given, members: Collection[int]) -> dict[int, tuple[bytes, Given | None]]:
        """Make a survivor list for one client: for each survivor, a mark and the contribution that it stands for."""
        told: dict[int, tuple[bytes, Given | None]] = {}
        for number in range(len(given.book.terms.clients)):
            person = self._person(given.book, number)
            if person not in members:
                continue
            made = [other for other in self.given if other.book == given.book and other.number == number]
            foreign = [
                other
                for other in self.given
                if other.book != given.book and self._person(other.book, other.number) == person
            ]
            if number == given.number:
                made, foreign = [given], []
            choices = foreign if foreign and self.rng.random() < 0.1 else made
            if choices:
                one = self.rng.choice(choices)
                told[number] = one.message.seed_mark, one
            elif person in self.colluders or self.rng.random() < 0.2:
                told[number] = bytes(16), None
        return told

    def _list(self, book: PrekeyBook, told: Mapping[int, tuple[bytes, Given | None]]) -> SurvivorList:
        marks = b"".join(told[number][0] for number in sorted(told))
        return SurvivorList(book.digest, messages.encode_members(told, len(book.terms.clients)), marks)

    def _envelopes(
        self, given: Given, told: Mapping[int, tuple[bytes, Given | None]]
    ) -> tuple[tuple[SealedShares, ...], dict[int, tuple[Given, int]]]:
        """Return envelopes for a client, with the real contribution and holder of each."""
        aggregated = given.book.terms.aggregated(told)
        chosen: dict[int, tuple[Given, int]] = {}
        sealed = []
        for dealer in sorted(aggregated - {given.number}):
            one = told[dealer][1]
            if one is None:
                continue
            holder = given.number
            size = len(one.book.terms.clients)
            if holder >= size or one.number == holder:
                continue
            chosen[dealer] = one, holder
            sealed.append(SealedShares(dealer, one.message.envelopes[holder - (holder > one.number)]))
        return tuple(sealed), chosen

    def _may_answer(self, given: Given, words: bytes) -> bool:
        return not self.memory.one_list or given.answered in (None, words)

    def _ask(self, given: Given, told: Mapping[int, tuple[bytes, Given | None]]) -> None:
        envelopes, chosen = self._envelopes(given, told)
        plain = self._list(given.book, told)
        words = messages.encode(plain)
        if not self._may_answer(given, words) or words in given.signed:
            return
        message = messages.encode(msgspec.structs.replace(plain, envelopes=envelopes))
        try:
            _, reply = self._answer(given, given.state, message)
        except CoterieError:
            return
        given.answered = words
        self._learn(given, reply, chosen, told)

    def _ask_to_sign(self, given: Given, told: Mapping[int, tuple[bytes, Given | None]]) -> None:
        plain = self._list(given.book, told)
        words = messages.encode(plain)
        if not self._may_answer(given, words):
            return
        try:
            state, reply = self._answer(given, given.state, words)
        except CoterieError:
            return
        assert isinstance(state, Signed)
        given.answered = words
        given.signed[words] = state
        signature = messages.decode(reply, SurvivorSignature, "honest", None).signature
        self.signatures[self._signed_text(given.book, told)][given.number] = signature

    def _signed_text(self, book: PrekeyBook, told: Mapping[int, tuple[bytes, Given | None]]) -> tuple[bytes, bytes]:
        return b"", rules.survivors_context(book, {number: mark for number, (mark, _) in told.items()})

    def _show_proof(self, given: Given, told: Mapping[int, tuple[bytes, Given | None]]) -> None:
        words = messages.encode(self._list(given.book, told))
        state = given.signed.get(words)
        if state is None:
            return
        text = self._signed_text(given.book, told)
        shown = dict(self.signatures[text])
        for number in told:
            person = self._person(given.book, number)
            if person in self.colluders:
                shown[number] = self.identities[person].sign(text[1])
        envelopes, chosen = self._envelopes(given, told)
        entries = tuple(
            SurvivorSignature(given.book.digest, number, shown[number]) for number in sorted(shown) if number in told
        )
        try:
            proof = messages.encode(SurvivorProof(given.book.digest, entries, envelopes))
            _, reply = self._answer(given, state, proof)
        except CoterieError:
            return
        self._learn(given, reply, chosen, told)

    def _answer(self, given: Given, state: client.AnyParked, message: bytes) -> tuple[client.AnyParked | None, bytes]:
        return client.answer(state, message, self._identity(given))

    def _identity(self, given: Given) -> Identity:
        return self.identities[self._person(given.book, given.number)]

    def _learn(
        self,
        given: Given,
        reply: bytes,
        chosen: Mapping[int, tuple[Given, int]],
        told: Mapping[int, tuple[bytes, Given | None]],
    ) -> None:
        """Store the shares of an answer under the contributions whose envelopes contained them."""
        self.answers += 1
        marks = {number: mark for number, (mark, _) in told.items()}
        aggregated = rules.check_survivors(given.book, given.number, given.message.seed_mark, marks)
        for entry in messages.decode(reply, OpenedShares, "honest", None).dealers:
            one, holder = chosen.get(entry.dealer, (given, given.number))
            for at, place in enumerate(rules.opened_secrets(given.book, entry.dealer, aggregated)):
                share = entry.shares[SHARE_BYTES * at : SHARE_BYTES * (at + 1)]
                self.shares[self.given.index(one)][place][holder] = share

    # Judgement.

    def _colluders_open(self) -> None:
        """Open the envelopes that are sealed for keys of colluders."""
        for index, given in enumerate(self.given):
            book = given.book
            for holder, person in self._owned(book):
                pair = client._agree(book, PrivateKey(person), holder, given.number)
                mark = given.message.seed_mark
                key = client._envelope_key(book.digest, pair.opening, given.number, holder, mark)
                sealed = given.message.envelopes[holder - (holder > given.number)]
                try:
                    shares = unseal(key, sealed, rules.envelope_context(book.digest, given.number, holder, mark))
                except VerificationError:
                    continue
                for place in range(len(book.circles)):
                    share = shares[SHARE_BYTES * place : SHARE_BYTES * (place + 1)]
                    self.shares[index][place].setdefault(holder, share)

    def _owned(self, book: PrekeyBook) -> Iterator[tuple[int, bytes]]:
        """Yield the numbers in a book whose prekeys the colluders have the secret of."""
        for holder, prekey in enumerate(book.prekeys):
            person = self._person(book, holder)
            secret = self.secret(person, prekey) if person in self.colluders else None
            if secret is not None:
                yield holder, secret

    def known_seeds(self) -> set[bytes]:
        """Return every seed that the server can compute."""
        self._colluders_open()
        known: set[bytes] = set()
        for given in self.given:
            for holder, secret in self._owned(given.book):
                known.add(client._agree(given.book, PrivateKey(secret), holder, given.number).seed)
        for index, given in enumerate(self.given):
            book = given.book
            marks = (given.message.seed_mark, *given.message.key_marks)
            for place, held in self.shares[index].items():
                if len(held) < book.threshold:
                    continue
                holders = sorted(held)[: book.threshold]
                secret = shamir.combine([holder + 1 for holder in holders], [held[holder] for holder in holders])
                if rules.secret_mark(book.digest, given.number, place, secret) != marks[place]:
                    continue
                if place == 0:
                    known.add(secret)
                    continue
                foreign = book.foreign_circles(given.number)
                before = sum(len(book.circles[circle]) for circle in foreign[: place - 1])
                members = book.circles[foreign[place - 1]]
                pads = given.message.pads[SEED_BYTES * before : SEED_BYTES * (before + len(members))]
                seeds = client.xor(pads, client.pad_stream(book, given.number, foreign[place - 1], secret))
                known.update(seeds[at : at + SEED_BYTES] for at in range(0, len(seeds), SEED_BYTES))
        return known

    def leak(self) -> str | None:
        """Return what the server has learnt that it must not learn; None if there is nothing."""
        known = self.known_seeds()
        rows = [
            {name: value for name, value in given.row.items() if value and name not in known} for given in self.given
        ]
        hidden = {name for row in rows for name in row if isinstance(name, bytes)}
        free = [row for row in eliminate(rows, sorted(hidden)) if not hidden.intersection(row)]
        basis = eliminate(free, sorted({name for row in free for name in row}))
        seen: set[bytes] = set()
        for row in basis:
            made = [self.given[index] for _, index in row]
            people = [self._person(given.book, given.number) for given in made]
            books = {given.book.digest for given in made}
            if len(row) == 1:
                return "one input"
            if len(books) > 1 or books & seen:
                return "two sums of one book, or one across books"
            if set(row.values()) != {1} or len(set(people)) < len(people):
                return "a combination that is no sum"
            circles = {self.circle[person] for person in people}
            there = {self._person(made[0].book, number) for number in range(len(made[0].book.terms.clients))}
            if {p for p in there - self.colluders if self.circle[p] in circles} != set(people):
                return "part of a circle"
            if len(people) < 2:
                return "a sum of too few"
            seen |= books
        self.informed = bool(basis)
        return None


class ScriptedWorld(PrekeyWorld):
    """One book, and a strategy that a test specifies: the contributors, and what each client is told."""

    def __init__(
        self,
        circle: list[int],
        colluders: Collection[int],
        contributors: Collection[int],
        patch: pytest.MonkeyPatch,
        memory: Memory | None = None,
        tolerated: int | None = None,
    ) -> None:
        """Let ``contributors`` contribute; one that is named twice contributes again from a copy of its disk."""
        self.rng, self.memory = random.Random(0), memory or Memory()
        self.circle, self.everybody, self.colluders = circle, range(len(circle)), set(colluders)
        self.names = [f"client-{number:02}" for number in self.everybody]
        self.identities = [identity_for(name) for name in self.names]
        self.entropy = DeterministicEntropy(b"script")
        self.population, self.roster_digest, self.copying, self.informed = POPULATION, b"", False, False
        self.prekeys = [[self._issue(number, 0)] for number in self.everybody]
        self._recorded = []
        patch.setattr(client, "mask_vector", self._record)
        c = len(self.colluders) if tolerated is None else tolerated
        terms = Terms(
            session=bytes(16),
            clients=tuple(self.names),
            bits=BITS,
            length=LENGTH,
            threshold=(len(circle) + c) // 2 + 1,
            circles=tuple(circle),
            mode=ThreatMode.ACTIVE_SERVER,
            colluders=c,
            identities=tuple(identity.public for identity in self.identities),
        )
        self.books = [PrekeyBook(terms, tuple(pairs[0][1] for pairs in self.prekeys))]
        self.given, self.answers = [], 0
        self.shares = defaultdict(lambda: defaultdict(dict))
        self.signatures = defaultdict(dict)
        for number in contributors:
            self._enter(self.books[0], number, self.prekeys[number][0][0])

    def tell(self, serial: int, survivors: Mapping[int, int | None], *, direct: bool) -> None:
        """Show a survivor list to the client of a contribution: for each survivor, the contribution it stands for."""
        told = {
            number: (bytes(16), None) if one is None else (self.given[one].message.seed_mark, self.given[one])
            for number, one in survivors.items()
        }
        (self._ask if direct else self._ask_to_sign)(self.given[serial], told)
        self._shown = told

    def prove(self, serial: int) -> None:
        """Show the signatures on the last list."""
        self._show_proof(self.given[serial], self._shown)


def eliminate(rows: list[Row], columns: Collection[Any]) -> list[Row]:
    """Bring sparse rows over a prime field to reduced form, with pivots in ``columns`` only."""
    left: list[Row] = [dict(row) for row in rows]
    done: list[Row] = []
    for column in columns:
        at = next((place for place, row in enumerate(left) if column in row), None)
        if at is None:
            continue
        pivot = left.pop(at)
        inverse = pow(pivot[column], -1, PRIME)
        pivot = {name: value * inverse % PRIME for name, value in pivot.items()}
        for other in itertools.chain(left, done):
            if factor := other.get(column):
                for name, value in pivot.items():
                    rest = (other.get(name, 0) - factor * value) % PRIME
                    if rest:
                        other[name] = rest
                    else:
                        other.pop(name, None)
        done.append(pivot)
    return [row for row in done + left if row]
