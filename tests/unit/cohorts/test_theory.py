from fractions import Fraction
from itertools import combinations, product
from math import comb, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.cohorts.circles import Circles, Indices, Reals, random_circles, similar_circles
from coterie.cohorts.policies import MultiRound, simulate
from coterie.cohorts.theory import (
    KEPT_SHARE,
    LEAST_HONEST,
    USEFUL_SHARE,
    expected_variance,
    family_size,
    forecast,
    intact_share,
    selection_rates,
    selection_variance,
    trade_off,
)
from coterie.errors import ConfigError

PRIVACY = (1, 2, 3, 4, 6, 12)
CARDINALITY = {
    0.1: (12, 12, 12, 12, 11.9999, 11.5657),
    0.2: (12, 12, 12, 11.9996, 11.7775, 6.1117),
    0.3: (12, 12, 11.9990, 11.8288, 8.4001, 1.5612),
    0.4: (12, 12, 11.8025, 9.1814, 2.8679, 0.2587),
    0.5: (12, 11.9885, 9.0435, 3.4600, 0.4620, 0.0293),
}


def theorem_1(population: int, cohort: int, privacy: int, dropout: Fraction) -> Fraction:
    count, chosen = population // privacy, cohort // privacy
    incomplete = 1 - (1 - dropout) ** privacy
    too_few = range(count - chosen + 1, count + 1)
    lost = sum((comb(count, i) * incomplete**i * (1 - incomplete) ** (count - i) for i in too_few), Fraction(0))
    return cohort * (1 - lost)


def rates_by_enumeration(availability: Reals, chosen: int) -> Reals:
    rates = np.zeros(availability.size)
    for complete in product([False, True], repeat=availability.size):
        probability = np.where(complete, availability, 1 - availability).prod()
        rows = list(combinations(np.flatnonzero(complete), chosen))
        for row in rows:
            rates[list(row)] += probability / len(rows)
    return rates


@pytest.mark.parametrize("dropout", CARDINALITY)
def test_cardinality_table_for_120_clients_and_cohorts_of_12(dropout: float) -> None:
    rows = trade_off(120, 12, dropout, levels=PRIVACY)
    assert [row.privacy for row in rows] == list(PRIVACY)
    assert [row.cardinality for row in rows] == pytest.approx(CARDINALITY[dropout], abs=5.1e-5)


@pytest.mark.parametrize(
    ("population", "cohort", "expected"),
    [
        (240, 12, {3: 12.00, 4: 12.00, 6: 11.49, 12: 2.92}),
        (120, 24, {3: 23.63, 4: 18.26, 6: 4.86, 12: 0.19, 24: 0.023}),
    ],
)
def test_the_ablation_settings_have_the_known_cardinality(
    population: int, cohort: int, expected: dict[int, float]
) -> None:
    rows = trade_off(population, cohort, 0.3, levels=expected)
    assert {row.privacy: row.cardinality for row in rows} == pytest.approx(expected, abs=5.1e-3)


@given(st.integers(1, 6), st.integers(1, 12), st.fractions(0, 1, max_denominator=50), st.data())
def test_equal_circles_and_dropout_give_theorem_1(
    privacy: int, count: int, dropout: Fraction, data: st.DataObject
) -> None:
    cohort = privacy * data.draw(st.integers(1, count))
    exact = theorem_1(privacy * count, cohort, privacy, dropout)
    everyone = Circles.of(np.arange(privacy * count).reshape(count, privacy).tolist())
    ahead = forecast(everyone, cohort, float(dropout))
    assert ahead.cardinality == pytest.approx(float(exact), abs=1e-9)
    assert ahead.skipped == pytest.approx(1 - float(exact / cohort), abs=1e-9)
    assert ahead.fairness_gap == pytest.approx(0, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), min_size=1, max_size=7), st.data())
def test_rates_equal_enumeration_of_every_availability(drops: list[float], data: st.DataObject) -> None:
    availability = 1 - np.array(drops)
    chosen = data.draw(st.integers(1, availability.size))
    np.testing.assert_allclose(
        selection_rates(availability, chosen), rates_by_enumeration(availability, chosen), atol=1e-12
    )


def test_a_forecast_of_unequal_circles_and_dropout_equals_an_enumeration() -> None:
    circles = Circles.of([(0, 1, 2), (3, 4), (5, 6), (7, 8)])
    dropout = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.1, 0.2, 0.3, 0.4])
    expected = rates_by_enumeration(circles.availability(dropout), 2)
    ahead = forecast(circles, 5, dropout)
    np.testing.assert_allclose(ahead.rates, expected, atol=1e-12)
    assert ahead.cardinality == pytest.approx(3 * expected[0] + 2 * expected[1:].sum())
    assert ahead.fairness_gap == pytest.approx(expected.max() - expected.min())
    assert ahead.skipped == pytest.approx(1 - expected.sum() / 2)


