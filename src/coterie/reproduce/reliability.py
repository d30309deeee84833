"""Reliability on sparse graphs: how often a round fails, by the paper's rule and by ours (Choi et al. 2020).

A job is one random graph, and clients that drop out of it in each of four steps independently. Two rules judge it:

* The paper's, Theorem 1: the round is reliable if and only if every client whose sum is to be revealed, and every
  client that left a mask on another's input, has at least t holders of its shares among those who stay to the end. One
  client with too few makes the round fail for all.
* Ours: a client that sees too few holders of its own shares does not send its input; it leaves, and the others
  continue. A real session is played, with real cryptography, on the same graph and with the same dropouts.

Nothing is trained. The sum of a successful round is exact on any graph, so a graph can only lose rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from coterie.crypto.context import bind, digest
from coterie.errors import ConfigError, RoundAborted
from coterie.graphs.guarantees import step_dropout
from coterie.graphs.topology import ErdosRenyi, Graph
from coterie.reports.findings import Claim, Findings, Table
from coterie.reports.intervals import share_interval
from coterie.reproduce.experiment import RARE, Clients, Count, Experiment, Job, JobContext, Probability, Record, named
from coterie.reproduce.verdicts import RULE, correct, judge_share, settle
from coterie.rounds import one_off
from coterie.secagg import rules
from coterie.secagg.server import Step
from coterie.secagg.terms import Terms
from coterie.transports.faults import FaultKind, Faults, dropouts
from coterie.transports.memory import Carrier, Session

_EXPLANATION = (
    "Each graph is judged twice, with the same clients dropping out of the same steps. *Paper:* Theorem 1 calls the "
    "round unreliable, and it has no result. *Ours:* a client whose shares have too few holders leaves, the others "
    "continue, and the session is aborted only if a secret that is then needed cannot be reconstructed. *Saved*: "
    "sessions that Theorem 1 calls unreliable and that were completed nevertheless, with the number of clients in the "
    "sum. Intervals are confidence intervals of 95% for the probability (Clopper and Pearson)."
)


class GraphSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Clients, the graph between them, and how many drop out of a round (``q_total``)."""

    name: str
    clients: Clients
    connection: Probability
    threshold: Count
    dropout: Probability
    played: bool = False
    """Whether sessions are played too, beside counting by Theorem 1."""


class GraphClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim that the graph of a setting is sufficient."""

    says: str
    setting: str
    ours: bool = False
    """Whether it is our own check, and not a claim of the paper."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the graphs of one setting; those of sessions are None if none were played.

    ``saved`` has the number of clients in each sum of a round that Theorem 1 calls unreliable. ``refused`` counts
    sessions that were aborted although the round was reliable.
    """

    setting: GraphSetting
    graphs: int
    unreliable: int
    aborted: int | None = None
    refused: int | None = None
    saved: tuple[int, ...] | None = None

    @classmethod
    def of(cls, setting: GraphSetting, records: Sequence[Record]) -> Counts:
        """Count the records of a setting."""
        unreliable = [record for record in records if not record["reliable"]]
        if not setting.played:
            return cls(setting=setting, graphs=len(records), unreliable=len(unreliable))
        aborted = [record for record in records if not record["aggregated"]]
        return cls(
            setting=setting,
            graphs=len(records),
            unreliable=len(unreliable),
            aborted=len(aborted),
            refused=sum(record["reliable"] for record in aborted),
            saved=tuple(sorted(record["aggregated"] for record in unreliable if record["aggregated"])),
        )


class Reliability(Experiment[list[Counts]], frozen=True, kw_only=True):
    """The experiment: a case is a setting."""

    settings: tuple[GraphSetting, ...]
    claims: tuple[GraphClaim, ...] = ()

    parts = (("graphs", "settings"),)
    kept = "settings"
    outcomes = list[Counts]

    def check(self) -> None:
        """Refuse thresholds that no client can reach, and claims about settings that do not exist."""
        for setting in self.settings:
            if setting.threshold > setting.clients:
                raise ConfigError(
                    f"{setting.name}: threshold must be at most {setting.clients}, the number of clients, not "
                    f"{setting.threshold}"
                )
        names = [setting.name for setting in self.settings]
        for claim in self.claims:
            if claim.setting not in names:
                raise ConfigError(f"claims: there is no setting {claim.setting!r}; known are {', '.join(names)}")

    def measure(self, job: Job, seed: int, context: JobContext) -> Record:
        """Draw a graph and its dropouts, and apply both rules."""
        setting = named(self.settings, job.case)
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
        return record | (_run_session(terms, faults) if setting.played else {})

    def collect(self, records: Mapping[Job, Record]) -> list[Counts]:
        """Count the graphs of each setting."""
        return [
            Counts.of(named(self.settings, case), list(found.values()))
            for (_, case), found in self.group(records).items()
        ]

    def report(self, counts: list[Counts]) -> Findings:
        """Report both rules on the same graphs."""
        claims = correct(
            settle(
                f"{claim.says} ({one.setting.name})",
                f"{write_share(one.unreliable, one.graphs)} unreliable",
                judge_share(one.unreliable, one.graphs, 0.0, RARE, tried="graphs"),
                ours=claim.ours,
            )
            for claim in self.claims
            for one in counts
            if claim.setting == one.setting.name
        )
        return Findings(
            headlines=list(_headlines(counts, claims)),
            about=_EXPLANATION,
            tables=[_table(counts)],
            claims=claims,
            claims_note=RULE,
            claims_last=True,
        )


def present(terms: Terms, faults: Faults) -> tuple[set[int], set[int], set[int]]:
    """Return whose shares, masked inputs and revelations arrive if no client leaves by itself: V2, V3, V4."""
    there = set(range(len(terms.clients)))
    after: dict[Step, set[int]] = {}
    for step in (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL):
        there = {client for client in there if not faults.strikes(FaultKind.DROP, step, terms.clients[client])}
        after[step] = there
    return after[Step.SHARE], after[Step.MASK], after[Step.REVEAL]


def reliable(graph: Graph, threshold: int, sharers: set[int], survivors: set[int], revealers: set[int]) -> bool:
    """Return whether a round is reliable by Theorem 1 of Choi et al. (2020)."""
    return all(
        len(revealers & {client, *graph.neighbours(client)}) >= threshold
        for client in sharers
        if client in survivors or not survivors.isdisjoint(graph.neighbours(client))
    )


def _run_session(terms: Terms, faults: Faults) -> Record:
    """Play a session; ``aggregated`` is the number of clients in its sum, 0 if it was aborted."""
    zeros = terms.ring.zeros(terms.length)
    try:
        result = Session(terms, one_off(terms, lambda _client: zeros.copy()), Carrier(faults, workers=1)).run()
    except RoundAborted:
        return {"aggregated": 0}
    return {"aggregated": len(result.clients)}


def _headlines(counts: Sequence[Counts], claims: Sequence[Claim]) -> Iterator[str]:
    for one in counts:
        if one.saved is not None:
            yield (
                f"{one.setting.name}: of {one.graphs} rounds, Theorem 1 calls {one.unreliable} unreliable; "
                f"{len(one.saved)} of those were completed here{_range(one.saved)}."
            )
    for claim in claims:
        yield claim.headline


def _table(counts: Sequence[Counts]) -> Table:
    return Table.of(
        "Both rules on the same graphs",
        counts,
        [
            ("setting", lambda one: one.setting.name),
            ("n", lambda one: f"{one.setting.clients:,}"),
            ("p", lambda one: f"{one.setting.connection:g}"),
            ("t", lambda one: str(one.setting.threshold)),
            ("graphs", lambda one: str(one.graphs)),
            ("paper: unreliable", lambda one: write_share(one.unreliable, one.graphs)),
            (
                "ours: aborted",
                lambda one: "not played" if one.aborted is None else write_share(one.aborted, one.graphs),
            ),
            ("saved", lambda one: "" if one.saved is None else f"{len(one.saved)}{_range(one.saved)}"),
            ("aborted needlessly", lambda one: "" if one.refused is None else str(one.refused)),
        ],
    )


def write_share(hits: int, tries: int) -> str:
    """Write how often something happened, and the confidence interval of its probability."""
    low, high = share_interval(hits, tries)
    return f"{hits} of {tries} ({low:.1%} to {high:.1%})"


def _range(clients: Sequence[int]) -> str:
    if not clients:
        return ""
    low, high = min(clients), max(clients)
    return f", with {low}{f' to {high}' if high > low else ''} clients"
