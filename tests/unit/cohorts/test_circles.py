"""Circles: how a population is divided, and which circles are whole."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cohorts.circles import (
    Circles,
    circle_sizes,
    circles_per_round,
    random_circles,
    similar_circles,
)
from coterie.errors import ConfigError
from coterie.secagg.circles import whole_circles

seeds = st.integers(0, 2**32 - 1)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[int, int, Circles]:
    privacy = draw(st.integers(1, 9))
    population = draw(st.integers(privacy, 80))
    return population, privacy, random_circles(population, privacy, np.random.default_rng(draw(seeds)))


@given(st.integers(1, 40), st.integers(0, 2_000))
def test_sizes_cover_everyone_and_never_fall_below_t(privacy: int, more: int) -> None:
    population = privacy + more
    sizes = circle_sizes(population, privacy)
    count, left_over = divmod(population, privacy)
    assert sizes.sum() == population
    assert sizes.size == count
    assert sizes.min() >= privacy
    assert sizes.max() - sizes.min() <= 1
    assert sizes.max() <= privacy + -(-left_over // count)


@pytest.mark.parametrize(("population", "privacy"), [(2, 3), (0, 1), (5, 0), (5, -2)])
def test_impossible_circles_are_refused(population: int, privacy: int) -> None:
    with pytest.raises(ConfigError):
        circle_sizes(population, privacy)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.data())
def test_k_is_the_largest_number_of_circles_that_always_fit(sizes: list[int], data: st.DataObject) -> None:
    cohort = data.draw(st.integers(max(sizes), sum(sizes)))
    chosen = circles_per_round(np.array(sizes), cohort)
    largest_first = sorted(sizes, reverse=True)
    assert sum(largest_first[:chosen]) <= cohort
    assert chosen == len(sizes) or sum(largest_first[: chosen + 1]) > cohort


@given(st.integers(1, 10), st.integers(1, 30), st.data())
def test_equal_circles_give_the_papers_k(privacy: int, count: int, data: st.DataObject) -> None:
    cohort = data.draw(st.integers(privacy, privacy * count))
    assert circles_per_round(circle_sizes(privacy * count, privacy), cohort) == cohort // privacy


@pytest.mark.parametrize("cohort", [0, 3, 13])
def test_cohorts_that_hold_no_circle_or_more_than_everyone_are_refused(cohort: int) -> None:
    with pytest.raises(ConfigError):
        circles_per_round(np.array([4, 4, 4]), cohort)


@given(partitions(), seeds)
def test_vectorised_operations_agree_with_sets(case: tuple[int, int, Circles], seed: int) -> None:
    population, privacy, circles = case
    rng = np.random.default_rng(seed)
    available = rng.random(population) < 0.8
    counts = rng.integers(0, 5, population)
    dropout = rng.random(population)
    chosen = np.flatnonzero(rng.random(len(circles)) < 0.5)
    listed = list(circles)
    assert sorted(chain(*listed)) == list(range(population))
    assert list(Circles.of(listed)) == listed
    assert circles.sizes.tolist() == [len(group) for group in listed]
    assert circles.privacy == min(map(len, listed)) >= privacy
    assert circles.span == population
    assert circles.complete(available).tolist() == [all(available[i] for i in group) for group in listed]
    assert circles.lowest(counts).tolist() == [min(counts[i] for i in group) for group in listed]
    np.testing.assert_allclose(
        circles.availability(dropout), [np.prod([1 - dropout[i] for i in group]) for group in listed]
    )
    assert circles.union(chosen).tolist() == sorted(chain(*(listed[b] for b in chosen)))


@given(partitions(), seeds)
def test_whole_circles_are_the_same_by_number_by_name_and_in_arrays(case: tuple[int, int, Circles], seed: int) -> None:
    population, _, circles = case
    available = np.random.default_rng(seed).random(population) < 0.8
    present = np.flatnonzero(available).tolist()
    whole = whole_circles(circles, present)
    assert whole <= set(present)
    assert sorted(whole) == circles.union(np.flatnonzero(circles.complete(available))).tolist()
    for circle in circles:
        assert whole.issuperset(circle) if available[list(circle)].all() else whole.isdisjoint(circle)
    names = [[f"client {member}" for member in circle] for circle in circles]
    assert whole_circles(names, [f"client {member}" for member in present]) == {f"client {m}" for m in whole}


def test_circles_need_not_cover_the_population() -> None:
    circles = Circles.of([(7, 2), (0, 9, 4)])
    assert len(circles) == 2
    assert circles.span == 10
    assert circles.complete(np.arange(10) != 5).tolist() == [True, True]
    assert circles.union(np.array([1])).tolist() == [0, 4, 9]


def test_a_partition_may_have_no_circles() -> None:
    nothing = Circles.of([])
    assert (len(nothing), nothing.span, nothing.privacy, list(nothing)) == (0, 0, 0, [])


@pytest.mark.parametrize("listed", [[(0, 1), (1, 2)], [(0, 1), ()], [(-1, 0)], [(), (0, 1)]])
def test_overlapping_empty_or_negative_circles_are_refused(listed: list[tuple[int, ...]]) -> None:
    with pytest.raises(ConfigError):
        Circles.of(listed)


@given(st.integers(1, 6), st.integers(1, 8), seeds)
def test_sorting_by_availability_maximises_the_expected_number_of_complete_circles(
    privacy: int, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    dropout = rng.random(privacy * count)
    similar = similar_circles(dropout, privacy, rng).availability(dropout)
    shuffled = random_circles(dropout.size, privacy, rng).availability(dropout)
    assert similar.sum() >= shuffled.sum() - 1e-12


def test_left_over_clients_join_the_most_reliable_circles() -> None:
    dropout = np.array([0.5, 0.1, 0.4, 0.2, 0.3])
    circles = similar_circles(dropout, 2, np.random.default_rng(0))
    assert list(circles) == [(1, 3, 4), (2, 0)]


def test_equal_availability_is_ordered_at_random() -> None:
    dropout = np.full(40, 0.3)
    one, two = (similar_circles(dropout, 4, np.random.default_rng(seed)) for seed in (1, 2))
    assert list(one) != list(two)
