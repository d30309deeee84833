"""One trial: a history of selections, and what it reveals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coterie.auditing.auditor import Auditor
from coterie.auditing.row_space import RowSpace
from coterie.auditing.weak import weak_privacy
from coterie.cohorts.availability import mixed_dropout
from coterie.cohorts.circles import Indices, Mask, random_circles
from coterie.cohorts.policies import MultiRound, PolicySettings, make_policy, simulate
from coterie.reproduce.experiment import named
from coterie.reproduce.multi_round.settings import EQUAL, LEAKS, Leaks, MultiRoundSettings, Setting
from coterie.secagg.circles import whole_circles

if TYPE_CHECKING:
    from coterie.reproduce.experiment import Job, Record

_EASY = 4  # sets of up to this many classes are searched quickly: 8 million sets of 4 among 120


def measure(settings: MultiRoundSettings, job: Job, seed: int) -> Record:
    """Simulate one history, and measure it."""
    rng = np.random.default_rng([seed, job.trial, *job.case.encode()])
    if job.part == LEAKS and settings.leaks:
        return _leak(*settings.losses[job.case], settings.leaks, rng)
    if job.part == EQUAL and settings.equal:
        return _equal(settings, settings.levels[job.case], settings.equal.dropout, rng)
    # All schemes of a trial have the same clients.
    dropout = mixed_dropout(settings.population, np.random.default_rng([seed, job.trial]), settings.dropout)
    scheme = named(settings.schemes, job.case)
    chosen = PolicySettings(dropout, settings.cohort, scheme.privacy, scheme.mode)
    policy = make_policy(scheme.policy, chosen, rng)
    return _measure(simulate(policy, dropout, settings.rounds, rng))


def _equal(settings: MultiRoundSettings, privacy: int, chance: float, rng: np.random.Generator) -> Record:
    """Measure how often each circle takes part if everybody drops out equally often (Theorem 1)."""
    circles = random_circles(settings.population, privacy, np.random.default_rng(privacy))  # the same in all trials
    policy = MultiRound(circles, settings.cohort, "uniform")
    dropout = np.full(settings.population, chance)
    participation = simulate(policy, dropout, settings.rounds, rng)
    return {
        "rates": [round(float(participation[:, circle[0]].mean()), 6) for circle in circles],
        "cardinality": float(participation.sum(axis=1).mean()),
    }


def _measure(participation: Mask) -> Record:
    """Measure what a history reveals, and how it treats clients, after each round; rounds are counted from 1.

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
    """Return proven lower and upper bounds of weak T after each round; 0 while nothing was aggregated.

    Weak T is the least number of clients in a non-zero vector of the row space (So et al., Remark 1). Upper bounds: the
    smallest round; the lightest column that is a row-space vector of its own; and the lightest D - r + 1 of the D
    non-zero columns, where r is the rank, because so many always contain the support of a vector. If only sets of a few
    columns remain, all of them are tried, and the bound becomes the exact value. The row space only grows, so an exact
    value is a lower bound for all earlier rounds.
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
    """Simulate losses inside rounds, summed naively and circle-aligned, until the first exposure or the end.

    ``broken`` is the first round after which strong T is below the promise, ``exposed`` the first after which the
    server can compute a client's contribution exactly; None: not within the simulated rounds.
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
