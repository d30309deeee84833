"""Selection follows the distributions it claims. Seeded; a wrong distribution gives p-values far below the floor."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2, chisquare, norm

from coterie.cohorts.availability import mixed_dropout
from coterie.cohorts.circles import Circles, Indices, Mask, Reals, random_circles, similar_circles
from coterie.cohorts.policies import (
    Iid,
    Mode,
    MultiRound,
    Policy,
    PolicySettings,
    Random,
    WeightedRandom,
    make_policy,
    simulate,
)
from coterie.cohorts.theory import forecast, intact_share

FLOOR = 1e-6
CIRCLES = Circles.of([(0, 5), (1, 8), (2, 9, 11), (3, 4), (6, 10), (7, 12)])
AVAILABLE = np.arange(13) != 8  # circle (1, 8) is incomplete
FREQUENCIES = np.array([3, 0, 1, 2, 2, 3, 1, 4, 0, 1, 1, 1, 4])  # client 1 is the least frequent; ties at 1
Row = tuple[int, ...]


def observe(policy: Policy, available: Mask, frequencies: Indices, draws: int) -> Counter[Row]:
    rng = np.random.default_rng(20_240_229)
    return Counter(tuple(policy.select(available, frequencies, rng).tolist()) for _ in range(draws))


def assert_follows(counts: Counter[Row], distribution: dict[Row, float]) -> None:
    assert counts.keys() <= distribution.keys()
    draws = counts.total()
    expected = [draws * probability for probability in distribution.values()]
    assert min(expected) > 20
    assert chisquare([counts[row] for row in distribution], expected).pvalue > FLOOR


def rows_inside(circles: Circles, available: Mask, chosen: int) -> list[set[int]]:
    """The family B, listed in full, and of it the rows with available clients only."""
    groups = list(map(set, circles))
    family = [set[int]().union(*choice) for choice in combinations(groups, chosen)]
    return [row for row in family if all(available[list(row)])]


def mixture(rows_by_component: list[list[set[int]]]) -> dict[Row, float]:
    distribution: Counter[Row] = Counter()
    for rows in rows_by_component:
        for row in rows:
            distribution[tuple(sorted(row))] += 1 / len(rows) / len(rows_by_component)  # type: ignore[assignment]
    return dict(distribution)


@pytest.mark.parametrize(("cohort", "chosen"), [(5, 2), (7, 3)])
def test_uniform_mode_is_uniform_over_the_available_rows_of_the_family(cohort: int, chosen: int) -> None:
    counts = observe(MultiRound(CIRCLES, cohort, "uniform"), AVAILABLE, FREQUENCIES, 3_000)
    assert_follows(counts, mixture([rows_inside(CIRCLES, AVAILABLE, chosen)]))


@pytest.mark.parametrize(("cohort", "chosen"), [(3, 1), (5, 2), (7, 3)])
def test_fair_mode_is_uniform_over_the_rows_with_the_least_frequent_circle(cohort: int, chosen: int) -> None:
    counts = observe(MultiRound(CIRCLES, cohort), AVAILABLE, FREQUENCIES, 3_000)
    rows = rows_inside(CIRCLES, AVAILABLE, chosen)
    least_used = [{2, 9, 11}, {6, 10}]  # both have frequency 1; client 1 (frequency 0) lacks its mate 8
    assert_follows(counts, mixture([[row for row in rows if circle <= row] for circle in least_used]))


def test_fairest_mode_breaks_ties_at_random() -> None:
    # Frequencies of complete circles: 3, 1, 2, 1, 4; with counts of 2 and 3 made equal one place is a tie.
    frequencies = np.where(FREQUENCIES == 3, 2, FREQUENCIES)
    counts = observe(MultiRound(CIRCLES, 7, "fairest"), AVAILABLE, frequencies, 2_000)
    sure = {2, 9, 11} | {6, 10}
    assert_follows(counts, mixture([[sure | {0, 5}, sure | {3, 4}]]))


def test_circles_of_one_are_random_selection() -> None:
    available = np.arange(8) != 3
    distribution = mixture([[set(row) for row in combinations(np.flatnonzero(available).tolist(), 3)]])
    nobody = np.zeros(8, dtype=np.int64)
    singles = MultiRound(random_circles(8, 1, np.random.default_rng(0)), 3, "uniform")
    for policy in (Random(3), singles, WeightedRandom(3)):
        assert_follows(observe(policy, available, nobody, 3_000), distribution)


def test_weighted_random_breaks_ties_at_random() -> None:
    frequencies = np.array([0, 2, 2, 2, 5, 1])
    counts = observe(WeightedRandom(3), np.ones(6, dtype=np.bool_), frequencies, 2_000)
    assert_follows(counts, mixture([[{0, 5, other} for other in (1, 2, 3)]]))


def test_iid_tosses_one_coin_for_each_client() -> None:
    available = np.array([True, True, False, True])
    counts = observe(Iid(0.3), available, np.zeros(4, dtype=np.int64), 6_000)
    subsets = [row for size in range(4) for row in combinations((0, 1, 3), size)]
    assert_follows(counts, {row: 0.3 ** len(row) * 0.7 ** (3 - len(row)) for row in subsets})


def assert_mean(samples: Reals, expected: float) -> None:
    error = samples.std(ddof=1) / np.sqrt(samples.size)
    assert 2 * norm.sf(abs(samples.mean() - expected) / error) > FLOOR


@pytest.mark.parametrize("mode", ["uniform", "fair", "fairest"])
@pytest.mark.parametrize(("privacy", "dropout"), [(6, 0.3), (4, 0.4), (12, 0.2)])
def test_cardinality_is_that_of_theorem_1_in_every_mode(mode: Mode, privacy: int, dropout: float) -> None:
    rng = np.random.default_rng(7)
    circles = random_circles(120, privacy, rng)
    history = simulate(MultiRound(circles, 12, mode), np.full(120, dropout), 2_000, rng)
    assert_mean(history.sum(axis=1).astype(float), forecast(circles, 12, dropout).cardinality)


def test_fairness_gap_vanishes_with_equal_dropout() -> None:
    rng = np.random.default_rng(8)
    policy = MultiRound(random_circles(60, 3, rng), 12, "uniform")
    history = simulate(policy, np.full(60, 0.3), 8_000, rng)
    gaps = [np.ptp(history[:rounds].mean(axis=0)) for rounds in (80, 800, 8_000)]
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2]  # falls like 1/√J: by √10 for ten times the rounds
    per_circle = history[:, policy.circles.members[policy.circles.starts]].sum(axis=0)
    # k of D circles without replacement: counts have variance k(D - k)/D² a round and sum to a constant.
    rounds, total, chosen = int(history.any(axis=1).sum()), len(policy.circles), policy.chosen
    spread = rounds * chosen * (total - chosen) / (total * (total - 1))
    statistic = ((per_circle - per_circle.mean()) ** 2).sum() / spread
    assert chi2.sf(statistic, total - 1) > FLOOR


@pytest.mark.parametrize("compose", ["random", "similar"])
@pytest.mark.parametrize(("population", "cohort", "privacy"), [(60, 12, 4), (62, 14, 4)])
def test_selections_follow_the_forecast_for_unequal_circles_and_dropout(
    compose: str, population: int, cohort: int, privacy: int
) -> None:
    rng = np.random.default_rng(9)
    dropout = mixed_dropout(population, rng)
    if compose == "random":
        circles = random_circles(population, privacy, rng)
    else:
        circles = similar_circles(dropout, privacy, rng)
    ahead = forecast(circles, cohort, dropout)
    history = simulate(MultiRound(circles, cohort, "uniform"), dropout, 3_000, rng)
    rows = history.sum(axis=1).astype(float)
    assert_mean(rows, ahead.cardinality)
    assert_mean((rows == 0).astype(float), ahead.skipped)
    for first, rate in zip(circles.members[circles.starts], ahead.rates, strict=True):
        assert_mean(history[:, first].astype(float), rate)


@pytest.mark.parametrize(("privacy", "mean", "spread"), [(6, 8.4001, 0.77), (12, 1.5612, 0.36)])
def test_mixed_dropout_costs_as_much_as_its_mean_on_average(privacy: int, mean: float, spread: float) -> None:
    rng = np.random.default_rng(10)
    circles = random_circles(120, privacy, rng)
    drawn = np.array([forecast(circles, 12, mixed_dropout(120, rng)).cardinality for _ in range(1_000)])
    assert_mean(drawn, mean)
    assert drawn.std() == pytest.approx(spread, rel=0.1)


def test_fairness_aware_selection_is_fairer_under_mixed_dropout() -> None:
    rng = np.random.default_rng(11)
    dropout = mixed_dropout(120, rng)
    circles = random_circles(120, 4, rng)
    modes: tuple[Mode, ...] = ("uniform", "fair", "fairest")
    gaps = [np.ptp(simulate(MultiRound(circles, 12, m), dropout, 3_000, rng).mean(axis=0)) for m in modes]
    assert gaps[0] > 1.2 * gaps[1] > 2 * gaps[2]


def test_over_selection_restores_the_cohort_after_in_round_losses() -> None:
    rng = np.random.default_rng(12)
    survival = 0.95
    circles = random_circles(120, 6, rng)
    policy = MultiRound(circles, 12, survival=survival)
    aggregated = np.empty(3_000)
    for number in range(aggregated.size):
        selected = policy.select(np.ones(120, dtype=np.bool_), np.zeros(120, dtype=np.int64), rng)
        survivors = np.zeros(120, dtype=np.bool_)
        survivors[selected[rng.random(selected.size) < survival]] = True
        aggregated[number] = circles.sizes[circles.complete(survivors)].sum()
    expected = 6 * policy.wanted * intact_share(circles.sizes, survival)
    assert expected >= 12
    assert_mean(aggregated, expected)


def test_partition_aggregates_as_many_clients_as_theorem_1_states() -> None:
    rng = np.random.default_rng(13)
    history = simulate(
        make_policy("partition", PolicySettings(np.full(120, 0.2), 12), rng), np.full(120, 0.2), 4_000, rng
    )
    assert_mean(history.sum(axis=1).astype(float), 6.1117)
