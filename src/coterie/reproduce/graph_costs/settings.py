"""The settings of the experiment, what the paper prints, and the outcomes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from coterie.errors import ConfigError
from coterie.graphs.failures import ThreatModel
from coterie.graphs.guarantees import majority_threshold, paper_parameters
from coterie.graphs.search import search_harary
from coterie.graphs.topology import Complete, ErdosRenyi, Topology
from coterie.reproduce.experiment import Clients, Count, Experiment, Probability
from coterie.reproduce.graph_costs.operations import Operations
from coterie.secagg.server import Step

SESSIONS, GROWTH = "sessions", "growth"
"""The parts of the experiment."""
SA, CCESA, BELL = "SA", "CCESA", "Bell"
WRONG = 0.001
"""Entries of Table F.4 as far off as this are more than rounded the other way."""
STEPS = (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL)
"""Steps 0 to 3 of the paper."""
Milliseconds = Annotated[float, msgspec.Meta(ge=0)]


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The entries of Table F.4, and the lines of Figure 4.1."""

    clients: tuple[Clients, ...]
    dropouts: tuple[Probability, ...]


class Sessions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sessions that are played: with each number of clients and each total dropout, on both graphs."""

    clients: tuple[Clients, ...]
    dropouts: tuple[Probability, ...]


class Growth(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sessions whose operations are counted."""

    clients: tuple[Clients, ...]
    dropout: Probability
    """Parameters are chosen for this total dropout, and a server's operations are counted after it."""
    graphs: Count
    """Random graphs of a trial, each with other dropouts; operations are means over them."""


class PrintedTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of Table 5.1: milliseconds of a client in steps 0 to 3, and of the server."""

    scheme: str
    clients: Clients
    dropout: Probability
    threshold: Count
    probability: Probability
    client_ms: tuple[Milliseconds, Milliseconds, Milliseconds, Milliseconds]
    server_ms: Milliseconds


class PrintedRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of Table F.4: p* for each number of clients."""

    dropout: Probability
    probabilities: tuple[Probability, ...]


class TimedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was played: medians of a client, and the processor time of the server."""

    scheme: str
    clients: int
    dropout: float
    trial: int
    client_ms: tuple[float, float, float, float]
    server_ms: float
    client_bytes: float
    """What a client sends and receives, its vector included."""


class OperationCount(msgspec.Struct, frozen=True, kw_only=True):
    """The operations of a session on one random graph."""

    scheme: str
    clients: int
    trial: int
    operations: Operations


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """All trials."""

    played: list[TimedSession]
    counted: list[OperationCount]


def parameters(scheme: str, clients: int, dropout: float) -> tuple[Topology, int]:
    """Return the graph and the threshold that a scheme's own rule gives."""
    if scheme == SA:
        return Complete(), majority_threshold(clients)
    if scheme == BELL:
        found = search_harary(ThreatModel(clients, dropout))
        return found.topology, found.threshold
    rule = paper_parameters(clients, dropout)
    if rule.complete:
        raise ConfigError(f"CCESA's rule asks {clients} clients with dropout {dropout:g} for the complete graph")
    return ErdosRenyi(rule.connection_probability), rule.threshold


class GraphCostsSettings(Experiment[Outcomes], frozen=True, kw_only=True):
    """Settings of the experiment, and what is printed in the paper."""

    length: Count
    """Numbers in the vector of a client."""
    bits: Annotated[int, msgspec.Meta(ge=1, le=64)]
    """Numbers are in the ring of integers modulo 2^bits."""
    rule: Rule
    sessions: Sessions
    growth: Growth
    times: tuple[PrintedTimes, ...] = ()
    """Table 5.1."""
    probabilities: tuple[PrintedRule, ...] = ()
    """Table F.4, for the numbers of clients of ``rule``."""

    kept = "outcomes"
    outcomes = Outcomes

    def session_cases(self) -> dict[str, tuple[int, float]]:
        """Return clients and dropout of each pair of sessions, by the name of its case."""
        pairs = [(clients, dropout) for clients in self.sessions.clients for dropout in self.sessions.dropouts]
        return {f"{clients} clients, {dropout:g} drop out": (clients, dropout) for clients, dropout in pairs}

    def growth_cases(self) -> dict[str, tuple[str, int]]:
        """Return scheme and clients of each counted session, by the name of its case."""
        pairs = [(scheme, clients) for clients in self.growth.clients for scheme in (SA, CCESA, BELL)]
        return {f"{scheme}, {clients} clients": (scheme, clients) for scheme, clients in pairs}

    def printed(self, scheme: str, clients: int, dropout: float) -> PrintedTimes | None:
        """Return a row of Table 5.1, if it has one of that size."""
        wanted = (scheme, clients, dropout)
        return next((row for row in self.times if (row.scheme, row.clients, row.dropout) == wanted), None)

    def printed_ratio(self, clients: int, dropout: float, *steps: int) -> float | None:
        """Return CCESA's printed time by SA's: of these steps together, or of the server if none is named."""
        rows = [self.printed(scheme, clients, dropout) for scheme in (CCESA, SA)]
        times = [sum(row.client_ms[step] for step in steps) if steps else row.server_ms for row in rows if row]
        return times[0] / times[1] if len(times) == len(rows) else None

    def cases(self) -> list[tuple[str, str]]:
        """Return pairs of sessions to play, then sessions to count."""
        return [*((SESSIONS, case) for case in self.session_cases()), *((GROWTH, case) for case in self.growth_cases())]

    def check(self) -> None:
        """Refuse sizes for which CCESA's rule has no sparse graph, and printed rows of another length than the rule."""
        for clients, dropout in self.session_cases().values():
            parameters(CCESA, clients, dropout)
        for scheme, clients in self.growth_cases().values():
            parameters(scheme, clients, self.growth.dropout)
        for row in self.probabilities:
            if len(row.probabilities) != len(self.rule.clients):
                raise ConfigError(
                    f"probabilities: {len(row.probabilities)} are printed for dropout {row.dropout:g}, and the rule "
                    f"has {len(self.rule.clients)} numbers of clients"
                )
