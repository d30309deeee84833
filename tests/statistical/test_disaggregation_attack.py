"""Disaggregation finds nothing where there is nothing: seeded, with a bound far wider than chance needs."""

import numpy as np

from coterie.attacks.disaggregation.algebra import disaggregate, entries_right_by_counts, period_counts
from coterie.cohorts.circles import Mask
from coterie.cohorts.policies import PolicySettings, make_policy, simulate

CLIENTS, ROUNDS, PERIOD, SEEDS = 6, 12, 6, 40


def planted(seed: int) -> tuple[Mask, np.random.Generator]:
    rng = np.random.default_rng(seed)
    settings = PolicySettings(np.zeros(CLIENTS), 3, 1)
    return simulate(make_policy("random", settings, rng), settings.dropout, ROUNDS, rng), rng


def test_totals_of_pure_noise_reveal_no_more_than_the_counts() -> None:
    """Zeros and ones that fit noise are as good as drawn with the right counts.

    Rounds of a period are alike, so who took part in c of its L rounds was in each with probability p = c/L, whatever
    the noise is: zeros and ones with the right counts are right with probability p^2 + (1 - p)^2 on average, which is
    less than max(p, 1 - p). Over one seed the share of entries right has a deviation of about 0.04 around that, over
    the mean of 40 seeds 0.0063: the bound of 0.03 is more than four of these.
    """
    right, drawn, by_counts = [], [], []
    for seed in range(SEEDS):
        participation, rng = planted(seed)
        counts = period_counts(participation, PERIOD)
        found = disaggregate(rng.normal(size=(ROUNDS, 20)), counts, PERIOD)
        shares = counts / PERIOD
        right.append(np.mean(found == participation))
        drawn.append(np.mean(shares**2 + (1 - shares) ** 2))
        by_counts.append(entries_right_by_counts(counts, np.full(ROUNDS // PERIOD, PERIOD)))
    assert abs(np.mean(right) - np.mean(drawn)) < 0.03
    assert np.mean(right) < np.mean(by_counts)
