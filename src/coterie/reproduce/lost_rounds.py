"""Accuracy on sparse graphs at a size where secure aggregation itself is out of reach (Choi et al. 2020, Figure 5.2).

The sum of a reliable round is the same on every graph: that of the clients whose inputs arrived. So a graph can change
a model only by the rounds that it loses, after which the server keeps the model it had. Whether a round is lost is
decided by Theorem 1, on a graph of its own for every round and scheme; who drops out of which step is drawn once a
round, for all schemes alike. Rounds are trained in the clear. Schemes that have lost the same rounds have the same
model, to the last bit, which is trained once.

A job is one table in one trial, with all schemes. It saves its models now and then; if it is interrupted, it continues
from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from coterie.attacks.federation import Federation, make_problem, shaped
from coterie.cohorts.circles import Reals
from coterie.crypto.context import bind, digest
from coterie.errors import ConfigError
from coterie.graphs.guarantees import step_dropout
from coterie.graphs.topology import ErdosRenyi
from coterie.reports.findings import Claim, Drawing, Findings, Judgement, Table
from coterie.reports.intervals import mean_and_spread, mean_interval
from coterie.reports.plots import count_axis, draw_band, foot_legend, page, share_height
from coterie.reports.words import count
from coterie.reproduce import checkpoints
from coterie.reproduce.experiment import RARE, Clients, Count, Experiment, Job, JobContext, Probability, Record, named
from coterie.reproduce.palette import looks
from coterie.reproduce.reliability import present, reliable, write_share
from coterie.reproduce.verdicts import RULE, Verdict, correct, judge_mean, judge_share, settle
from coterie.secagg import rules
from coterie.secagg.terms import Terms
from coterie.training.data import partitions
from coterie.training.data.datasets import load
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD
from coterie.training.streams import stream
from coterie.transports.faults import dropouts

SAME = 2.0  # points of accuracy: differences this close count as equal
_SAVE_EVERY = 5  # rounds, which take long here
_CHUNK = 50  # clients whose updates are held at once
_ALL = "all"
_EXPLANATION = (
    "Accuracy on the test examples after the last round, in percent: mean ± standard deviation over trials, each with "
    "a seed of its own that all schemes share. *Lost*: rounds that Theorem 1 calls unreliable, over all trials; the "
    "server then keeps the previous model. If no round is lost, the model equals the baseline's to the last bit, and "
    "the difference is zero by construction. Rounds are trained in the clear, because the sum of a reliable round is "
    "the same on every graph."
)


class GraphScheme(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A graph and a threshold; a connection of 1 is the complete graph."""

    name: str
    connection: Probability
    threshold: Count


