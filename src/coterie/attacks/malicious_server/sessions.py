"""Lies within a session, each against one rule of the protocol (:mod:`coterie.secagg.rules`).

The victim is client 0 unless a lie needs it elsewhere. Every lie ends with the server taking off the victim's masked
input each mask whose seed it has put together.
"""

from collections.abc import Callable
from contextlib import nullcontext

from coterie.arithmetic.ring import RingVector
from coterie.attacks.malicious_server.ablation import without
from coterie.attacks.malicious_server.actions import announce, deliver, show_book
from coterie.attacks.malicious_server.scenario import Attempt, Lie, Play, Stage, words
from coterie.attacks.malicious_server.server import Person, World
from coterie.secagg import Terms

VICTIM = 0


def both_shares(stage: Stage) -> Attempt:
    """Ask for the shares of a survivor's self seed, and for those of its masking key as if it had dropped out."""
    world = stage.open("both shares")
    everybody = settled(world)
    announce(world, world.persons, everybody, everybody)
    return outcome(stage, world, world.persons[VICTIM])


def equivocate(stage: Stage) -> Attempt:
    """Tell half of the clients that the victim survived, and the others that it did not."""
    world = stage.open("two stories")
    everybody = settled(world)
    half = -(-len(world.persons) // 2)
    announce(world, world.persons[:half], everybody, everybody)
    announce(world, world.persons[half:], everybody - {VICTIM}, everybody)
    return outcome(stage, world, world.persons[VICTIM])


def strand(stage: Stage) -> Attempt:
    """Deliver to the victim the envelopes of a few, then have their keys opened as those of clients who are lost.

    Of a few that hold no more shares than open nothing, colluders come first: their keys are known. Of every circle of
    an honest one, one member is said to be gone; the others are stranded, and yet go on answering.
    """
    world = stage.open("stranding")
    size, mates = stage.clients, _mates(world.terms, VICTIM)
    strangers = [number for number in reversed(world.honest) if number not in mates]
    few = [*sorted(world.colluders), *strangers][: world.terms.threshold_for(size) - 1]
    gone: set[int] = set()
    for number in few:
        honest = _mates(world.terms, number) - world.colluders
        if number in honest and not gone & honest:
            gone.add(max(honest))
    everybody = settled(world, {VICTIM: set(range(size)) - set(few)})
    for sharers in everybody, frozenset(few):
        announce(world, world.persons, everybody - gone, sharers)
    return outcome(stage, world, world.persons[VICTIM])


def split(stage: Stage) -> Attempt:
    """Have the same inputs summed twice, the second time as if the victim had left its circle; then subtract."""
    planted = stage.inputs[VICTIM]
    if stage.privacy == 1:
        return Attempt(stage.ring, planted, impossible="there are no circles to split")
    sums, worlds, counted = [], [], []
    for purpose, gone in ("before the split", frozenset[int]()), ("the split", frozenset({VICTIM})):
        world = stage.open(purpose)
        everybody = settled(world)
        announce(world, world.persons, everybody - gone, everybody)
        aggregated = world.terms.aggregated(everybody - gone)
        opened = [world.unmask(person) for person in world.persons if person.client in aggregated]
        worlds.append(world)
        counted.append(len(aggregated))
        sums.append(_sum(world.terms, [vector for vector in opened if vector is not None]))
    difference = sums[0] - sums[1]
    stage.ring.reduce(difference)
    refusals = words(error for world in worlds for error in world.refusals)
    return Attempt(stage.ring, planted, difference, counted[0] - counted[1], refusals, worlds=worlds)


def substitute(stage: Stage) -> Attempt:
    """Show the victim keys of the server's own in everybody's name: it deals all its shares to the server."""
    world = stage.open("substituted keys")
    victim = world.enter(VICTIM)
    others = range(1, stage.clients)
    if world.share(victim, [victim.advertisement, *map(world.forge, others)]):
        world.mask(victim, [world.envelope(number, victim, None) for number in others])
    return outcome(stage, world, victim)


def copy_keys(stage: Stage) -> Attempt:
    """Let colluders advertise honest clients' keys: a mask that the victim adds for one, it subtracts for the other.

    It takes as many colluders as honest clients beside the victim, so the server invites no more than that.
    """
    pairs = stage.colluders
    size, victim = 2 * pairs + 1, pairs
    planted = stage.inputs[victim]
    if not pairs or size < stage.privacy:
        return Attempt(stage.ring, planted, impossible="it takes a colluder for each honest client beside the victim")
    world = stage.open("copied keys", size, range(victim + 1, size))
    persons = [world.enter(number) for number in world.honest]
    keys = [person.advertisement.masking_key for person in persons[:victim]]
    copies = [world.collude(number, key) for number, key in zip(sorted(world.colluders), keys, strict=True)]
    show_book(world, persons, [*(person.advertisement for person in persons), *copies])
    deliver(world, persons)
    everybody = frozenset(range(size))
    announce(world, persons, everybody, everybody)
    return outcome(stage, world, persons[victim])


def join_twice(stage: Stage) -> Attempt:
    """Let an honest client enter twice, and show half of the others one of its keys and half the other.

    Each half, its own of the two selves included, confirms its own survivors; in one story the victim survived.
    """
    colluders = stage.colluders
    size = stage.clients - (stage.clients + colluders + 1) % 2  # with one client more, no half is a quorum
    world = stage.open("joining twice", size)
    persons = [world.enter(number) for number in world.honest]
    half = (size + colluders + 1) // 2 - colluders
    if not 1 < half <= len(persons):
        return Attempt(stage.ring, stage.inputs[VICTIM], impossible="no half of the honest clients is a quorum")
    first, twin = persons[:half], persons[half - 1]
    again = world.enter(twin.client)
    second = [*persons[half:], again]
    colluding = list(map(world.collude, sorted(world.colluders)))
    for group, absent in (first, again), (second, twin):
        show_book(world, group, [*(p.advertisement for p in world.persons if p is not absent), *colluding])
    for group, absent in (first, again), (second, twin):
        dealers = {person.client: person for person in world.persons if person is not absent and person.shared}
        for person in group:
            peers = [number for number in range(size) if number != person.client]
            known = [number for number in peers if number in dealers or number in world.colluders]
            world.mask(person, [world.envelope(number, person, dealers.get(number)) for number in known])
    everybody = frozenset(range(size))
    for group in first, second:
        announce(world, group, world.colluders | {person.client for person in group}, everybody)
    return outcome(stage, world, persons[VICTIM])


def leave_alone(stage: Stage) -> Attempt:
    """Have a sum opened in which everybody but the victim colludes."""
    colluders, circles = stage.colluders, stage.privacy > 1
    size = stage.clients if circles else colluders + 2
    mates = len(_mates(stage.terms("alone", size), VICTIM)) if circles else colluders + 1
    if not 1 < mates <= colluders + 1:
        reason = "there are too few colluders to fill the victim's circle"
        return Attempt(stage.ring, stage.inputs[VICTIM], impossible=reason)
    elsewhere = range(size - (colluders - mates + 1), size)
    world = stage.open("alone", size, {*range(1, mates), *elsewhere})
    everybody = settled(world)
    broken = {max(honest) for circle in _circles(world.terms) if (honest := circle - world.colluders - {VICTIM})}
    announce(world, world.persons, everybody - broken, everybody)
    return outcome(stage, world, world.persons[0])


def settled(world: World, withheld: dict[int, set[int]] | None = None) -> frozenset[int]:
    """Let all honest clients enter, see each other's keys and mask their inputs; return everybody."""
    for number in world.honest:
        world.enter(number)
    show_book(world, world.persons)
    deliver(world, world.persons, withheld)
    return frozenset(range(len(world.terms.clients)))


def outcome(stage: Stage, world: World, victim: Person) -> Attempt:
    """Return what the server makes of the victim's masked input in the end."""
    recovered = world.unmask(victim)
    return Attempt(stage.ring, stage.inputs[victim.client], recovered, refusals=words(world.refusals), worlds=(world,))


def _sum(terms: Terms, vectors: list[RingVector]) -> RingVector:
    total = terms.ring.zeros(terms.length)
    for vector in vectors:
        total += vector
    terms.ring.reduce(total)
    return total


def _circles(terms: Terms) -> list[set[int]]:
    """Return the members of each circle; where there are none, everybody alone."""
    numbers = terms.circles or range(len(terms.clients))
    return [{client for client, circle in enumerate(numbers) if circle == number} for number in sorted(set(numbers))]


def _mates(terms: Terms, client: int) -> set[int]:
    return next(circle for circle in _circles(terms) if client in circle)


def _against(rule: str, lie: Callable[[Stage], Attempt]) -> Play:
    """Return the lie with the choice of taking that rule out of the protocol."""

    def play(stage: Stage, defended: bool) -> Attempt:
        with nullcontext() if defended else without(rule):
            return lie(stage)

    return play


LIES = (
    Lie(
        "both-shares",
        "Both kinds of share",
        "names one client as a survivor and as lost, and collects both kinds of its shares",
        "a client gives one kind of share for each other, and decides which itself",
        _against("one kind of share", both_shares),
    ),
    Lie(
        "equivocation",
        "Two stories",
        "tells some that the victim survived and others that it was lost; its colluders confirm both",
        "nothing is revealed before more than (n + c) / 2 clients have signed the same survivors",
        _against("quorum above the colluders", equivocate),
    ),
    Lie(
        "stranding",
        "Stranding",
        "lets the victim mask with a few only, and then has the keys of just these few opened",
        "nobody opens a self mask without its owner's signed word on which masks lie beneath it",
        _against("statements", strand),
    ),
    Lie(
        "splitting",
        "Splitting a circle",
        "has the same inputs summed again as if the victim alone had left its circle, and subtracts",
        "a circle is summed whole or not at all: who is left of a broken one counts as lost",
        _against("whole circles", split),
    ),
    Lie(
        "key-substitution",
        "Substituted keys",
        "hands the victim keys of its own in everybody else's name",
        "keys are signed by the clients they belong to",
        _against("signed keys", substitute),
    ),
    Lie(
        "copied-keys",
        "Copied keys",
        "has colluders advertise honest clients' keys, so that masks are added and subtracted again",
        "what two clients agree on names both of them, and no key may appear twice",
        _against("keys name both clients", copy_keys),
    ),
    Lie(
        "joining-twice",
        "Joining twice",
        "shows two key books that differ in the two keys of a client who was made to join twice",
        "all that is derived, sealed or signed names the key book; and a member enters a session once",
        _against("keys name the book", join_twice),
    ),
    Lie(
        "lonely-sum",
        "A sum of one",
        "has a sum opened in which everybody but the victim is a colluder",
        "every client in a sum has more neighbours in it than may collude",
        _against("company", leave_alone),
    ),
)
