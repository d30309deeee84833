"""The summary of a run, as numbers and in plain words."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from coterie.cohorts.ledger import Outcome
from coterie.errors import ConfigError
from coterie.planning.session import FEW_CLIENTS, recommend
from coterie.reports.words import duration, size
from coterie.rounds.outcome import Tally
from coterie.runs.algorithms.participants import WITHHELD
from coterie.runs.records.promise import NO_PROMISE, Promise
from coterie.runs.records.record import RoundRecord, own_columns
from coterie.runs.records.yardstick import ACCURACY, Yardstick
from coterie.runs.report.clipping import MUCH_CLIPPED
from coterie.runs.sections.collusion import roster_size
from coterie.runs.settings.config import OWN, RunConfig

_NOT_NUMBERS = ("config", "promise", "yardstick")
_ABORTED = (Outcome.ABORTED_BEFORE_REVEAL, Outcome.ABORTED_AFTER_REVEAL)


@dataclass(frozen=True)
class Summary:
    """A run in a few numbers; those that say "so far" are of its last round."""

    config: RunConfig
    clients: int
    parameters: int
    rounds: int
    completed: int
    skipped: int
    aborted: int
    accuracy: float | None
    best_accuracy: float | None
    test_loss: float | None
    best_loss: float | None
    error: float | None
    """Mean absolute error on the test examples, in the yardstick's unit."""
    strong_privacy: int | None
    """T so far; see :attr:`promised` for the one that lasts."""
    exposed: int
    never: int
    """Clients that were never aggregated."""
    fairness_gap: float
    cardinality: float
    selected: int
    """How often a client was selected, over all rounds: the sum of the next four."""
    aggregated: int
    dropped: int
    """How often a selected client dropped out before its contribution counted."""
    stranded: int
    """How often a client was excluded because one of its circle had dropped out."""
    unused: int
    """How often a client was there in a round that ended without a result."""
    clipped: float
    """Share of clipped entries, on average over the rounds that trained."""
    epsilon: float | None
    upload_bytes: int
    """What a client sent in a round it was selected for, on average."""
    download_bytes: int
    seconds: float
    train_seconds: float
    protect_seconds: float
    promise: Promise = NO_PROMISE
    """What holds over any number of rounds."""
    protocol: str = ""
    """How updates were protected, in words."""
    assumptions: tuple[str, ...] = ()
    """What epsilon rests on."""
    extras: Mapping[str, float | None] = field(default_factory=dict)
    """The algorithm's own columns, as they were last known."""
    yardstick: Yardstick = ACCURACY
    """By what models are judged."""
    notes: tuple[str, ...] = ()
    """What was odd about the data."""

    @property
    def finished(self) -> bool:
        """Whether all rounds were played."""
        return self.rounds >= self.config.rounds

    @property
    def score(self) -> float | None:
        """What models reached in the end, by the yardstick."""
        return self.accuracy if self.yardstick.share else self.test_loss

    @property
    def best_score(self) -> float | None:
        """The best of any round, by the yardstick."""
        return self.best_accuracy if self.yardstick.share else self.best_loss

    @property
    def promised(self) -> int:
        """The T that no number of rounds changes; 1 where nothing is promised."""
        return self.promise.privacy

    @property
    def kept(self) -> bool:
        """Whether there is such a promise, and nothing that was revealed breaks it."""
        return self.promised > 1 and not self.exposed and (self.strong_privacy or self.promised) >= self.promised

    @property
    def safe(self) -> bool:
        """Whether it is kept, and leaves every honest client among others in spite of the colluders."""
        return self.kept and self.promise.holds

    def numbers(self) -> dict[str, Any]:
        """Return everything but the settings under its name; what is no finite number is None."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _NOT_NUMBERS}
        found |= {"promised": self.promised, "finished": self.finished}
        found |= {"colluders": self.promise.colluders, "honest": self.promise.honest}
        found |= {"threat": self.config.aggregation.threat, "sparse": self.promise.sparse}
        found |= {"yardstick": self.yardstick.name, "unit": self.yardstick.unit, "rules": dict(self.yardstick.rules)}
        return {name: None if isinstance(it, float) and not math.isfinite(it) else it for name, it in found.items()}

    @classmethod
    def of(
        cls,
        config: RunConfig,
        clients: Sequence[str],
        parameters: int,
        records: Sequence[RoundRecord],
        *,
        promise: Promise = NO_PROMISE,
        protocol: str = "",
        assumptions: tuple[str, ...] = (),
        yardstick: Yardstick = ACCURACY,
        notes: tuple[str, ...] = (),
    ) -> "Summary":
        """Add the records up."""
        last = records[-1] if records else RoundRecord(round=0, outcome=Outcome.SKIPPED)
        scores = [record for record in records if record.test_loss is not None]
        accuracies = [record.accuracy for record in scores if record.accuracy is not None]
        losses = [record.test_loss for record in scores if record.test_loss is not None]
        trained = [record.clipped for record in records if record.train_loss is not None]
        tally = sum((record.tally for record in records), Tally())
        selected = max(1, tally.selected)
        seen = {name for record in records for name in record.aggregated}
        return cls(
            config=config,
            clients=len(clients),
            parameters=parameters,
            rounds=len(records),
            completed=sum(record.completed for record in records),
            skipped=sum(record.outcome is Outcome.SKIPPED for record in records),
            aborted=sum(record.outcome in _ABORTED for record in records),
            accuracy=accuracies[-1] if accuracies else None,
            best_accuracy=max(accuracies, default=None),
            test_loss=losses[-1] if losses else None,
            best_loss=min(losses, default=None),
            error=scores[-1].error if scores else None,
            strong_privacy=last.strong_privacy,
            exposed=last.exposed,
            never=len(clients) - len(seen),
            fairness_gap=last.fairness_gap,
            cardinality=last.cardinality,
            selected=tally.selected,
            aggregated=tally.aggregated,
            dropped=tally.dropped,
            stranded=tally.excluded,
            unused=tally.unused,
            clipped=sum(trained) / len(trained) if trained else 0.0,
            epsilon=last.epsilon,
            upload_bytes=sum(record.upload_bytes for record in records) // selected,
            download_bytes=sum(record.download_bytes for record in records) // selected,
            seconds=sum(record.seconds for record in records),
            train_seconds=sum(record.train_seconds for record in records),
            protect_seconds=sum(record.protect_seconds for record in records),
            promise=promise,
            protocol=protocol,
            assumptions=assumptions,
            extras={name: _latest(records, name) for name in own_columns(last)},
            yardstick=yardstick,
            notes=notes,
        )


def _latest(records: Sequence[RoundRecord], column: str) -> float | None:
    """Return the last value of a column that is known: not every round is evaluated."""
    return next((value for record in reversed(records) if (value := getattr(record, column)) is not None), None)


def in_words(summary: Summary) -> Iterator[tuple[str, str]]:
    """Tell a run in sentences, each with what it is about."""
    yield "Model", _model(summary)
    if summary.yardstick.rules:
        yield "Baselines", _baselines(summary.yardstick)
    if summary.notes:
        yield "Data", f"{'. '.join(summary.notes)}."
    yield "Rounds", _rounds(summary)
    yield from summary.config.algorithm.words(summary)
    if summary.epsilon is not None:
        noise = summary.config.noise
        yield (
            "Noise",
            f"({summary.epsilon:.3g}, {noise.delta:g})-differential privacy "
            f"{summary.config.algorithm.guarantee(summary)}; the report lists what that assumes.",
        )
    if summary.config.algorithm.aggregates:
        yield "Fairness", _fairness(summary)
        yield "Cost", _cost(summary)
    if summary.clipped > MUCH_CLIPPED:
        yield (
            "Clipping",
            f"{summary.clipped:.1%} of the entries of updates were cut off at ±{summary.config.aggregation.clip:g}: "
            "a larger aggregation.clip would lose less.",
        )


def named(name: str, kind: str) -> str:
    """Return what data or a model are called: those that a Python program brings along have no name."""
    return f"{name} {kind}" if name == OWN else name


def _model(summary: Summary) -> str:
    what = f"{named(summary.config.model.name, 'model')} with {summary.parameters:,} parameters"
    personal = summary.config.algorithm.personal
    what += f" that each of {summary.clients:,} clients has for itself" if personal else ""
    tests = "the test examples on average" if personal else "the test examples"
    yardstick, score, best = summary.yardstick, summary.score, summary.best_score
    if score is not None and best is not None:
        at_best = f" (at best {yardstick.written(best)})" if best != score else ""
        if yardstick.share:
            return f"The {what} is right on {yardstick.written(score)} of {tests}{at_best}."
        off = f", and is off by {summary.error:,.4g} {yardstick.unit} on average" if summary.error is not None else ""
        scaling = f", of {yardstick.scaling}" if yardstick.scaling else ""
        return f"The {what} has {yardstick.told(score)} on {tests}{at_best}{scaling}{off}."
    if personal and summary.epsilon is not None:
        return f"The score of the {what} {WITHHELD}."
    if summary.finished:
        return f"The {what} was not evaluated: there are no test examples."
    return f"The {what} was not evaluated yet."


def _baselines(yardstick: Yardstick) -> str:
    found = ", ".join(f"{rule} {yardstick.written(value)}" for rule, value in yardstick.rules.items())
    return f"Forecasts that learn nothing, and repeat a value of the past, have this {yardstick.name}: {found}."


def _rounds(summary: Summary) -> str:
    parts = [f"{summary.completed:,} of {summary.rounds:,} completed"]
    if summary.skipped:
        parts.append(f"{summary.skipped:,} were skipped, with too few clients")
    if summary.aborted:
        parts.append(f"{summary.aborted:,} lost too many on the way")
    if summary.selected > summary.aggregated:
        tally = Tally(summary.aggregated, summary.dropped, summary.stranded, summary.unused)
        parts.append(f"of the clients selected, counted in each round, {tally}")
    text = "; ".join(parts) + "."
    return text if summary.finished else f"{text} {summary.config.rounds - summary.rounds:,} are still to be played."


def _fairness(summary: Summary) -> str:
    never = f"; {summary.never:,} never took part" if summary.never else "; everybody took part"
    return (
        f"{summary.cardinality:.1f} clients a round on average (C); the most and the least frequent client are "
        f"{summary.fairness_gap:.1%} of the rounds apart (F){never}."
    )


def _cost(summary: Summary) -> str:
    rest = summary.seconds - summary.train_seconds - summary.protect_seconds
    share = summary.protect_seconds / summary.seconds if summary.seconds else 0.0
    return (
        f"{size(summary.upload_bytes)} up and {size(summary.download_bytes)} down for a client in a round, the model "
        f"itself not counted. Of {duration(summary.seconds)} in all, {duration(summary.train_seconds)} went into "
        f"training, {duration(summary.protect_seconds)} ({share:.0%}) into protection, {duration(rest)} into "
        f"evaluation and safe-keeping.{_sparser(summary)}"
    )


def _sparser(summary: Summary) -> str:
    """Say what a sparse graph would save where the complete one is large; not against a server that may lie."""
    aggregation, cohort = summary.config.aggregation, summary.config.cohort.size
    secure = aggregation.kind == "secure" and aggregation.threat == "honest-but-curious"
    if not secure or aggregation.topology != "complete" or aggregation.threshold or cohort <= FEW_CLIENTS:
        return ""
    try:
        plan = recommend(
            cohort,
            aggregation.dropout,
            collusion=max(0.0, aggregation.collusion),
            roster=roster_size(aggregation, summary.config.clients.count, cohort),
            length=max(1, summary.parameters),
        )
    except ConfigError:
        return ""
    if plan.guarantee.degree >= cohort - 1:
        return ""
    saved = plan.complete.client_upload_bytes - plan.costs.client_upload_bytes
    return (
        f" With aggregation.topology = auto, a client would share its secrets with {plan.guarantee.degree:.3g} others "
        f"instead of {cohort - 1}, and send {size(saved)} less in a round."
    )
