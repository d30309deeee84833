"""Outcomes of client selection: the metrics of all trials of a scheme, or of a setting with losses.

``results.json`` keeps what tables and figures show: of a metric its mean and its 80% range after each round, and the
value of every trial after the last round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coterie.cohorts.circles import Reals
from coterie.cohorts.theory import family_size, trade_off
from coterie.reports.intervals import CONFIDENCE, mean_interval
from coterie.reproduce.multi_round.settings import Scheme, Setting

if TYPE_CHECKING:
    from coterie.reproduce.experiment import Record
    from coterie.reproduce.multi_round.settings import MultiRoundSettings, Published

Numbers = tuple[float | None, ...]
"""Numbers as JSON has them; None where there is none."""
_RANGE = (0.1, 0.9)  # the quantiles between which 80% of the trials lie


class Course(msgspec.Struct, frozen=True):
    """A metric of a scheme over the rounds."""

    mean: Numbers
    """After each round, over the trials that have a value by then."""
    low: Numbers
    high: Numbers
    """The quantiles of 10% and 90% over the trials, after each round."""
    last: Numbers
    """After the last round, for each trial."""

    @classmethod
    def of(cls, values: Reals) -> Course:
        """Summarise the values of trials x rounds; NaN says that there is none."""
        there = [column[~np.isnan(column)] for column in values.T]
        means = [float(column.mean()) if column.size else None for column in there]
        low, high = zip(
            *(np.quantile(one, _RANGE).tolist() if one.size else (None, None) for one in there), strict=True
        )
        return cls(_rounded(means), _rounded(low), _rounded(high), _rounded(values[:, -1].tolist()))

    def curve(self, name: str) -> Reals:
        """Return the mean, or one of the quantiles, after each round."""
        return np.array(getattr(self, name), np.float64)

    @property
    def ends(self) -> Reals:
        """The value of each trial after the last round."""
        return np.array(self.last, np.float64)


class SchemeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One scheme over all trials.

    ``gap`` is F(t) as defined, over all rounds; ``gap_played`` divides by the rounds that were not skipped. Weak T lies
    between two proven bounds. ``first`` and ``everybody`` are the rounds after which the first client and all clients
    were exposed; None if it never happened.
    """

    scheme: Scheme
    cardinality: Course
    gap: Course
    gap_played: Course
    strong: Course
    weak_at_least: Course
    weak_at_most: Course
    first: Numbers
    everybody: Numbers

    @classmethod
    def of(cls, scheme: Scheme, records: Sequence[Record]) -> SchemeHistory:
        """Turn the records of a scheme into metrics."""
        table = {key: np.array([record[key] for record in records], dtype=np.float64) for key in records[0]}
        count = np.arange(1, table["spread"].shape[1] + 1)
        played = np.maximum((table["aggregated"] > 0).cumsum(axis=1), 1)
        nothing = table["weak_at_most"] == 0
        return cls(
            scheme=scheme,
            cardinality=Course.of(table["aggregated"].cumsum(axis=1) / count),
            gap=Course.of(table["spread"] / count),
            gap_played=Course.of(table["spread"] / played),
            strong=Course.of(table["strong"]),
            weak_at_least=Course.of(np.where(nothing, np.nan, table["weak_at_least"])),
            weak_at_most=Course.of(np.where(nothing, np.nan, table["weak_at_most"])),
            first=_rounded(table["first_exposed"].tolist()),
            everybody=_rounded(table["all_exposed"].tolist()),
        )

    @property
    def trials(self) -> int:
        """The number of trials."""
        return len(self.first)

    @property
    def below(self) -> int:
        """The number of trials in which strong T was below the promise at the end; T never grows again."""
        return int((np.nan_to_num(self.strong.ends, nan=np.inf) < self.scheme.privacy).sum())


