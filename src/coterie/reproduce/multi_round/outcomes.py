"""Outcomes of client selection: the metrics of all trials of a scheme, or of a setting with losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.cohorts.circles import Reals
from coterie.cohorts.theory import family_size, trade_off

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.reproduce.experiment import Record
    from coterie.reproduce.multi_round.settings import MultiRoundSettings, Published, Scheme, Setting


@dataclass(frozen=True, eq=False)
class Curves:
    """One scheme over all trials. Arrays are trials x rounds.

    ``printed`` is the number of cohorts in the paper, empty for a variant of ours, and ``published`` what the authors'
    result files hold; ``family`` and ``expected`` are the exact number of cohorts and C by Theorem 1. ``gap`` is F(t)
    as defined, over all rounds; ``gap_played`` divides by the rounds that were not skipped. Weak T lies between two
    proven bounds. NaN says that nothing was aggregated yet; in ``first`` and ``everybody``, the rounds of exposure,
    that it never happened.
    """

    scheme: Scheme
    printed: str
    published: Published | None
    family: int
    expected: float
    cardinality: Reals
    gap: Reals
    gap_played: Reals
    strong: Reals
    weak_at_least: Reals
    weak_at_most: Reals
    first: Reals
    everybody: Reals

    @classmethod
    def of(cls, experiment: MultiRoundSettings, scheme: Scheme, records: Sequence[Record]) -> Curves:
        """Turn the records of a scheme into metrics.

        If dropouts are drawn independently with mean p, a circle is complete with probability (1 - p)^T. So Theorem 1
        with that p is the expectation of C over the draws.
        """
        table = {key: np.array([record[key] for record in records], dtype=np.float64) for key in records[0]}
        population, cohort = experiment.population, experiment.cohort
        count = np.arange(1, experiment.rounds + 1)
        played = np.maximum((table["aggregated"] > 0).cumsum(axis=1), 1)
        nothing = table["weak_at_most"] == 0
        return cls(
            scheme=scheme,
            printed=experiment.families.get(scheme.name, ""),
            published=experiment.published.get(scheme.name),
            family=family_size(population, cohort, scheme.privacy),
            expected=trade_off(population, cohort, float(np.mean(experiment.dropout)), levels=[scheme.privacy])[
                0
            ].cardinality,
            cardinality=table["aggregated"].cumsum(axis=1) / count,
            gap=table["spread"] / count,
            gap_played=table["spread"] / played,
            strong=table["strong"],
            weak_at_least=np.where(nothing, np.nan, table["weak_at_least"]),
            weak_at_most=np.where(nothing, np.nan, table["weak_at_most"]),
            first=table["first_exposed"],
            everybody=table["all_exposed"],
        )

    @property
    def below(self) -> int:
        """The number of trials in which strong T was below the promise at the end; T never grows again."""
        return int((np.nan_to_num(self.strong[:, -1], nan=np.inf) < self.scheme.privacy).sum())

    def summary(self) -> Record:
        """The means over the trials, for JSON."""
        series = {
            "strong_privacy": self.strong,
            "weak_privacy_at_least": self.weak_at_least,
            "weak_privacy_at_most": self.weak_at_most,
            "cardinality": self.cardinality,
            "fairness_gap": self.gap,
            "fairness_gap_per_played_round": self.gap_played,
        }
        return {
            "scheme": self.scheme.name,
            "trials": len(self.first),
            "family": self.family,
            "cardinality_theorem_1": self.expected,
            "first_exposed": _numbers(self.first),
            "all_exposed": _numbers(self.everybody),
            "after_the_last_round": {name: _numbers(values[:, -1]) for name, values in series.items()},
            "mean_after_each_round": {
                name: [_numbers(values).get("mean") for values in table.T] for name, table in series.items()
            },
        }


@dataclass(frozen=True, eq=False)
class Losses:
    """Losses inside rounds in one setting, over all trials.

    ``broken`` and ``exposed`` are the rounds after which, with naive sums, strong T was below the promise and a client
    was exposed; NaN if neither happened. ``naive`` and ``aligned`` are the clients summed in a round, on average.
    """

    setting: Setting
    survival: float
    broken: Reals
    exposed: Reals
    clients: Reals
    naive: Reals
    aligned: Reals
    aligned_strong: Reals
    aligned_exposed: int
    rounds: int

    @classmethod
    def of(cls, setting: Setting, survival: float, records: Sequence[Record]) -> Losses:
        """Collect the trials of one setting."""

        def column(how: str, key: str) -> Reals:
            return np.array([record[how][key] for record in records], dtype=np.float64)

        return cls(
            setting=setting,
            survival=survival,
            broken=column("naive", "broken"),
            exposed=column("naive", "exposed"),
            clients=column("naive", "clients_exposed"),
            naive=column("naive", "aggregated"),
            aligned=column("aligned", "aggregated"),
            aligned_strong=column("aligned", "strong"),
            aligned_exposed=int(column("aligned", "clients_exposed").sum()),
            rounds=int(column("aligned", "rounds").min()),
        )

    def summary(self) -> Record:
        """All of it for JSON."""
        return {
            "setting": str(self.setting),
            "survival": self.survival,
            "trials": len(self.naive),
            "naive": {
                "strong_privacy_broken": _numbers(self.broken),
                "first_exposed": _numbers(self.exposed),
                "clients_exposed": _numbers(self.clients),
                "summed": _numbers(self.naive),
            },
            "aligned": {
                "strong_privacy": _numbers(self.aligned_strong),
                "clients_exposed": self.aligned_exposed,
                "summed": _numbers(self.aligned),
                "rounds": self.rounds,
            },
        }


@dataclass(frozen=True, eq=False)
class Histories:
    """All outcomes of the experiment."""

    curves: Sequence[Curves]
    losses: Sequence[Losses]

    @property
    def trials(self) -> int:
        """The number of trials of the case that has most."""
        return max([len(one.first) for one in self.curves] + [len(one.naive) for one in self.losses])


def _numbers(values: Reals) -> dict[str, float]:
    """Return mean, standard deviation and range, and the number of trials without a value."""
    there = values[~np.isnan(values)]
    numbers: dict[str, float] = {"missing": len(values) - len(there)}
    if there.size:
        least, median, most = np.quantile(there, (0, 0.5, 1)).tolist()
        numbers |= {"mean": float(there.mean()), "deviation": float(there.std())}
        numbers |= {"least": least, "median": median, "most": most}
    return {name: round(value, 4) for name, value in numbers.items()}
