"""Reliability on sparse graphs: how often a round fails, by the paper's rule and by ours (Choi et al. 2020).

A job is one graph with the clients that drop out of it, in each of four steps independently. Two rules decide on it:

* The paper's, Theorem 1: the round is reliable if and only if everybody whose sum is to be revealed, and everybody who
  left a mask on somebody's input, has at least t holders of its shares among those who stay to the end. One client with
  too few makes the round fail for all.
* Ours: a client that sees too few holders of its own shares does not send its input; it leaves, and the others go on.
  A real session is played, with real cryptography, on the very graph and with the very dropouts.

Nothing is trained. The sum of a round that succeeds is exact on any graph, so rounds are all that a graph can lose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from coterie.crypto.context import bind, digest
from coterie.errors import RoundAborted
from coterie.graphs.guarantees import step_dropout
from coterie.graphs.topology import ErdosRenyi, Graph
from coterie.reproduce.declarations import Job, Record
from coterie.rounds import one_off
from coterie.secagg import rules
from coterie.secagg.server import Step
from coterie.secagg.terms import Terms
from coterie.transports.faults import FaultKind, Faults, dropouts
from coterie.transports.memory import Carrier, Session

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.reproduce.declarations import Findings, JobContext


class GraphSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Clients, the graph between them, and how many drop out of a round (``q_total``)."""

    name: str
    clients: int
    connection: float
    threshold: int
    dropout: float
    played: bool = False
    """Whether sessions are played too, beside counting by Theorem 1."""


class GraphClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim that the graph of a setting is sufficient."""

    says: str
    setting: str


class Reliability(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The experiment, an :class:`~coterie.reproduce.declarations.Experiment`: a case is a setting."""

    settings: tuple[GraphSetting, ...]
    claims: tuple[GraphClaim, ...] = ()
    notes: tuple[str, ...] = ()

    def jobs(self, trials: int) -> list[Job]:
        """One graph for each setting in every trial."""
        return [Job("graphs", setting.name, trial) for trial in range(trials) for setting in self.settings]

    def run(self, job: Job, seed: int, context: JobContext) -> Record:
        """Draw a graph and those who drop out, and let both rules decide."""
        setting = next(setting for setting in self.settings if setting.name == job.case)
        terms = Terms(
            session=digest(bind("reliability", job.case.encode(), seed, job.trial)),
            clients=tuple(f"client-{number}" for number in range(setting.clients)),
            bits=16,
            length=1,
            topology=ErdosRenyi(setting.connection),
            threshold=setting.threshold,
        )
        faults = dropouts(step_dropout(setting.dropout), int.from_bytes(terms.session[:6], "big"))
        graph = terms.graph(rules.graph_seed(terms, ()))
        record: Record = {"reliable": reliable(graph, setting.threshold, *present(terms, faults))}
        return record | (_play(terms, faults) if setting.played else {})

    def progress(self, job: Job, folder: Path) -> float:
        """Nothing is known before a job is done."""
        return 0.0

    def report(self, records: Mapping[Job, Record]) -> Findings:
        """Counts by both rules; see :mod:`coterie.reproduce.reliability.report`."""
        from coterie.reproduce.reliability.report import make_report

        return make_report(self, records)

    def retell(self, summary: Record) -> Findings:
        """The same from the counts of a summary."""
        from coterie.reproduce.reliability.report import retell_report

        return retell_report(self, summary)


def present(terms: Terms, faults: Faults) -> tuple[set[int], set[int], set[int]]:
    """Return whose shares, whose masked inputs and whose revelations arrive if nobody leaves on its own: V2, V3, V4."""
    there = set(range(len(terms.clients)))
    after: dict[Step, set[int]] = {}
    for step in (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL):
        there = {client for client in there if not faults.strikes(FaultKind.DROP, step, terms.clients[client])}
        after[step] = there
    return after[Step.SHARE], after[Step.MASK], after[Step.REVEAL]


def reliable(graph: Graph, threshold: int, sharers: set[int], survivors: set[int], revealers: set[int]) -> bool:
    """Tell whether Theorem 1 of Choi et al. (2020) calls a round reliable."""
    return all(
        len(revealers & {client, *graph.neighbours(client)}) >= threshold
        for client in sharers
        if client in survivors or not survivors.isdisjoint(graph.neighbours(client))
    )


def _play(terms: Terms, faults: Faults) -> Record:
    """Play a session; ``aggregated`` is how many clients its sum is over, 0 where it was aborted."""
    zeros = terms.ring.zeros(terms.length)
    try:
        result = Session(terms, one_off(terms, lambda _client: zeros.copy()), Carrier(faults, workers=1)).run()
    except RoundAborted:
        return {"aggregated": 0}
    return {"aggregated": len(result.clients)}
