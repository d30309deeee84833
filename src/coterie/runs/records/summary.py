"""The summary of a run: all its rounds in a few numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from coterie.cohorts.outcome import Outcome
from coterie.rounds.outcome import Tally
from coterie.runs.records.client_scores import Basis, ClientScores
from coterie.runs.records.promise import NO_PROMISE, Promise
from coterie.runs.records.record import RoundRecord, own_columns
from coterie.runs.records.yardstick import ACCURACY, Yardstick
from coterie.runs.sections.common import CommonSettings

_NOT_NUMBERS = ("config", "promise", "yardstick", "client_scores")
_ABORTED = (Outcome.ABORTED_BEFORE_REVEAL, Outcome.ABORTED_AFTER_REVEAL)


@dataclass(frozen=True)
class Summary:
    """A run in a few numbers. Fields described as "so far" are those of the last round."""

    config: CommonSettings
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
    """T so far; see :attr:`promised` for the T that holds for any number of rounds."""
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
    """How often a client was present in a round that ended without a result."""
    clipped: float
    """Share of clipped entries, on average over the rounds that trained."""
    epsilon: float | None
    upload_bytes: int
    """The bytes that a client sent in a round that it was selected for, on average."""
    download_bytes: int
    seconds: float
    train_seconds: float
    protect_seconds: float
    promise: Promise = NO_PROMISE
    """The promise for any number of rounds."""
    protocol: str = ""
    """The protection of the updates, in words."""
    assumptions: tuple[str, ...] = ()
    """The assumptions of epsilon."""
    example_epsilon: float | None = None
    """epsilon for replacing one example of a client, if the noise is in the sums."""
    sigma: float = 0.0
    """The deviation of the noise that each client adds to an entry of its contribution; 0 without noise."""
    noise_shares: int = 0
    """The number of honest clients whose noise is counted on in every sum; 0 without noise."""
    extras: Mapping[str, float | None] = field(default_factory=dict)
    """The last known values of the algorithm's columns."""
    yardstick: Yardstick = ACCURACY
    """The yardstick of the models."""
    notes: tuple[str, ...] = ()
    """Remarks on the data."""
    client_scores: ClientScores | None = None
    """The scores of single clients, if there are any."""
    stopped: str = ""
    """Why an observer ended the run early; empty if none did."""

    @property
    def finished(self) -> bool:
        """Whether the run is over, because all rounds were played or an observer ended it."""
        return bool(self.stopped) or self.rounds >= self.config.rounds

    @property
    def score(self) -> float | None:
        """The final quality of the models, by the yardstick."""
        return self.accuracy if self.yardstick.share else self.test_loss

    @property
    def best_score(self) -> float | None:
        """The best quality of any round, by the yardstick."""
        return self.best_accuracy if self.yardstick.share else self.best_loss

    @property
    def owners_score(self) -> float | None:
        """The mean quality of clients' own models on their owners' test examples; None if there are no such models."""
        scores = self.client_scores
        if scores is None or not scores.personal or scores.basis is Basis.COMMON:
            return None
        return scores.mean(self.yardstick)

    @property
    def leading_score(self) -> float | None:
        """The score of clients' own models on their owners' data, or the score of the rounds."""
        return self.score if self.owners_score is None else self.owners_score

    @property
    def promised(self) -> int:
        """The T that holds for any number of rounds; 1 if nothing is promised."""
        return self.promise.privacy

    @property
    def kept(self) -> bool:
        """Whether there is a promise, and no revealed sum breaks it."""
        return self.promised > 1 and not self.exposed and (self.strong_privacy or self.promised) >= self.promised

    @property
    def safe(self) -> bool:
        """Whether the promise is kept, and hides every honest client among other honest ones despite colluders."""
        return self.kept and self.promise.holds

    def numbers(self) -> dict[str, Any]:
        """Return all fields except the settings by name; a number that is not finite becomes None."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _NOT_NUMBERS}
        found |= {"promised": self.promised, "finished": self.finished}
        found |= {"colluders": self.promise.colluders, "honest": self.promise.honest}
        found |= {"threat": self.config.aggregation.threat, "sparse": self.promise.sparse}
        found |= {"yardstick": self.yardstick.name, "unit": self.yardstick.unit, "rules": dict(self.yardstick.rules)}
        return {name: None if isinstance(it, float) and not math.isfinite(it) else it for name, it in found.items()}

    @classmethod
    def of(
        cls,
        config: CommonSettings,
        clients: Sequence[str],
        parameters: int,
        records: Sequence[RoundRecord],
    ) -> "Summary":
        """Summarise the records; the fields from ``promise`` on have their defaults."""
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
            example_epsilon=last.example_epsilon,
            extras={name: _latest(records, name) for name in own_columns(last)},
        )


def _latest(records: Sequence[RoundRecord], column: str) -> float | None:
    """Return the last known value of a column; rounds without evaluation have none."""
    return next((value for record in reversed(records) if (value := getattr(record, column)) is not None), None)