def test_large_populations_are_computed_exactly() -> None:
    expected = theorem_1(3000, 600, 3, Fraction(2, 5))
    (row,) = trade_off(3000, 600, 0.4, levels=[3])
    assert row.cardinality == pytest.approx(float(expected), rel=1e-9)


def test_grouping_by_availability_raises_c_and_f() -> None:
    rng = np.random.default_rng(3)
    dropout = np.repeat([0.1, 0.2, 0.3, 0.4, 0.5], 24)
    shuffled = forecast(random_circles(120, 6, rng), 12, dropout)
    similar = forecast(similar_circles(dropout, 6, rng), 12, dropout)
    assert similar.cardinality > shuffled.cardinality + 1
    assert similar.fairness_gap > shuffled.fairness_gap


def test_family_sizes_are_exact() -> None:
    sizes = {privacy: family_size(120, 12, privacy) for privacy in (12, 6, 4, 3, 1)}
    assert sizes == {12: 10, 6: 190, 4: 4060, 3: 91_390, 1: comb(120, 12)}
    assert family_size(1_000_000, 1_000, 10) == comb(100_000, 100)


def test_selection_variance_of_circles() -> None:
    assert selection_variance(120, 12) == pytest.approx(0.0756, abs=5e-5)
    expected = {3: 0.231, 4: 0.310, 6: 0.474, 12: 1.0}
    assert {t: selection_variance(120 // t, 12 // t) for t in expected} == pytest.approx(expected, abs=5e-4)
    assert selection_variance(10, 10) == 0
    assert selection_variance(1, 1) == 0


def test_losses_in_a_round_leave_the_circles_that_stay_complete() -> None:
    six: Indices = np.full(20, 6)
    assert 12 * intact_share(six, 0.99) == pytest.approx(11.3, abs=0.05)
    assert 12 * intact_share(six, 0.95) == pytest.approx(8.8, abs=0.05)
    assert intact_share(six, 1.0) == 1
    assert intact_share(np.array([2, 3]), 0.5) == pytest.approx((2 * 0.25 + 3 * 0.125) / 5)
    for survival in (0.0, 1.01):
        with pytest.raises(ConfigError):
            intact_share(six, survival)
    for lost in (-0.1, 1.0):
        with pytest.raises(ConfigError, match="lost in a round"):
            trade_off(12, 6, 0.1, lost=lost)


def test_trade_off_has_a_row_for_each_feasible_t() -> None:
    rows = trade_off(120, 12, 0.2, lost=0.05)
    assert [row.privacy for row in rows] == list(range(1, 13))
    six = rows[5]
    assert (six.circles, six.chosen, six.family, six.cohort_needed) == (20, 2, 190, 12)
    assert six.aggregated == pytest.approx(six.cardinality * 0.95**6)
    assert six.convergence == pytest.approx(six.aggregated / 12)
    assert (six.colluders, six.honest, six.selected) == (0, 6, 2)
    assert (six.fewest_clients, six.most_clients) == (12, 12)
    assert six.over_selection == pytest.approx(0.95**-6)
    assert six.skipped == pytest.approx(1 - six.cardinality / 12)


def test_a_circle_that_does_not_fit_the_cohort_is_not_feasible() -> None:
    assert [row.privacy for row in trade_off(122, 12, 0.1)] == list(range(1, 12))


def test_unequal_circles_say_which_cohort_they_need() -> None:
    (tight,) = trade_off(122, 12, 0.1, levels=[6])
    (roomy,) = trade_off(122, tight.cohort_needed, 0.1, levels=[6])
    assert (tight.chosen, tight.cohort_needed) == (1, 14)
    assert (roomy.chosen, roomy.cohort_needed) == (2, 14)


@pytest.mark.parametrize(
    ("dropout", "best"), [(0.1, 12), (0.2, 6), (0.3, 4), (0.4, 3), (0.5, 2), (0.7, None), (0.99, None)]
)
def test_recommendation_is_the_largest_t_that_keeps_the_cohort(dropout: float, best: int | None) -> None:
    rows = trade_off(120, 12, dropout)
    assert [row.privacy for row in rows if row.recommended] == ([] if best is None else [best])


def test_a_recommendation_is_by_the_clients_that_are_aggregated() -> None:
    """With 15% lost in the round, T = 20 leaves 19.4 of 500 in the sum. An earlier version recommended it."""
    levels = [1, 2, 3, 4, 5, 10, 20, 50]
    rows = {row.privacy: row for row in trade_off(5000, 500, 0.0, lost=0.15, levels=levels)}
    assert rows[20].aggregated == pytest.approx(19.4, abs=0.05)
    assert rows[2].aggregated == pytest.approx(500 * 0.85**2)
    assert [row.privacy for row in rows.values() if row.recommended] == [2]


parameters = st.tuples(
    st.integers(2, 60), st.floats(0, 0.6), st.floats(0, 0.4), st.booleans(), st.integers(0, 4), st.data()
)


@settings(max_examples=60, deadline=None)
@given(parameters)
def test_the_recommended_t_aggregates_as_many_clients_as_any_other(
    drawn: tuple[int, float, float, bool, int, st.DataObject],
) -> None:
    population, absent, lost, over_select, colluders, data = drawn
    cohort = data.draw(st.integers(1, population))
    rows = trade_off(population, cohort, absent, lost=lost, over_select=over_select, colluders=lambda _: colluders)
    able = [row for row in rows if row.privacy - colluders >= LEAST_HONEST]
    useful = {row.privacy: min(row.aggregated, cohort) for row in able}
    best = [row for row in rows if row.recommended]
    assert len(best) <= 1
    for chosen in best:
        assert chosen in able
        mine = useful[chosen.privacy]
        assert mine >= KEPT_SHARE * max(useful.values())
        assert max(useful.values()) >= USEFUL_SHARE * cohort
        # No larger T aggregates as many, within the same share.
        assert all(useful[t] < KEPT_SHARE * max(useful.values()) for t in useful if t > chosen.privacy)
    if not best:
        assert max(useful.values(), default=0.0) < USEFUL_SHARE * cohort
    for row in rows:
        assert row.aggregated <= row.cardinality + 1e-9
        assert row.honest == row.privacy - min(colluders, row.privacy)
        assert 0 <= row.variance <= 1 + 1e-9


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 60), st.floats(0, 0.5), st.floats(0, 0.3), st.floats(0.001, 0.3), st.data())
def test_more_loss_never_aggregates_more_clients(
    population: int, absent: float, lost: float, more: float, data: st.DataObject
) -> None:
    cohort = data.draw(st.integers(1, population))
    mild = trade_off(population, cohort, absent, lost=lost)
    harsh = trade_off(population, cohort, absent, lost=lost + more)
    for better, worse in zip(mild, harsh, strict=True):
        assert worse.aggregated <= better.aggregated + 1e-9
        assert worse.variance >= better.variance - 1e-9
    over = trade_off(population, cohort, absent, lost=lost, over_select=True)
    for plain, more_circles in zip(mild, over, strict=True):
        assert more_circles.aggregated >= plain.aggregated - 1e-9
        assert more_circles.skipped == plain.skipped


