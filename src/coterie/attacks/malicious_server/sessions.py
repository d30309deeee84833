"""Lies within a session, each against one rule of the protocol (:mod:`coterie.secagg.rules`).

In the end, the server subtracts from the victim's masked input every mask whose seed it has reconstructed.
"""

from collections.abc import Callable
from contextlib import nullcontext

from coterie.attacks.malicious_server.ablation import without
from coterie.attacks.malicious_server.scenario import VICTIM, Attempt, Lie, Play, Scenario, words
from coterie.attacks.malicious_server.server import LyingServer, Person, announce, deliver, show_book
from coterie.secagg import Terms


def both_shares(scenario: Scenario) -> Attempt:
    """Ask for the shares of a survivor's self seed, and for those of its masking key as if it had dropped out."""
    server = scenario.open("both shares")
    everybody = mask_all(server)
    announce(server, server.persons, everybody, everybody)
    return outcome(scenario, server, server.persons[VICTIM])


def equivocate(scenario: Scenario) -> Attempt:
    """Announce to half of the clients that the victim survived, and to the others that it did not."""
    server = scenario.open("two stories")
    everybody = mask_all(server)
    half = -(-len(server.persons) // 2)
    announce(server, server.persons[:half], everybody, everybody)
    announce(server, server.persons[half:], everybody - {VICTIM}, everybody)
    return outcome(scenario, server, server.persons[VICTIM])


def strand(scenario: Scenario) -> Attempt:
    """Deliver to the victim the envelopes of only a few clients, then reconstruct their keys as those of dropouts.

    These few clients together hold fewer shares than the threshold. Colluders come first, because their keys are known.
    In the circle of every honest one of them, one member is announced as a dropout. The other members are excluded with
    it, and still answer.
    """
    server = scenario.open("stranding")
    size, mates = scenario.clients, _mates(server.terms, VICTIM)
    strangers = [number for number in reversed(server.honest) if number not in mates]
    few = [*sorted(server.colluders), *strangers][: server.terms.threshold_for(size) - 1]
    gone: set[int] = set()
    for number in few:
        honest = _mates(server.terms, number) - server.colluders
        if number in honest and not gone & honest:
            gone.add(max(honest))
    everybody = mask_all(server, {VICTIM: set(range(size)) - set(few)})
    for sharers in everybody, frozenset(few):
        announce(server, server.persons, everybody - gone, sharers)
    return outcome(scenario, server, server.persons[VICTIM])


def split(scenario: Scenario) -> Attempt:
    """Sum the same inputs twice, the second time as if the victim had left its circle; subtract the sums."""
    planted = scenario.inputs[VICTIM]
    if scenario.privacy == 1:
        return Attempt(scenario.ring, planted, impossible="there are no circles to split")
    sums, servers, counted = [], [], []
    for purpose, gone in ("before the split", frozenset[int]()), ("the split", frozenset({VICTIM})):
        server = scenario.open(purpose)
        everybody = mask_all(server)
        announce(server, server.persons, everybody - gone, everybody)
        aggregated = server.terms.aggregated(everybody - gone)
        opened = [server.unmask(person) for person in server.persons if person.client in aggregated]
        servers.append(server)
        counted.append(len(aggregated))
        sums.append(scenario.ring.sum((vector for vector in opened if vector is not None), server.terms.length))
    difference = sums[0] - sums[1]
    scenario.ring.reduce(difference)
    refusals = words(error for server in servers for error in server.refusals)
    return Attempt(scenario.ring, planted, difference, counted[0] - counted[1], refusals, servers=servers)


def substitute(scenario: Scenario) -> Attempt:
    """Show the victim keys of the server in the names of all others, so that it deals all its shares to the server."""
    server = scenario.open("substituted keys")
    victim = server.enter(VICTIM)
    others = range(1, scenario.clients)
    if server.share(victim, [victim.advertisement, *map(server.forge, others)]):
        server.mask(victim, [server.envelope(number, victim, None) for number in others])
    return outcome(scenario, server, victim)


def copy_keys(scenario: Scenario) -> Attempt:
    """Let colluders advertise honest clients' keys, so that the victim adds and subtracts the same mask.

    It needs as many colluders as honest clients beside the victim, so the server invites no more than that.
    """
    pairs = scenario.colluders
    size, victim = 2 * pairs + 1, pairs
    planted = scenario.inputs[victim]
    if not pairs or size < scenario.privacy:
        return Attempt(
            scenario.ring, planted, impossible="it needs a colluder for each honest client beside the victim"
        )
    server = scenario.open("copied keys", size, range(victim + 1, size))
    persons = [server.enter(number) for number in server.honest]
    keys = [person.advertisement.masking_key for person in persons[:victim]]
    copies = [server.collude(number, key) for number, key in zip(sorted(server.colluders), keys, strict=True)]
    show_book(server, persons, [*(person.advertisement for person in persons), *copies])
    deliver(server, persons)
    everybody = frozenset(range(size))
    announce(server, persons, everybody, everybody)
    return outcome(scenario, server, persons[victim])


def join_twice(scenario: Scenario) -> Attempt:
    """Let an honest client join twice; show one of its keys to half of the others, and the other key to the rest.

    Each half, with its own instance of that client, confirms its own survivors; in only one of them the victim
    survived.
    """
    colluders = scenario.colluders
    size = scenario.clients - (scenario.clients + colluders + 1) % 2  # with one client more, no half is a quorum
    server = scenario.open("joining twice", size)
    persons = [server.enter(number) for number in server.honest]
    half = (size + colluders + 1) // 2 - colluders
    if not 1 < half <= len(persons):
        return Attempt(scenario.ring, scenario.inputs[VICTIM], impossible="no half of the honest clients is a quorum")
    first, twin = persons[:half], persons[half - 1]
    again = server.enter(twin.client)
    second = [*persons[half:], again]
    colluding = list(map(server.collude, sorted(server.colluders)))
    for group, absent in (first, again), (second, twin):
        show_book(server, group, [*(p.advertisement for p in server.persons if p is not absent), *colluding])
    for group, absent in (first, again), (second, twin):
        dealers = {person.client: person for person in server.persons if person is not absent and person.shared}
        for person in group:
            peers = [number for number in range(size) if number != person.client]
            known = [number for number in peers if number in dealers or number in server.colluders]
            server.mask(person, [server.envelope(number, person, dealers.get(number)) for number in known])
    everybody = frozenset(range(size))
    for group in first, second:
        announce(server, group, server.colluders | {person.client for person in group}, everybody)
    return outcome(scenario, server, persons[VICTIM])


def leave_alone(scenario: Scenario) -> Attempt:
    """Reveal a sum in which all clients except the victim collude."""
    colluders, circles = scenario.colluders, scenario.privacy > 1
    size = scenario.clients if circles else colluders + 2
    mates = len(_mates(scenario.terms("alone", size), VICTIM)) if circles else colluders + 1
    if not 1 < mates <= colluders + 1:
        reason = "there are too few colluders to fill the victim's circle"
        return Attempt(scenario.ring, scenario.inputs[VICTIM], impossible=reason)
    elsewhere = range(size - (colluders - mates + 1), size)
    server = scenario.open("alone", size, {*range(1, mates), *elsewhere})
    everybody = mask_all(server)
    broken = {max(honest) for circle in _circles(server.terms) if (honest := circle - server.colluders - {VICTIM})}
    announce(server, server.persons, everybody - broken, everybody)
    return outcome(scenario, server, server.persons[0])


def mask_all(server: LyingServer, withheld: dict[int, set[int]] | None = None) -> frozenset[int]:
    """Let all honest clients join, see each other's keys and mask their inputs; return these clients."""
    for number in server.honest:
        server.enter(number)
    show_book(server, server.persons)
    deliver(server, server.persons, withheld)
    return frozenset(range(len(server.terms.clients)))


def outcome(scenario: Scenario, server: LyingServer, victim: Person) -> Attempt:
    """Return the server's final estimate of the victim's input."""
    recovered = server.unmask(victim)
    return Attempt(
        scenario.ring, scenario.inputs[victim.client], recovered, refusals=words(server.refusals), servers=(server,)
    )


def _circles(terms: Terms) -> list[set[int]]:
    """Return the members of each circle; without circles, each client is alone."""
    numbers = terms.circles or range(len(terms.clients))
    return [{client for client, circle in enumerate(numbers) if circle == number} for number in sorted(set(numbers))]


def _mates(terms: Terms, client: int) -> set[int]:
    return next(circle for circle in _circles(terms) if client in circle)


def _against(rule: str, lie: Callable[[Scenario], Attempt]) -> Play:
    """Return the lie, played with or without that rule of the protocol."""

    def play(scenario: Scenario, defended: bool) -> Attempt:
        with nullcontext() if defended else without(rule):
            return lie(scenario)

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
        "lets the victim mask with only a few clients, and then has the keys of these few reconstructed",
        "no client reveals a self mask without its owner's signed statement of the masks on its input",
        _against("statements", strand),
    ),
    Lie(
        "splitting",
        "Splitting a circle",
        "has the same inputs summed again as if the victim alone had left its circle, and subtracts",
        "only whole circles are summed: the survivors of a broken circle count as dropouts",
        _against("whole circles", split),
    ),
    Lie(
        "key-substitution",
        "Substituted keys",
        "sends the victim its own keys in the names of all others",
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
        "everything derived, sealed or signed names the key book; and a member enters a session once",
        _against("keys name the book", join_twice),
    ),
    Lie(
        "lonely-sum",
        "A sum of one",
        "has a sum revealed in which all clients but the victim collude",
        "every client in a sum has more neighbours in it than may collude",
        _against("company", leave_alone),
    ),
)
