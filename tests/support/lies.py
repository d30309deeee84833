"""Random strategies of a lying server: a few moves out of many, each with its own probability.

Nothing here knows which rule a move would break. Harmful choices (few envelopes for one client, broken circles, two
stories, clients that join twice) are more frequent, because a uniformly random server would need millions of sessions.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from tests.support.cast import make_terms
from tests.support.world import Scene, flipped, learns_too_much

from coterie.attacks.malicious_server.server import Person, announce, deliver, show_book
from coterie.crypto.signing import each_signature_once
from coterie.graphs.topology import Complete, ErdosRenyi, Harary, Topology
from coterie.secagg import Terms
from coterie.secagg.messages import Advertisement, Confirmation, Envelope

#: What the server may do in addition to the protocol, with relative frequencies.
MOVES = {
    "earlier session": 2,  # the same clients had a session before, whose messages and opened secrets are known
    "ghosts": 2,  # absent clients, with keys in their names
    "substitution": 1,  # one client is shown a book that the server made
    "copies": 2,  # colluders advertise keys of other clients, also in other bytes
    "twins": 4,  # one or two honest clients join twice; two books
    "starving": 4,  # one client, or its circle, gets the envelopes of few
    "cut": 1,  # envelopes are delivered within two sides only
    "repetition": 1,  # one client gets every envelope twice
    "losses": 4,  # some survivors are said to be lost
    "two stories": 3,  # some clients are told that another client was lost
    "padding": 3,  # confirmations are repeated, relabelled, or taken from other stories and books
    "borrowing": 2,  # statements of a client that joined twice, or of another session
    "garbling": 3,  # anything in any message (tests.support.world)
}


@dataclass
class Liar:
    """One strategy, and its session."""

    rng: random.Random
    scene: Scene
    moves: frozenset[str]
    earlier: list[Scene] = field(default_factory=list)
    victim: int = 0
    few: frozenset[int] = frozenset()
    """The clients whose envelopes the starved ones get."""
    starved: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()
    """The clients that are said to be lost, if that is planned beforehand."""
    ghosts: frozenset[int] = frozenset()
    books: list[list[Advertisement]] = field(default_factory=list)

    def play(self) -> bool:
        """Play the session; return whether the server learned what it must not."""
        with each_signature_once():  # all clients of a session check the same signatures
            self.play_earlier_session()
            self.advertise()
            self.deliver()
            self.announce()
        return learns_too_much(self.scene, *self.earlier)

    @property
    def revealed(self) -> bool:
        """Whether enough honest clients revealed shares to open a secret of one of them."""
        terms = self.scene.terms
        needed = terms.threshold_for(len(terms.clients)) - len(self.scene.colluders)
        return len(self.scene.answered) >= max(1, needed)

    def often(self, probability: float) -> bool:
        return self.rng.random() < probability

    def some(self, items: Iterable[int], probability: float) -> set[int]:
        return {item for item in items if self.often(probability)}

    # Before, and step 0.

    def play_earlier_session(self) -> None:
        """Play a session with the same clients in which some are lost; sometimes it has the same name."""
        if "earlier session" not in self.moves:
            return
        terms = self.scene.terms
        changes = {"circles": None} if self.often(0.5) else {"session": self.rng.randbytes(16)}
        before = Scene(msgspec.structs.replace(terms, **changes), self.scene.colluders, seed=self.rng.getrandbits(30))
        before.pool = self.scene.pool
        for number in before.honest:
            before.enter(number)
        show_book(before, before.persons)
        deliver(before, before.persons)
        everybody = set(range(len(terms.clients)))
        lost = set(self.rng.sample(before.honest, min(len(before.honest) - 1, self.rng.choice([1, 1, 2]))))
        announce(before, before.persons, everybody - lost, everybody)
        self.earlier.append(before)

    def advertise(self) -> None:
        """Make the key books, and show each client one of them."""
        scene, rng = self.scene, self.rng
        self.victim = rng.choice(scene.honest)
        if "ghosts" in self.moves:
            others = [number for number in scene.honest if number != self.victim]
            mates = [number for number in others if self._circle(number) == self._circle(self.victim)]
            chosen = mates if mates and scene.terms.circles and self.often(0.7) else others
            self.ghosts = frozenset(rng.sample(chosen, min(len(chosen), rng.choice([1, 1, 2]))))
        absent = {number: scene.enter(number) for number in sorted(self.ghosts) if self.often(0.7)}
        persons = [scene.enter(number) for number in scene.honest if number not in self.ghosts]
        book = {person.client: person.advertisement for person in persons}
        book |= {number: self.forged(number, absent.get(number)) for number in self.ghosts if self.often(0.9)}
        book |= {number: self.colluding(number, persons) for number in sorted(scene.colluders) if self.often(0.97)}
        self.books = [sorted(book.values(), key=lambda entry: entry.sender)]
        shown = dict.fromkeys(persons, 0)
        if "twins" in self.moves:
            self.double(book, persons, shown)
        if "substitution" in self.moves:
            mine = next(person for person in persons if person.client == self.victim)
            entries = [
                self.forged(person.client, person) if self.often(0.9) else person.advertisement
                for person in persons
                if person is not mine
            ]
            self.books.append([*entries, mine.advertisement])
            shown[mine] = len(self.books) - 1
        refused = [person for person, number in shown.items() if not scene.share(person, self.books[number])]
        honest = [person.advertisement for person in persons] + [scene.collude(n) for n in sorted(scene.colluders)]
        for person in refused:
            scene.share(person, honest)

    def double(self, book: dict[int, Advertisement], persons: Sequence[Person], shown: dict[Person, int]) -> None:
        """Let one or two clients join again; their second keys are in a second book, or beside the first."""
        chosen = self.rng.sample(persons, min(len(persons), self.rng.choice([1, 1, 2])))
        again = [self.scene.enter(person.client) for person in chosen]
        second = sorted((book | {p.client: p.advertisement for p in again}).values(), key=lambda entry: entry.sender)
        match self.rng.randrange(4):
            case 0:
                self.books = [sorted(self.books[0] + [p.advertisement for p in again], key=lambda entry: entry.sender)]
                shown |= dict.fromkeys(again, 0)
            case 1:
                self.books = [second]
                shown |= dict.fromkeys(again, 0)
            case _:
                self.books.append(second)
                share = self.rng.choice([0.0, 0.5, 0.5, 0.8])
                shown |= {person: int(self.often(share)) for person in persons if person not in chosen}
                shown |= dict.fromkeys(again, 1)

    def forged(self, number: int, person: Person | None) -> Advertisement:
        """Return keys in the name of an honest client that it did not sign in this form; the server has some."""
        scene, own = self.scene, self.scene.forge(number)
        before = [p.advertisement for place in self.earlier for p in place.persons if p.client == number]
        choices = [own]
        if person is not None:
            real = person.advertisement
            choices += [
                msgspec.structs.replace(real, sealing_key=own.sealing_key),
                msgspec.structs.replace(real, masking_key=own.masking_key),
                msgspec.structs.replace(own, signature=real.signature),
                real,
            ]
        if before:
            choices += 3 * [msgspec.structs.replace(before[0], terms=scene.terms.digest)]
        return self.rng.choice(choices)

    def colluding(self, number: int, persons: Sequence[Person]) -> Advertisement:
        """Return keys that a colluder signs: its own, or those of another client."""
        if "copies" not in self.moves or not self.often(0.7):
            return self.scene.collude(number)
        other = self.rng.choice(persons).advertisement
        key = self.rng.choice([other.masking_key] * 4 + [other.sealing_key, flipped(other.masking_key), bytes(32)])
        return self.scene.collude(number, key)

    # Step 1.

    def deliver(self) -> None:
        """Choose which envelopes each client gets; the starved ones get just enough to continue."""
        scene, rng, terms = self.scene, self.rng, self.scene.terms
        shared = [person for person in scene.persons if person.shared]
        numbers = sorted({person.client for person in shared} | scene.colluders | self.ghosts)
        if "starving" in self.moves:
            mates = {n for n in scene.honest if terms.circles and self._circle(n) == self._circle(self.victim)}
            self.starved = frozenset({self.victim} | (mates if self.often(0.5) else set()))
            strangers = [number for number in numbers if number not in self.starved]
            least = terms.threshold_for(len(terms.clients)) - 1
            wanted = least + rng.choice([0, 0, 0, 1, 2])
            helping = self.often(0.7)
            first = [number for number in strangers if helping and number in scene.colluders]
            rest = rng.sample([n for n in strangers if n not in first], len(strangers) - len(first))
            self.few = frozenset((first + rest)[:wanted])
            if self.often(0.6):  # they will be said to be lost, or of each of their circles one
                self.gone = self.few - scene.colluders
                if terms.circles:
                    self.gone = frozenset({self._circle(number): number for number in rest}.values())
                    self.few = frozenset(strangers) - self.gone
        side = self.some(numbers, 0.5)
        for person in shared:
            known = {entry.sender for entry in person.book} - {person.client}
            peers = [number for number in terms.graph(person.seed).neighbours(person.client) if number in known]
            selves = [other for other in shared if other.client == person.client]
            if person.client in self.starved and person is selves[0]:
                peers = [number for number in peers if number in self.few]
            elif "cut" in self.moves:
                same = person.client in side
                peers = [n for n in peers if (n in side) == same or n in scene.colluders]
            envelopes = [self.envelope(number, person, shared) for number in peers]
            twice = "repetition" in self.moves and person.client == self.victim
            if not scene.mask(person, envelopes * 2 if twice else envelopes):
                everybody = [number for number in terms.graph(person.seed).neighbours(person.client) if number in known]
                scene.mask(person, [self.envelope(number, person, shared) for number in everybody])

    def envelope(self, number: int, receiver: Person, shared: Sequence[Person]) -> Envelope | None:
        """Return an envelope of a client, mostly of a person with the same book, or an empty one."""
        dealers = [person for person in shared if person.client == number]
        same = [person for person in dealers if person.seed == receiver.seed]
        dealer = self.rng.choice(same or dealers) if dealers else None
        found = self.scene.envelope(number, receiver, dealer)
        return found if found else self.scene.envelope(number, receiver, None)

    # Step 2 and after.

    def survivors(self, present: frozenset[int]) -> frozenset[int]:
        """Return a survivor set that may help the server."""
        if "losses" not in self.moves and not self.starved:
            return present
        if self.gone and self.often(0.8):
            return present - self.gone
        colluders, circles = self.scene.colluders, self.scene.terms.circles
        gone: set[int] = set()
        match self.rng.randrange(6):
            case 0:
                gone = set(self.few) - colluders
            case 1 | 2 | 3 if circles is not None:
                mates = {circles[number]: number for number in self.rng.sample(sorted(present), len(present))}
                broken = {circles[n] for n in self.few} if self.few else set(circles) - {circles[self.victim]}
                gone = {mates[circle] for circle in broken if circle in mates and circle != circles[self.victim]}
            case _:
                gone = set(self.rng.sample(sorted(present), min(len(present), self.rng.choice([1, 1, 2]))))
        return present - gone

    def announce(self) -> None:
        """Tell one or two stories about the survivors, with the known statements, and collect the answers."""
        scene, rng = self.scene, self.rng
        persons = [person for person in scene.persons if person.carried is not None]
        if not persons:
            return
        there = self.ghosts if self.often(0.8) else frozenset()
        present = frozenset({person.client for person in persons} | scene.colluders | there)
        stories = [self.survivors(present)]
        if "two stories" in self.moves or ("twins" in self.moves and self.often(0.7)):
            stories.append(stories[0] - {self.victim if self.often(0.8) else rng.choice(sorted(present))})
        order = sorted(persons, key=lambda person: (person.client != self.victim, rng.random()))
        by_book = len(self.books) > 1 and self.often(0.5)
        seeds = [person.seed for person in persons]
        told = {p: stories[(seeds.index(p.seed) > 0 if by_book else at) % len(stories)] for at, p in enumerate(order)}
        signed: dict[Person, Confirmation] = {}
        sets = [present, present, frozenset(self.few) | scene.colluders, frozenset(self.few), frozenset(range(16))]
        for sharers in [present, *rng.sample(sets, 2)]:  # a client that refused can be asked again
            within = sharers.intersection(range(len(scene.terms.clients)))
            for person, story in told.items():
                if person not in signed and (person.client in story or self.often(0.1)):
                    confirmation = scene.confirm(person, story, within, self.statements(person, story, within))
                    if confirmation is not None:
                        signed[person] = confirmation
        self.announce_truthfully(persons, told, signed)
        for person in signed:
            padded = self.testimony(person, told, signed)
            if not scene.reveal(person, told[person], padded):
                scene.reveal(person, told[person], self.confirmations(person, told, signed))

    def announce_truthfully(
        self, persons: Sequence[Person], told: dict[Person, frozenset[int]], signed: dict[Person, Confirmation]
    ) -> None:
        """Announce to clients that refused which clients really have all masks of their book, and go on with those."""
        scene, terms = self.scene, self.scene.terms
        for seed in {person.seed: None for person in persons}:
            same = [person for person in persons if person.seed == seed]
            listed = {entry.sender for person in same for entry in person.book}
            graph = terms.graph(seed)
            whole = {p.client for p in same if set(p.carried or ()) == listed.intersection(graph.neighbours(p.client))}
            truth = frozenset(whole | (scene.colluders & listed))
            for person in same:
                if person not in signed and person.client in truth:
                    told[person] = truth
                    statements = self.statements(person, truth, frozenset(listed))
                    confirmation = scene.confirm(person, truth, listed, statements)
                    if confirmation is not None:
                        signed[person] = confirmation

    def statements(self, person: Person, story: frozenset[int], sharers: frozenset[int]) -> dict[int, bytes]:
        """Return the statements of clients in the story, mostly under the same book, with some from elsewhere."""
        scene = self.scene
        found = {number: scene.statement(number, person.seed, sharers) for number in scene.colluders & story}
        masked = [other for other in scene.persons if other.statement and other.client in story]
        masked.sort(key=lambda other: other.seed == person.seed)
        if "borrowing" in self.moves and self.often(0.5):
            masked = [p for place in self.earlier for p in place.persons if p.statement] + masked
            self.rng.shuffle(masked)
        return found | {other.client: other.statement for other in masked}

    def confirmations(
        self, person: Person, told: dict[Person, frozenset[int]], signed: dict[Person, Confirmation]
    ) -> list[Confirmation]:
        """Return the confirmations of a client's story under its book, with those of colluders."""
        scene, story = self.scene, told[person]
        colluding = [scene.confirmation(number, person.seed, story) for number in sorted(scene.colluders & story)]
        return colluding + [e for other, e in signed.items() if told[other] == story and other.seed == person.seed]

    def testimony(
        self, person: Person, told: dict[Person, frozenset[int]], signed: dict[Person, Confirmation]
    ) -> list[Confirmation]:
        """Return the same, padded if there are too few."""
        rng, story, found = self.rng, told[person], self.confirmations(person, told, signed)
        short = self.scene.terms.quorum - len(found)
        if "padding" not in self.moves or short <= 0:
            return found
        match rng.randrange(4):
            case 0:
                return found + rng.choices(found, k=short)
            case 1:
                missing = sorted(story - {entry.sender for entry in found})
                return found + [msgspec.structs.replace(found[0], sender=number) for number in missing]
            case 2:
                return found + [e for other, e in signed.items() if told[other] == story and e not in found]
            case _:
                return found + [entry for entry in signed.values() if entry not in found and entry.sender in story]

    def _circle(self, number: int) -> int:
        return self.scene.terms.circle_of(number)


