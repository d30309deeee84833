"""Entries of a comparison: a run, read from its folder, or a baseline.

Of a run, its settings, records, roster and table of clients are read, and the header of its checkpoint. So a comparison
needs neither torch nor the data.
"""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError, InputError
from coterie.files import explain
from coterie.runs.algorithms import algorithm_of
from coterie.runs.comparison.scores import SCORES, Score, metric_score
from coterie.runs.engine.promise import read_promise
from coterie.runs.records.client_scores import mean_in_table
from coterie.runs.records.promise import NO_PROMISE
from coterie.runs.records.record import RoundRecord
from coterie.runs.records.summary import Summary
from coterie.runs.sections.common import OWN
from coterie.runs.settings.config import RunConfig
from coterie.runs.storage.folder import RunFolder

_LARGEST = 1e300  # of a score: the difference of two that are larger may be infinite


@dataclass(frozen=True)
class DataIdentity:
    """What a run's folder says about its data, to decide whether two runs were scored on the same test examples."""

    title: str
    source: str
    """The settings that name the data; for data that a program passed, their digest."""
    division: str
    """The settings that divide the data among clients."""
    digest: str
    """The digest of the data and of its division; empty if the run has none."""

    def same_tests(self, other: "DataIdentity") -> bool:
        """Return whether both runs were tested on the same examples, as far as their folders say."""
        if self.source != other.source:
            return False
        # The digest covers the division too, so digests are comparable only if the division is the same.
        known = self.division == other.division and self.digest and other.digest
        return not known or self.digest == other.digest


@dataclass(frozen=True)
class Entry:
    """One line of a comparison."""

    name: str
    score: Score
    points: tuple[tuple[int, float], ...] = field(repr=False)
    """Rounds that were evaluated, with the score after each."""
    summary: Summary | None = None
    """The run in numbers; None for a baseline."""
    data: DataIdentity | None = None
    """The data of a run; of a baseline it is not known."""
    total_bytes: int | None = None
    """The bytes that all clients sent and received in all rounds, without the model."""
    owners_score: float | None = None
    """The final score of each client's model on the client's own test examples, on average over the clients.

    It is the client's own model where it has one, and the common one elsewhere; None if the run has no such scores.
    """

    def __post_init__(self) -> None:
        if any(abs(value) > _LARGEST for _, value in self.points):
            raise InputError(
                f"{self.name} has a score above {_LARGEST:g} or below -{_LARGEST:g}, which cannot be drawn"
            )

    @property
    def algorithm(self) -> str:
        """The training algorithm; "baseline" for a baseline."""
        return self.summary.config.training.algorithm if self.summary else "baseline"

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return self.summary.rounds if self.summary else self.points[-1][0]

    @property
    def personal(self) -> bool:
        """Whether the score is the mean over the clients' own models."""
        return self.summary is not None and algorithm_of(self.summary.config).personal

    @property
    def judged_by_owners(self) -> bool:
        """Whether rounds were scored by the clients' own models on their owners' test examples."""
        known = self.personal and self.owners_score is not None and self.final is not None
        return known and math.isclose(self.owners_score or 0.0, self.final or 0.0, rel_tol=1e-9)

    @property
    def final(self) -> float | None:
        """The score of the last round that was evaluated."""
        return self.points[-1][1] if self.points else None

    @property
    def best(self) -> float | None:
        """The best score of any round."""
        return self.score.best([value for _, value in self.points]) if self.points else None

    def rounds_to(self, target: float) -> int | None:
        """Return the first round whose score is as good as the target; None if there is none."""
        return next((number for number, value in self.points if self.score.reaches(value, target)), None)

    def as_dict(self, target: float | None) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        found: dict[str, Any] = {
            "name": self.name,
            "kind": "run" if self.summary else "baseline",
            "algorithm": self.algorithm if self.summary else None,
            "rounds": self.rounds,
            "final": self.final,
            "best": self.best,
            "final_on_own_data": self.owners_score,
            "rounds_to_target": None if target is None else self.rounds_to(target),
            "points": [list(point) for point in self.points],
        }
        if summary := self.summary:
            found |= {
                "finished": summary.finished,
                "promised": summary.promised,
                "strong_privacy": summary.strong_privacy,
                "exposed": summary.exposed,
                "kept": summary.kept,
                "epsilon": summary.epsilon,
                "delta": summary.config.noise.delta if summary.epsilon is not None else None,
                "seconds": summary.seconds,
                "bytes": self.total_bytes,
            }
        return found


