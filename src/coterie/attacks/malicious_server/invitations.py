"""Lies in the terms of a session, against members with a floor and a roster that they trust.

The server proposes the terms of a session. Otherwise it follows the protocol here, so that the library's server and
transport can be used. Without the defence, a member accepts any terms.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from coterie.arithmetic.ring import RingVector
from coterie.attacks.malicious_server.scenario import VICTIM, Attempt, Lie, Scenario
from coterie.attacks.malicious_server.server import simulated_identity
from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.roster import Client, Roster
from coterie.crypto.entropy import DeterministicEntropy, Entropy
from coterie.crypto.signing import Identity
from coterie.errors import RoundAborted
from coterie.rounds import Floor, Member
from coterie.rounds.member import ANY_TERMS, Contribute
from coterie.secagg import Terms, ThreatMode
from coterie.transports.memory import Carrier, ClientSide, Session


def regroup(scenario: Scenario, defended: bool) -> Attempt:
    """Sum all clients, then all except the victim, with terms that claim a smaller circle; subtract the sums."""
    planted = scenario.inputs[VICTIM]
    if scenario.privacy == 1:
        return Attempt(scenario.ring, planted, impossible="there are no circles to regroup")
    first = offer(scenario, "before regrouping")
    smaller = offer(scenario, "after regrouping", **_without_victim(first))
    with members(scenario, defended) as everybody:
        before, refused = play(first, everybody)
        after, refused_later = play(smaller, everybody)
    refusals = tuple(dict.fromkeys((*refused, *refused_later)))
    if before is None or after is None:
        return Attempt(scenario.ring, planted, refusals=refusals)
    difference = before - after
    scenario.ring.reduce(difference)
    return Attempt(scenario.ring, planted, difference, refusals=refusals)


def surround(scenario: Scenario, defended: bool) -> Attempt:
    """Invite the victim to a session in which the server plays all other clients, under known names."""
    terms = offer(scenario, "puppets")
    keys = {name: Identity.generate(DeterministicEntropy(b"puppet " + name.encode())) for name in terms.clients[1:]}
    if scenario.active:
        identities = (terms.identities[VICTIM], *(key.public for key in keys.values()))
        terms = offer(scenario, "puppets", identities=identities)
    with members(scenario, defended) as everybody:
        zeros = _giving(terms.ring.zeros(terms.length))
        puppets: dict[str, ClientSide] = {
            name: Member(name, zeros, floor=ANY_TERMS, identity=key) for name, key in keys.items()
        }
        name = terms.clients[VICTIM]
        total, refusals = play(terms, puppets | {name: everybody[name]})
    return Attempt(scenario.ring, scenario.inputs[VICTIM], None if refusals else total, refusals=refusals)


def offer(scenario: Scenario, purpose: str, **changes: Any) -> Terms:  # noqa: ANN401  (any of the terms)
    """Return terms that name the roster which members trust, whatever else they contain."""
    return scenario.terms(purpose, scenario.clients, roster=roster_of(scenario).digest, **changes)


@contextmanager
def members(
    scenario: Scenario, defended: bool, entropy: Callable[[str], Entropy] | None = None
) -> Iterator[dict[str, Member]]:
    """Return the clients: with a floor and a memory that trusts the roster, or accepting any terms."""
    terms = scenario.terms("roster", scenario.clients)
    keys = {name: simulated_identity(name) if scenario.active else None for name in terms.clients}
    roster = roster_of(scenario)
    floor = Floor(mode=terms.mode, privacy=scenario.privacy, colluders=terms.tolerated) if defended else ANY_TERMS
    with MemoryFile(":memory:", durable=False) as file:
        made = {}
        for client, vector in zip(roster.clients, scenario.inputs, strict=False):
            memory = file.of(client) if defended else None
            if memory:
                memory.trust(roster)
            made[client.name] = Member(
                client.name,
                _giving(vector),
                memory=memory,
                floor=floor,
                identity=keys[client.name],
                entropy=entropy(client.name) if entropy else None,
            )
        yield made


def roster_of(scenario: Scenario) -> Roster:
    """Return the roster that members trust: all clients with their identity keys, and the circles."""
    terms = scenario.terms("roster", scenario.clients)
    identities = terms.identities or (b"",) * scenario.clients
    circles = terms.circles or range(scenario.clients)
    return Roster(
        privacy=scenario.privacy,
        clients=tuple(map(Client, terms.clients, identities)),
        circles=tuple(
            tuple(client for client, circle in enumerate(circles) if circle == number)
            for number in sorted(set(circles))
        ),
    )


def play(terms: Terms, clients: Mapping[str, ClientSide]) -> tuple[RingVector | None, tuple[str, ...]]:
    """Play a session with the library's server; return its sum, if there is one, and the refusals."""
    session = Session(terms, clients, Carrier(workers=1))
    try:
        total = session.run().total
    except RoundAborted:
        total = None
    return total, tuple(dict.fromkeys(refusal.reason for refusal in session.report.refusals))


def _giving(vector: RingVector) -> Contribute:
    return lambda _: vector


def _without_victim(terms: Terms) -> dict[str, object]:
    """Return the changes to terms that leave the victim out."""
    changes: dict[str, object] = {"clients": terms.clients[1:], "circles": (terms.circles or ())[1:]}
    return changes | ({"identities": terms.identities[1:]} if terms.mode is ThreatMode.ACTIVE_SERVER else {})


LIES = (
    Lie(
        "regrouping",
        "Regrouping a circle",
        "invites a circle again without the victim, as if it had always been the smaller, and subtracts the two sums",
        "a member compares circles with the roster that it trusts, and answers for a whole circle or not at all",
        regroup,
    ),
    Lie(
        "puppets",
        "Puppets",
        "invites the victim among clients of its own making, under names and with keys that it chose",
        "a member takes part only with those on its roster, by the identity keys that stand there",
        surround,
    ),
)
