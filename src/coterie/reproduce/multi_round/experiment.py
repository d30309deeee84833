"""Selection alone, over many rounds: the privacy, cardinality and fairness of six schemes (So et al. 2021/2023).

Part ``metrics`` plays the paper's setting: clients with different dropout, 200 rounds, and after each round T, C and F.
T is exact where that can be proved quickly, and enclosed between proven bounds elsewhere; see :func:`weak_bounds`.

Part ``leaks`` adds what the paper leaves out: clients that drop out *inside* a round, after they were selected. Naive
secure aggregation sums the survivors, which splits circles. Circle-aligned unmasking sums intact circles only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coterie.auditing.auditor import Auditor
from coterie.auditing.row_space import RowSpace
from coterie.auditing.weak import weak_privacy
from coterie.cohorts.availability import mixed_dropout
from coterie.cohorts.circles import Indices, Mask, random_circles
from coterie.cohorts.policies import Mode, MultiRound, PolicySettings, make_policy, simulate
from coterie.errors import ConfigError
from coterie.reproduce.declarations import Job, Record
from coterie.secagg.circles import whole_circles

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.reproduce.declarations import Findings, JobContext

METRICS, LEAKS = "metrics", "leaks"
_EASY = 4  # sets of so many classes are searched in a moment: 8 million sets of 4 among 120


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the authors' result files hold for a scheme; the paper draws it and prints no number."""

    privacy: int
    cardinality: float
    fairness_gap: float
    first_exposed: str = ""


