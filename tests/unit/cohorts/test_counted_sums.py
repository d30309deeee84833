"""The probability that a sum counts equals an enumeration of all outcomes for all clients."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.cohorts.circles import Indices, Reals, circle_sizes, random_circles
from coterie.cohorts.counted_sums import Needs, active_needs, sum_chances
from coterie.cohorts.policies import MultiRound, simulate
from coterie.cohorts.theory import trade_off
from coterie.errors import ConfigError


def enumerated(sizes: Indices, selected: int, survival: float, needs: Needs, signing: float) -> Reals:
    """Play every set of selected circles and every fate of their clients: lost, there, and there to sign as well."""
    fates = {"lost": 1 - survival, "silent": survival * (1 - signing), "signs": survival * signing}
    fates = {fate: chance for fate, chance in fates.items() if chance}
    counted, times = np.zeros(sizes.size), np.zeros(sizes.size)
    for circles in combinations(range(sizes.size), selected):
        times[list(circles)] += 1
        owner = np.repeat(circles, sizes[list(circles)])
        least, quorum = needs(owner.size)
        for fate in product(fates, repeat=owner.size):
            gone = set(owner[[one == "lost" for one in fate]].tolist())
            whole = [circle for circle in circles if circle not in gone]
            if sizes[whole].sum() >= least and fate.count("signs") >= quorum:
                counted[whole] += np.prod([fates[one] for one in fate])
    return counted / times


@settings(max_examples=40)
@given(st.integers(2, 9), st.integers(1, 4), st.data())
def test_chances_equal_an_enumeration_of_all_outcomes(population: int, privacy: int, data: st.DataObject) -> None:
    sizes = circle_sizes(population, min(privacy, population))
    most = max(number for number in range(1, sizes.size + 1) if np.sort(sizes)[-number:].sum() <= 7 or number == 1)
    selected = data.draw(st.integers(1, most))
    survival, signing = data.draw(st.floats(0.05, 1)), data.draw(st.sampled_from([1.0, 0.9, 0.4]))
    if signing < 1 and np.sort(sizes)[-selected:].sum() > 6:
        signing = 1.0  # three fates of each client are too many to play
    colluders, minimum = data.draw(st.integers(0, 5)), data.draw(st.integers(2, 6))
    rules: list[Needs] = [active_needs(minimum, colluders), lambda _: (minimum, 0)]
    for needs in rules:
        found = sum_chances(sizes, selected, survival, needs, signing)
        assert found == pytest.approx(enumerated(sizes, selected, survival, needs, signing), abs=1e-9)


def test_a_sum_that_can_never_be_large_enough_never_counts() -> None:
    assert sum_chances(np.array([7, 7, 7]), 1, 0.98, active_needs(2, 6)).tolist() == [0, 0, 0]
    assert sum_chances(np.array([7, 8]), 1, 1.0, active_needs(2, 6)).tolist() == [0, 1]
    assert sum_chances(np.array([4, 4]), 2, 0.9, None) == pytest.approx([0.9**4] * 2)
    with pytest.raises(ConfigError, match="surviving"):
        sum_chances(np.array([2, 2]), 1, 0.0, None)


def test_large_sessions_are_computed_too() -> None:
    chances = sum_chances(np.full(100, 700), 100, 0.9999, active_needs(2, 100))
    assert chances == pytest.approx(np.full(100, 0.9999**700))
    many = sum_chances(np.array([2] * 400 + [3] * 100), 300, 0.99, active_needs(2, 100))
    assert many == pytest.approx(0.99 ** np.array([2] * 400 + [3] * 100))


@pytest.mark.parametrize(("privacy", "over_select"), [(3, False), (5, False), (6, False), (4, True), (6, True)])
def test_a_plan_against_a_malicious_server_is_what_rounds_give(privacy: int, over_select: bool) -> None:
    """Rounds with fewer than c + 2 = 8 clients in the sum, or fewer survivors than the quorum, have no result."""
    rng = np.random.default_rng(7)
    needs, lost = active_needs(2, 6), 0.05
    (row,) = trade_off(120, 12, 0.3, lost=lost, over_select=over_select, levels=[privacy], needs=needs)
    circles = random_circles(120, privacy, rng)
    policy = MultiRound(circles, 12, "uniform", survival=1 - lost if over_select else 1.0)
    totals = []
    for selected in simulate(policy, np.full(120, 0.3), 4_000, rng):
        there = selected & (rng.random(120) >= lost)
        summed = int(circles.sizes[circles.complete(there)].sum())
        least, quorum = needs(int(selected.sum()))
        totals.append(summed if summed >= least and there.sum() >= quorum else 0)
    assert row.aggregated == pytest.approx(np.mean(totals), abs=4 * np.std(totals) / np.sqrt(len(totals)))
    (without_needs,) = trade_off(120, 12, 0.3, lost=lost, over_select=over_select, levels=[privacy])
    assert row.aggregated < without_needs.aggregated


def test_a_t_that_never_reaches_the_floor_is_not_recommended() -> None:
    rows = trade_off(126, 12, 0.01, levels=[6, 7], needs=active_needs(2, 6))
    assert [row.aggregated > 0 for row in rows] == [True, False]
    assert [row.recommended for row in rows] == [True, False]
    (alone,) = trade_off(126, 12, 0.01, levels=[7], needs=active_needs(2, 6))
    assert not alone.recommended