class Curves:
    """A scheme with what the paper and the theory say about it."""

    def __init__(self, experiment: MultiRoundSettings, history: SchemeHistory) -> None:
        self._experiment = experiment
        self.history = history
        self.scheme = history.scheme

    @property
    def printed(self) -> str:
        """The number of cohorts that the paper prints; empty for a variant of ours."""
        return self._experiment.families.get(self.scheme.name, "")

    @property
    def published(self) -> Published | None:
        """What the authors' result files hold."""
        return self._experiment.published.get(self.scheme.name)

    @cached_property
    def family(self) -> int:
        """The exact number of cohorts."""
        return family_size(self._experiment.population, self._experiment.cohort, self.scheme.privacy)

    @cached_property
    def expected(self) -> float:
        """C by Theorem 1.

        If dropouts are drawn independently with mean p, a circle is complete with probability (1 - p)^T. So Theorem 1
        with that p is the expectation of C over the draws.
        """
        settings = self._experiment
        mean = float(np.mean(settings.dropout))
        return trade_off(settings.population, settings.cohort, mean, levels=[self.scheme.privacy])[0].cardinality

    @property
    def first(self) -> Reals:
        """The round after which the first client was exposed, for each trial; NaN if it never happened."""
        return np.array(self.history.first, np.float64)

    @property
    def everybody(self) -> Reals:
        """The same for the round after which all clients were."""
        return np.array(self.history.everybody, np.float64)


class EqualHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Circles of T under equal dropout: how often each circle took part, and C, in each trial."""

    privacy: int
    rates: tuple[tuple[float, ...], ...]
    """The share of the rounds that each circle took part in, for each trial."""
    cardinality: tuple[float, ...]

    @classmethod
    def of(cls, privacy: int, records: Sequence[Record]) -> EqualHistory:
        """Collect the trials."""
        rates, sizes = ([record[key] for record in records] for key in ("rates", "cardinality"))
        return cls(privacy=privacy, rates=tuple(map(tuple, rates)), cardinality=tuple(sizes))

    @property
    def gap(self) -> float:
        """The difference between the largest and the smallest rate, over all trials together."""
        return float(np.ptp(np.array(self.rates).mean(axis=0)))

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds on F with a confidence of 95%, by the intervals of all circles together (Bonferroni)."""
        rates = np.array(self.rates)
        confidence = 1 - (1 - CONFIDENCE) / rates.shape[1]
        low, high = np.array([mean_interval(circle, confidence) for circle in rates.T]).T
        return max(0.0, float(low.max() - high.min())), float(high.max() - low.min())


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """Losses inside rounds in one setting, over all trials.

    ``broken`` and ``exposed`` are the rounds after which, with naive sums, strong T was below the promise and a client
    was exposed; None if neither happened. ``naive`` and ``aligned`` are the clients summed in a round, on average.
    """

    setting: Setting
    survival: float
    broken: Numbers
    exposed: Numbers
    clients: Numbers
    naive: Numbers
    aligned: Numbers
    aligned_strong: Numbers
    aligned_exposed: int
    rounds: int

    @classmethod
    def of(cls, setting: Setting, survival: float, records: Sequence[Record]) -> Losses:
        """Collect the trials of one setting."""

        def column(how: str, key: str) -> Numbers:
            return _rounded([record[how][key] for record in records])

        return cls(
            setting=setting,
            survival=survival,
            broken=column("naive", "broken"),
            exposed=column("naive", "exposed"),
            clients=column("naive", "clients_exposed"),
            naive=column("naive", "aggregated"),
            aligned=column("aligned", "aggregated"),
            aligned_strong=column("aligned", "strong"),
            aligned_exposed=sum(record["aligned"]["clients_exposed"] for record in records),
            rounds=min(record["aligned"]["rounds"] for record in records),
        )

    def values(self, name: str) -> Reals:
        """Return a number of each trial; NaN where it has none."""
        return np.array(getattr(self, name), np.float64)


class Histories(msgspec.Struct, frozen=True, kw_only=True):
    """All outcomes of the experiment."""

    schemes: list[SchemeHistory]
    losses: list[Losses]
    equal: list[EqualHistory]

    @property
    def trials(self) -> int:
        """The number of trials of the case that has most."""
        sizes = [one.trials for one in self.schemes] + [len(one.naive) for one in self.losses]
        return max(sizes + [len(one.rates) for one in self.equal])


def _rounded(values: Sequence[float | None]) -> Numbers:
    """Return numbers with five digits, and None for NaN."""
    return tuple(None if value is None or np.isnan(value) else float(f"{value:.5g}") for value in values)