class Scheme(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A way to choose cohorts; ``privacy`` is the T it promises."""

    name: str
    policy: str
    privacy: int = 1
    mode: Mode = "fair"


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A population, its cohorts and the T promised to it."""

    population: int
    cohort: int
    privacy: int

    def __str__(self) -> str:
        return f"N={self.population}, K={self.cohort}, T={self.privacy}"


class Leaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings in which clients drop out inside rounds."""

    dropout: float
    survival: tuple[float, ...]
    rounds: int
    cases: tuple[Setting, ...]

    def by_name(self) -> dict[str, tuple[Setting, float]]:
        """Every setting with every probability of surviving a round."""
        return {f"{case}, s={survival:g}": (case, survival) for case in self.cases for survival in self.survival}


class MultiRoundMetrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The experiment; an :class:`~coterie.reproduce.declarations.Experiment`."""

    population: int
    cohort: int
    rounds: int
    dropout: tuple[float, ...]
    schemes: tuple[Scheme, ...]
    leaks: Leaks
    families: dict[str, str] = {}
    """How many different cohorts each scheme has, as the paper prints it; other schemes are variants of ours."""
    published: dict[str, Published] = {}

    def jobs(self, trials: int) -> list[Job]:
        """One job for each scheme, and for each setting with losses, in every trial."""
        cases = [(METRICS, scheme.name) for scheme in self.schemes] + [(LEAKS, name) for name in self.leaks.by_name()]
        return [Job(part, case, trial) for trial in range(trials) for part, case in cases]

    def run(self, job: Job, seed: int, context: JobContext) -> Record:
        """Play one history and measure it."""
        rng = np.random.default_rng([seed, job.trial, *job.case.encode()])
        if job.part == LEAKS:
            return _leak(*self.leaks.by_name()[job.case], self.leaks, rng)
        # All schemes of a trial meet the same clients.
        dropout = mixed_dropout(self.population, np.random.default_rng([seed, job.trial]), self.dropout)
        scheme = next(scheme for scheme in self.schemes if scheme.name == job.case)
        settings = PolicySettings(dropout, self.cohort, scheme.privacy, scheme.mode)
        policy = make_policy(scheme.policy, settings, rng)
        return _measure(simulate(policy, dropout, self.rounds, rng))

    def progress(self, job: Job, folder: Path) -> float:
        """Nothing is known before a job is done."""
        return 0.0

    def report(self, records: Mapping[Job, Record]) -> Findings:
        """Tables and figures beside the paper's; see :mod:`coterie.reproduce.multi_round.report`."""
        from coterie.reproduce.multi_round.report import make_report

        return make_report(self, records)

    def retell(self, summary: Record) -> Findings:
        """Not possible: the figures show every trial."""
        raise ConfigError(
            "the figures of this experiment show every trial, which its results do not hold: run it again"
        )


def _measure(participation: Mask) -> Record:
    """What a history gives away and how it treats its clients, after each round; rounds are counted from 1.

    ``spread`` is the difference between the most and the least frequent client's number of rounds: divided by the
    number of rounds it is F(t).
    """
    auditor = Auditor(map(str, range(participation.shape[1])))
    everybody: int | None = None
    strong: list[int | None] = []
    for number, row in enumerate(participation, 1):
        auditor.add_round(number, map(str, np.flatnonzero(row)))
        strong.append(auditor.strong_privacy)
        if everybody is None and len(auditor.exposed) == participation.shape[1]:
            everybody = number
    low, high = weak_bounds(participation)
    return {
        "aggregated": participation.sum(axis=1).tolist(),
        "spread": np.ptp(participation.cumsum(axis=0), axis=1).tolist(),
        "strong": strong,
        "weak_at_least": low.tolist(),
        "weak_at_most": high.tolist(),
        "first_exposed": auditor.exposed[0].round if auditor.exposed else None,
        "all_exposed": everybody,
    }


def weak_bounds(participation: Mask) -> tuple[Indices, Indices]:
    """Proven lower and upper bounds of weak T after each round; 0 while nothing was aggregated.

    Weak T is the least number of clients in a non-zero vector of the row space (So et al., Remark 1). Upper bounds:
    the smallest round; the lightest column that is a row-space vector of its own; and the lightest D - r + 1 of the D
    columns that are not zero, r being the rank, because so many always contain the support of a vector. When these
    leave only sets of a few columns to be tried, all of them are, and the bound becomes the exact value. What holds
    after a round held before it, as the row space only grows: so an exact value is a lower bound for all earlier ones.
    """
    columns, sizes = np.unique(participation, axis=1, return_counts=True)
    columns, sizes = columns[:, columns.any(axis=0)], sizes[columns.any(axis=0)]
    space, best, proved = RowSpace(sizes.size), 0, 0
    low, high = np.zeros((2, len(participation)), dtype=np.int64)
    seen = np.zeros(sizes.size, dtype=np.bool_)
    for number, row in enumerate(columns):
        if row.any() and space.add_row(np.flatnonzero(row).tolist()):
            seen |= row
            known = [int(sizes[row].sum()), int(np.sort(sizes[seen])[: seen.sum() - space.rank + 1].sum())]
            best = min([*known, *sizes[list(space.units())].tolist(), best or known[0]])
            proved = 0
            if np.searchsorted(np.cumsum(np.sort(sizes)), best) <= _EASY:
                found = weak_privacy(space, sizes.tolist())
                best, proved = found.value, found.at_least
        low[number], high[number] = proved, best
    return np.where(high > 0, np.maximum.accumulate(low[::-1])[::-1], 0), high


def _leak(setting: Setting, survival: float, leaks: Leaks, rng: np.random.Generator) -> Record:
    """Play a history with losses inside rounds, summed naively and circle-aligned, to the first exposure or the end.

    ``broken`` is the first round after which strong T is below the promise, ``exposed`` the first after which the
    server can compute a client's contribution exactly; None: not within the rounds played.
    """
    circles = random_circles(setting.population, setting.privacy, rng)
    policy, groups = MultiRound(circles, setting.cohort), list(circles)
    record: Record = {}
    for aligned, mode_rng in zip((False, True), rng.spawn(2), strict=True):
        auditor, broken, totals = Auditor(map(str, range(setting.population))), None, []
        for number in range(1, leaks.rounds + 1):
            available = mode_rng.random(setting.population) >= leaks.dropout
            selected = policy.select(available, auditor.frequencies, mode_rng)
            survivors = selected[mode_rng.random(selected.size) < survival].tolist()
            aggregated = whole_circles(groups, survivors) if aligned else survivors
            auditor.add_round(number, map(str, aggregated))
            if selected.size:
                totals.append(len(aggregated))
            if broken is None and (auditor.strong_privacy or setting.privacy) < setting.privacy:
                broken = number
            if auditor.exposed:
                break
        record["aligned" if aligned else "naive"] = {
            "broken": broken,
            "exposed": auditor.exposed[0].round if auditor.exposed else None,
            "clients_exposed": len(auditor.exposed),
            "strong": auditor.strong_privacy,
            "rounds": number,
            "aggregated": float(np.mean(totals)) if totals else 0.0,
        }
    return record