def test_over_selection_is_what_the_policy_does() -> None:
    rng = np.random.default_rng(0)
    (row,) = trade_off(120, 12, 0.2, lost=0.05, over_select=True, levels=[6])
    policy = MultiRound(random_circles(120, 6, rng), 12, "uniform", survival=0.95)
    assert (row.selected, row.most_clients) == (policy.wanted, policy.largest)
    assert row.fewest_clients == 12
    sizes = simulate(policy, np.full(120, 0.2), 4_000, rng).sum(axis=1)
    assert sizes.mean() == pytest.approx(row.cardinality, abs=5 * sizes.std() / np.sqrt(sizes.size))
    assert row.aggregated == pytest.approx(row.cardinality * 0.95**6)


def test_variance_counts_the_circles_that_stay_whole() -> None:
    assert expected_variance(20, 2, 1.0) == pytest.approx(0.474, abs=5e-4)
    whole = {1: 2 * 0.9 * 0.1, 2: 0.9**2}
    exact = sum(chance * selection_variance(20, number) for number, chance in whole.items()) / sum(whole.values())
    assert expected_variance(20, 2, 0.9) == pytest.approx(exact)
    assert expected_variance(20, 2, 1e-300) == pytest.approx(1)


def test_sessions_that_cannot_be_played_are_not_recommended() -> None:
    rows = trade_off(120, 12, 0.1, playable=lambda clients: clients == 8)
    assert [row.privacy for row in rows if row.recommended] == [8]


def test_a_trade_off_of_unequal_clients_is_the_forecast_of_their_circles() -> None:
    rng = np.random.default_rng(0)
    dropout = np.linspace(0.1, 0.5, 60)
    (row,) = trade_off(60, 12, dropout, levels=[4], compose=lambda t: similar_circles(dropout, t, rng))
    ahead = forecast(similar_circles(dropout, 4, rng), 12, dropout)
    assert row.cardinality == pytest.approx(ahead.cardinality)
    assert row.fairness_gap == pytest.approx(ahead.fairness_gap)
    assert row.fairness_gap > 0


def test_impossible_arguments_are_refused() -> None:
    for cohort in (0, 13):
        with pytest.raises(ConfigError, match="cannot be drawn"):
            trade_off(12, cohort, 0.1)
    for dropout in (-0.5, 1.5):
        with pytest.raises(ConfigError, match="a probability from 0 to 1"):
            trade_off(12, 6, dropout)
    with pytest.raises(ConfigError, match="compose"):
        trade_off(12, 6, np.full(12, 0.1))


def test_circles_that_never_stay_whole_have_a_finite_over_selection() -> None:
    """0.4 to the power of 2,000 is 0 in floating point; dividing by it ended a plan."""
    (row,) = trade_off(4_000, 2_000, 0.0, lost=0.6, levels=[2_000])
    assert row.aggregated == 0
    assert 1e300 < row.over_selection < inf
