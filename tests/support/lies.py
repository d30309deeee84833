"""Strategies of a lying server, drawn at random: key books, deliveries, survivors, statements, and who colludes.

Nothing here knows which rule an attack would break. The choices lean towards what hurts (too few envelopes for one
client, sets that leave their senders out, two stories, a client that joins twice), so that some thousand sessions are
enough to find a hole that a uniformly random server would take millions for.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.cast import make_terms

from coterie.attacks.malicious_server.learned import leaks
from coterie.attacks.malicious_server.world import Person, World
from coterie.graphs.topology import Complete, ErdosRenyi, Harary, Topology
from coterie.secagg import Terms
from coterie.secagg.messages import Advertisement

TRIES = 4


@dataclass
class Liar:
    """One strategy, and the session it is played in."""

    rng: random.Random
    world: World
    victim: int = 0
    starving: frozenset[int] = frozenset()
    """Whose envelopes the victim gets."""
    books: list[dict[int, Advertisement]] = field(default_factory=list)
    shown: dict[int, list[Person]] = field(default_factory=dict)
    """By book, the persons who accepted it."""

    def play(self) -> bool:
        """Play the session; whether the server learned what it must not."""
        self.advertise()
        self.deliver()
        for number, persons in self.shown.items():
            masked = [person for person in persons if person.carried is not None]
            if masked:
                self.announce(self.books[number], masked)
        return bool(self.world.answered) and leaks(self.world)

    def often(self, probability: float) -> bool:
        return self.rng.random() < probability

    def some(self, items: Iterable[int], probability: float) -> set[int]:
        return {item for item in items if self.often(probability)}

    def advertise(self) -> None:
        """Make one or two key books, and show each client one of them."""
        world, rng = self.world, self.rng
        persons = [world.enter(number) for number in world.honest]
        self.victim = rng.choice(world.honest)
        absent = self.some(world.honest[1:], 0.3) if self.often(0.05) else set()
        book = {person.client: person.advertisement for person in persons if person.client not in absent}
        two = self.often(0.5)
        copying = self.some(world.colluders, 0.5) if self.often(0.05 if two else 0.4) else set()
        for number in world.colluders:
            copied = rng.choice(persons).advertisement.masking_key if number in copying else None
            book[number] = world.collude(number, copied)
        self.books = [book]
        second: Person | None = None
        if two and self.often(0.9):
            second = world.enter(self.victim if self.often(0.5) else rng.choice(world.honest))
            self.books.append(book | {second.client: second.advertisement})
        elif two:
            left_out = rng.choice(sorted(book))
            self.books.append({number: entry for number, entry in book.items() if number != left_out})
        twin = second.client if second else None
        halves, to_second = self.often(0.2 if twin == self.victim else 0.8), rng.choice([0.5, 0.9, 1.0])
        for place, person in enumerate(rng.sample(world.persons, len(world.persons))):
            number = int(len(self.books) > 1 and (place % 2 == 1 if halves else self.often(to_second)))
            if person.client == twin:
                number = int(person is second)
            if world.share(person, self.books[number].values()):
                self.shown.setdefault(number, []).append(person)

    def deliver(self) -> None:
        """Choose whose envelopes reach whom; the victim often gets just enough to go on."""
        world, rng, terms = self.world, self.rng, self.world.terms
        crossing, lost = rng.choice([0.0, 0.5, 1.0, 1.0, 1.0]), rng.choice([0.0, 0.0, 0.0, 0.0, 0.2])
        side = self.some(range(len(terms.clients)), 0.5) if self.often(0.1) else set()
        starve = max(self.shown, default=None) if self.often(0.5) else None
        for number, persons in self.shown.items():
            for person in persons:
                neighbours = terms.graph(person.seed).neighbours(person.client)
                known = [peer for peer in neighbours if peer in self.books[number]]
                if person.client == self.victim and number == starve:
                    least = min(terms.threshold_for(len(neighbours) + 1) - 1, len(known))
                    known = rng.sample(known, min(len(known), least + rng.choice([0, 0, 1])))
                    self.starving = frozenset(known)
                elif side:
                    same = person.client in side
                    known = [peer for peer in known if (peer in side) == same or peer in world.colluders]
                envelopes = []
                for peer in known:
                    dealers = [dealer for dealer in persons if dealer.client == peer]
                    others = [dealer for dealer in world.persons if dealer.client == peer and dealer.shared]
                    if peer in world.colluders:
                        envelopes.append(world.envelope(peer, person, None))
                    elif dealers and not self.often(lost):
                        envelopes.append(world.envelope(peer, person, dealers[0]))
                    elif others and self.often(crossing):
                        envelopes.append(world.envelope(peer, person, rng.choice(others)))
                world.mask(person, envelopes)

    def survivors(self, present: set[int]) -> frozenset[int]:
        """A survivor set that may serve the server's ends."""
        colluders, circles = self.world.colluders, self.world.terms.circles
        gone: set[int] = set()
        match self.rng.randrange(8):
            case 0:
                gone = set(self.starving) - colluders
            case 1 | 2 | 3 | 4 if circles is not None:
                mates = {circles[number]: number for number in self.rng.sample(sorted(present), len(present))}
                gone = {mates[circles[number]] for number in self.starving if circles[number] in mates}
                gone -= {number for number in gone if circles[number] == circles[self.victim]}
            case 5:
                gone = self.some(present, 0.25)
        return frozenset(present - gone)

    def announce(self, book: dict[int, Advertisement], persons: Sequence[Person]) -> None:
        """Tell one or two stories about the survivors, with the statements at hand, and collect what comes of it."""
        world, rng = self.world, self.rng
        present = {person.client for person in persons} | world.colluders
        stories = [self.survivors(present)]
        if self.often(0.1 if self.starving or len(self.shown) > 1 else 0.6):
            stories.append(stories[0] - {self.victim})
        elif self.often(0.1):
            stories = [frozenset(book)]
        seed = persons[0].seed
        order = sorted(persons, key=lambda person: (person.client != self.victim, rng.random()))
        told = {person: stories[place % len(stories)] for place, person in enumerate(order)}
        carried = {peer for person in persons for peer in person.carried or ()}
        signed: dict[frozenset[int], list[Person]] = {story: [] for story in stories}
        confirmations = {
            story: [world.confirmation(number, seed, story) for number in world.colluders & story] for story in stories
        }
        for _ in range(TRIES):  # a client that refused can be asked again
            sharers = rng.choice([carried | present, set(book), set(book), set(self.starving) | present])
            statements = {story: self.statements(seed, story, sharers) for story in stories}
            for person in persons:
                story = told[person]
                if person.client in story and person not in signed[story]:
                    confirmation = world.confirm(person, story, sharers, statements[story])
                    if confirmation is not None:
                        signed[story].append(person)
                        confirmations[story].append(confirmation)
        for story, confirmed in signed.items():
            for person in confirmed:
                world.reveal(person, story, confirmations[story])

    def statements(self, seed: bytes, story: frozenset[int], sharers: set[int]) -> dict[int, bytes]:
        """The statements of those in the story, with some of another self where there is one."""
        found = {number: self.world.statement(number, seed, sharers) for number in self.world.colluders & story}
        for person in self.rng.sample(self.world.persons, len(self.world.persons)):
            if person.client in story and person.statement:
                found[person.client] = person.statement
        return found


def make_liar(seed: int) -> Liar:
    """The strategy that a seed selects."""
    rng = random.Random(seed)
    terms = _terms(rng)
    colluders = rng.sample(range(len(terms.clients)), terms.tolerated)
    return Liar(rng, World(terms, colluders))


def _terms(rng: random.Random) -> Terms:
    size = rng.randint(3, 10)
    sparse: list[Topology] = [Harary(2), Harary(4), ErdosRenyi(0.7)]
    topology = rng.choice([Complete(), Complete(), Complete(), *sparse])
    circles = None
    if rng.random() < 0.5:
        each = rng.choice([2, 2, 3])
        circles = tuple(rng.sample([number // each for number in range(size)], size))
    return make_terms(
        size,
        active=True,
        topology=topology,
        circles=circles,
        colluders=min(rng.choice([0, 1, (size - 1) // 3, (size - 1) // 3, size // 2, size // 2]), size - 2),
        session=rng.randbytes(16),
        bits=8,
        length=1,
    )