def make_liar(seed: int) -> Liar:
    """Return the strategy of a seed."""
    rng = random.Random(seed)
    terms = _terms(rng)
    moves = frozenset(rng.choices(list(MOVES), list(MOVES.values()), k=rng.choice([1, 2, 2, 3, 4, 6])))
    colluders = rng.sample(range(len(terms.clients)), rng.choice([terms.tolerated] * 4 + [terms.tolerated // 2]))
    garbling = rng.choice([0.02, 0.1]) if "garbling" in moves else 0.0
    return Liar(rng, Scene(terms, colluders, seed=seed, garbling=garbling), moves)


def _terms(rng: random.Random) -> Terms:
    size = rng.randint(3, 11)
    sparse: list[Topology] = [Harary(2), Harary(4), ErdosRenyi(0.7)]
    topology = rng.choice([Complete()] * 6 + sparse)
    circles = None
    if rng.random() < 0.5:
        each = rng.choice([2, 2, 3, 4, 5])
        circles = tuple(rng.sample([number // each for number in range(size)], size))
    most = min(rng.choice([0, 0, 1, 1, (size - 1) // 3, (size - 1) // 3, size // 2, size - 2]), size - 2)
    return make_terms(
        size,
        active=True,
        topology=topology,
        circles=circles,
        colluders=most,
        minimum=rng.choice([2, 2, min(size, most + 3)]),
        session=rng.randbytes(16),
        bits=rng.choice([1, 8, 8]),
        length=24,
    )