def read_run(path: Path, name: str, column: str | None = None) -> Entry:
    """Read the run in a folder; ``column`` is the score to compare, by default the score of the run's yardstick."""
    folder = RunFolder.open(path)
    try:
        config, records, progress = folder.config(), folder.records(), folder.progress()
    except OSError as error:
        raise InputError(f"cannot read the run in {path}: {error.strerror}") from None
    score = _choose_score(path, config, records, column)
    values = [(record.round, getattr(record, score.column)) for record in records]
    promise = NO_PROMISE
    if algorithm_of(config).aggregates and config.aggregation.kind == "secure":
        try:
            promise = read_promise(path)
        except ConfigError as error:
            raise InputError(f"the run in {path} does not say what it promises: {error}") from None
    summary = replace(
        Summary.of(config, (), 0, records),
        promise=promise,
        stopped=progress.stop.reason if progress and progress.stop else "",
    )
    return Entry(
        name=name,
        score=score,
        points=tuple((number, value) for number, value in values if value is not None),
        summary=summary,
        data=_identify_data(config, progress.fingerprints.get("data", "") if progress else ""),
        total_bytes=sum(record.upload_bytes + record.download_bytes for record in records),
        owners_score=_read_owners_score(folder, score) if summary.finished else None,
    )


def _read_owners_score(folder: RunFolder, score: Score) -> float | None:
    """Return the mean over the clients in the folder's table of their scores; they are those of the last round."""
    if not folder.scores_file.is_file():
        return None
    try:
        text = folder.scores_file.read_text(encoding="utf-8")
        return mean_in_table(text, "loss" if score.column == "test_loss" else score.column)
    except OSError as error:
        raise InputError(f"cannot read {folder.scores_file}: {explain(error)}") from None
    except (ValueError, csv.Error):
        raise InputError(f"{folder.scores_file} is not the table of clients that a run writes") from None


def _choose_score(path: Path, config: RunConfig, records: Sequence[RoundRecord], column: str | None) -> Score:
    """Return the score to compare. A run without labels has no accuracy and is judged by its loss."""
    if column is None:
        labelled = any(record.accuracy is not None for record in records)
        scored = any(record.test_loss is not None for record in records)
        return SCORES["test_loss" if scored and not labelled else "accuracy"]
    recorded = {name: SCORES[name] for name in ("accuracy", "test_loss", "error")}
    recorded |= {score.column: score for score in map(metric_score, config.training.metrics)}
    if column not in recorded:
        raise ConfigError(
            f"the run in {path} did not record {column!r}. It recorded {', '.join(recorded)}; the setting "
            "training.metrics of a new run records more"
        )
    return recorded[column]


def _identify_data(config: RunConfig, digest: str) -> DataIdentity:
    own = config.data.name == OWN and not config.data.features
    named = config.data.model_dump(exclude={"folder"})
    division = config.partition.model_dump() | {"clients": config.clients.count, "seed": config.seed}
    if config.clients.holdout:  # then test examples are some of each client
        named |= division | {"holdout": config.clients.holdout}
    return DataIdentity(
        title="your data" if own else config.data.title,
        source=digest if own else json.dumps(named, sort_keys=True, default=str),
        division=json.dumps(division, sort_keys=True, default=str),
        digest=digest,
    )
