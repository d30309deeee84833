"""The experiment: sessions on both graphs, and the operations of sessions on all three."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from coterie.crypto.context import bind, digest
from coterie.graphs.guarantees import step_dropout
from coterie.reports.findings import Findings
from coterie.reproduce.experiment import Job, JobContext, Record
from coterie.reproduce.graph_costs.operations import Operations, count_operations, mean_operations
from coterie.reproduce.graph_costs.report import report
from coterie.reproduce.graph_costs.sessions import play_in_turns
from coterie.reproduce.graph_costs.settings import (
    CCESA,
    GROWTH,
    SA,
    SESSIONS,
    STEPS,
    GraphCostsSettings,
    OperationCount,
    Outcomes,
    TimedSession,
    parameters,
)
from coterie.reproduce.reliability import present
from coterie.secagg.terms import Terms
from coterie.transports.faults import dropouts
from coterie.transports.memory import SessionReport


class GraphCosts(GraphCostsSettings, frozen=True, kw_only=True):
    """The experiment. Times are those of the machine: unlike counts, they do not depend on the seed alone."""

    def measure(self, job: Job, seed: int, context: JobContext) -> Record:
        """Play a pair of sessions, or count the operations of one."""
        if job.part == GROWTH:
            operations = [self._count(job, seed, graph) for graph in range(self.growth.graphs)]
            found: Record = msgspec.to_builtins(mean_operations(operations))
            return found
        session = digest(bind("graph-costs", job.case.encode(), seed, job.trial))
        clients, dropout = self.session_cases()[job.case]
        first, second = (self._terms(scheme, clients, dropout, session) for scheme in (SA, CCESA))
        number = _number(session)
        reports = play_in_turns(first, second, dropouts(step_dropout(dropout), number), number)
        return {scheme: _costs(one) for scheme, one in zip((SA, CCESA), reports, strict=True)}

    def _count(self, job: Job, seed: int, graph: int) -> Operations:
        session = digest(bind("graph-costs", job.case.encode(), seed, job.trial, graph))
        scheme, clients = self.growth_cases()[job.case]
        terms = self._terms(scheme, clients, self.growth.dropout, session)
        sharers, survivors, _ = present(terms, dropouts(step_dropout(self.growth.dropout), _number(session)))
        return count_operations(terms, sharers, survivors)

    def _terms(self, scheme: str, clients: int, dropout: float, session: bytes) -> Terms:
        topology, threshold = parameters(scheme, clients, dropout)
        return Terms(
            session=session,
            clients=tuple(f"client-{number}" for number in range(clients)),
            bits=self.bits,
            length=self.length,
            topology=topology,
            threshold=threshold,
        )

    def collect(self, records: Mapping[Job, Record]) -> Outcomes:
        """Return all trials."""
        played, counted = [], []
        for job, record in records.items():
            if job.part == SESSIONS:
                clients, dropout = self.session_cases()[job.case]
                same = {"clients": clients, "dropout": dropout, "trial": job.trial}
                played += [
                    msgspec.convert({"scheme": name, **same, **costs}, TimedSession) for name, costs in record.items()
                ]
            else:
                scheme, clients = self.growth_cases()[job.case]
                values = {"scheme": scheme, "clients": clients, "trial": job.trial, "operations": record}
                counted.append(msgspec.convert(values, OperationCount))
        return Outcomes(played=played, counted=counted)

    def report(self, outcomes: Outcomes) -> Findings:
        """Report them beside what is printed."""
        return report(self, outcomes)


def _costs(report: SessionReport) -> Record:
    return {
        "client_ms": [1e3 * report.steps[step].median_client_seconds for step in STEPS],
        "server_ms": 1e3 * report.server_processor_seconds,
        "client_bytes": report.upload_bytes + report.download_bytes,
    }


def _number(session: bytes) -> int:
    return int.from_bytes(session[:6], "big")