class Deal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table: how examples are dealt."""

    name: str
    shards: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The number of shards of a client, of examples sorted by label; 0 deals at random."""
    learnt: float = 0.0
    """The accuracy, in percent, above which something is learnt, so that losing rounds could show."""


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One scheme in one trial of a table."""

    table: str
    scheme: str
    rounds: tuple[int, ...]
    """After which rounds the model was evaluated."""
    accuracy: tuple[float, ...]
    """Accuracy in percent."""
    lost: tuple[int, ...]
    """The rounds that were lost."""


class LostRounds(Experiment[list[Line]], frozen=True, kw_only=True):
    """The experiment: a part is a way to deal examples."""

    data: str
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Options of the data set."""
    model: str
    clients: Clients
    rounds: Count
    every: Count
    """After how many rounds the models are evaluated."""
    epochs: Count
    batch_size: Count
    learning_rate: float
    momentum: float
    clip: Annotated[float, msgspec.Meta(gt=0)] = 0.5
    """Entries of an update are clipped to this, as in a run with secure aggregation."""
    dropout: Probability
    """The share of clients that drop out of a round, in one of four steps."""
    tables: tuple[Deal, ...]
    schemes: tuple[GraphScheme, ...]
    """The first is the baseline."""

    parts = (("training", "tables"),)
    kept = "lines"
    outcomes = list[Line]

    def check(self) -> None:
        """Refuse thresholds that no client can reach."""
        for scheme in self.schemes:
            if scheme.threshold > self.clients:
                raise ConfigError(f"{scheme.name}: threshold must be at most {self.clients}, not {scheme.threshold}")

    def measure(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Train, or continue an interrupted job: one model for all schemes that have lost the same rounds."""
        federation = self.deal(job, seed, context.data)
        file = checkpoints.path_of(context.folder, job)
        done, models = checkpoints.load(file)
        models = models or {_ALL: federation.start}
        record: Record = checkpoints.notes(file) or {
            scheme.name: {"accuracy": [], "lost": []} for scheme in self.schemes
        }
        for number in range(done + 1, self.rounds + 1):
            models = self.play(job.case, federation, number, models, record)
            if number % self.every == 0 or number == self.rounds:
                scores = {key: federation.score(state).accuracy for key, state in models.items()}
                for found in record.values():
                    found["accuracy"].append([number, scores[_key(found["lost"])]])
            stopped = context.stop() and number < self.rounds
            if stopped or number % _SAVE_EVERY == 0:
                checkpoints.save(file, number, models, record)
            if stopped:
                return None
        return record

    def progress(self, job: Job, folder: Path) -> float:
        """Return the share of rounds that were played."""
        return checkpoints.rounds_played(checkpoints.path_of(folder, job)) / self.rounds

    def deal(self, job: Job, seed: int, data: Path | None) -> Federation:
        """Return the clients of a trial and the model they start from."""
        table = named(self.tables, job.case)
        own = seed + job.trial
        dataset = load(self.data, data, **self.options)
        rng = stream(own, "partition")
        if table.shards:
            parts = partitions.label_shards(np.asarray(dataset.train_y, np.int64), self.clients, rng, table.shards)
        else:
            parts = partitions.iid(len(dataset.train_x), self.clients, rng)
        return Federation(dataset, make_problem(dataset, self.model, own), parts, own)

    def play(
        self, table: str, federation: Federation, number: int, models: Mapping[str, ModelArrays], record: Record
    ) -> dict[str, ModelArrays]:
        """Play a round: decide which schemes lose it, and train each model that some scheme continues with.

        Return the models by the rounds that are lost; ``record`` keeps these for each scheme.
        """
        names = tuple(f"client-{client}" for client in range(self.clients))
        faults = dropouts(
            step_dropout(self.dropout), int(stream(federation.seed, "dropouts", table, number).integers(2**48))
        )
        after: dict[str, ModelArrays] = {}
        for scheme in self.schemes:
            terms = Terms(
                session=digest(bind("lost rounds", table.encode(), scheme.name.encode(), federation.seed, number)),
                clients=names,
                bits=16,
                length=1,
                topology=ErdosRenyi(scheme.connection),
                threshold=scheme.threshold,
            )
            there = present(terms, faults)
            before = _key(record[scheme.name]["lost"])
            if reliable(terms.graph(rules.graph_seed(terms, ())), scheme.threshold, *there):
                if before not in after:
                    after[before] = self._train(federation, number, models[before], sorted(there[1]))
            else:
                record[scheme.name]["lost"].append(number)
                after[_key(record[scheme.name]["lost"])] = models[before]
        return after

    def _train(self, federation: Federation, number: int, state: ModelArrays, clients: Sequence[int]) -> ModelArrays:
        """Return the model after the updates of some clients, clipped as in a run; every client counts alike."""
        work = LocalSGD(self.learning_rate, epochs=self.epochs, batch_size=self.batch_size, momentum=self.momentum)
        total: Reals = np.zeros(sum(array.size for array in state))
        summed = 0
        for begin in range(0, len(clients), _CHUNK):
            updates = federation.updates(state, number, work, clients[begin : begin + _CHUNK])
            sent = updates[np.isfinite(updates).all(1)]  # a client whose model overflows has nothing to send
            total += np.clip(sent, -self.clip, self.clip).sum(0)
            summed += len(sent)
        mean = shaped(total / max(1, summed), state)
        return [array + step for array, step in zip(state, mean, strict=True)]

    def collect(self, records: Mapping[Job, Record]) -> list[Line]:
        """Return the lines of all schemes."""
        return [
            Line(
                table=job.case,
                scheme=scheme.name,
                rounds=tuple(number for number, _ in record[scheme.name]["accuracy"]),
                accuracy=tuple(round(100 * value, 4) for _, value in record[scheme.name]["accuracy"]),
                lost=tuple(record[scheme.name]["lost"]),
            )
            for job, record in records.items()
            for scheme in self.schemes
        ]

    def report(self, lines: list[Line]) -> Findings:
        """Report accuracy and lost rounds of each scheme, and judge our checks."""
        found: dict[str, dict[str, list[Line]]] = {}
        for line in lines:
            found.setdefault(line.table, {}).setdefault(line.scheme, []).append(line)
        claims = correct(
            [
                *self._reliability(found),
                *(claim for table, rows in found.items() for claim in self._claims(table, rows)),
            ]
        )
        return Findings(
            headlines=[claim.headline for claim in claims],
            about=f"{_EXPLANATION} {count(self.clients, 'client')}, {count(self.rounds, 'round')}.",
            tables=[self._table(table, rows) for table, rows in found.items()],
            claims=claims,
            claims_note=RULE,
            claims_last=True,
            drawings=[Drawing("accuracy.png", partial(_draw, found))],
        )

    def _table(self, table: str, rows: Mapping[str, Sequence[Line]]) -> Table:
        first = rows[self.schemes[0].name]
        headings = ("scheme", "p", "t", "accuracy, %", f"against {self.schemes[0].name}", "trials", "lost")
        shown = []
        for scheme in self.schemes:
            some = rows[scheme.name]
            gain = mean_and_spread(_gains(some, first), "+.2f", ".2f") if some is not first else ""
            lost = _count_lost(some, self.rounds)
            final = mean_and_spread(_final(some), ".2f")
            shown.append(
                (scheme.name, f"{scheme.connection:g}", str(scheme.threshold), final, gain, str(len(some)), lost)
            )
        return Table(table, headings, shown)

    def _reliability(self, found: Mapping[str, Mapping[str, Sequence[Line]]]) -> Iterator[Claim]:
        """Judge that few rounds are lost, over all tables, which have graphs of their own."""
        for scheme in self.schemes[1:]:
            lines = [line for rows in found.values() for line in rows[scheme.name]]
            says = f"{scheme.name}: at most {RARE:.0%} of the rounds are lost"
            verdict = judge_share(*_lost(lines, self.rounds), 0.0, RARE, tried="rounds")
            yield settle(says, f"{_count_lost(lines, self.rounds)} rounds lost", verdict, ours=True)

    def _claims(self, table: str, rows: Mapping[str, Sequence[Line]]) -> list[Claim]:
        """Judge that something is learnt, and that the accuracy is the baseline's."""
        base, *others = self.schemes
        first = rows[base.name]
        learnt = named(self.tables, table).learnt
        claims = []
        if learnt:
            final = _final(first)
            says = f"{table}, {base.name}: something is learnt, an accuracy above {learnt:g}%"
            claims.append(settle(says, _interval(final), judge_mean(final, learnt), ours=True))
        for scheme in others:
            some = rows[scheme.name]
            gains = _gains(some, first)
            says = f"{table}, {scheme.name}: the accuracy is that of {base.name}, within {SAME:g} points"
            if any(line.lost for line in some):
                claims.append(settle(says, _interval(gains), judge_mean(gains, -SAME, SAME), ours=True))
            else:
                same = Verdict(Judgement.OPEN if not gains.any() else Judgement.FAILS)
                claims.append(settle(says, "no round was lost", same, ours=True, construction=True))
        return claims


def _key(lost: Sequence[int]) -> str:
    """Return the name of the model of a scheme that has lost these rounds."""
    return " ".join(map(str, lost)) or _ALL


def _final(lines: Sequence[Line]) -> Reals:
    return np.array([line.accuracy[-1] for line in lines])


def _gains(lines: Sequence[Line], base: Sequence[Line]) -> Reals:
    """Return the differences to the baseline; both have the same trials, because a job has all schemes."""
    return np.asarray(_final(lines) - _final(base))


def _lost(lines: Sequence[Line], rounds: int) -> tuple[int, int]:
    return sum(len(line.lost) for line in lines), rounds * len(lines)


def _count_lost(lines: Sequence[Line], rounds: int) -> str:
    return write_share(*_lost(lines, rounds))


def _interval(values: Reals) -> str:
    if values.size < 2:
        return "one trial"
    low, high = mean_interval(values)
    return f"{low:+.2f} to {high:+.2f}, {count(values.size, 'trial')}"


def _draw(found: Mapping[str, Mapping[str, Sequence[Line]]], path: Path) -> None:
    subtitle = (
        "Accuracy on the test examples, in percent: mean over the trials, and from the worst to the best of them."
    )
    with page(path, "Learning curves", subtitle, list(found), (12.9, 5.8), legend=True) as panels:
        styles = looks(scheme for rows in found.values() for scheme in rows)
        for axes, rows in zip(panels, found.values(), strict=True):
            for scheme, lines in rows.items():
                curves = np.array([line.accuracy for line in lines])
                draw_band(axes, lines[0].rounds, curves, styles[scheme].color, scheme, styles[scheme].line)
            axes.set(xlabel="round")
            count_axis(axes)
        share_height(panels)
        foot_legend(*panels)
