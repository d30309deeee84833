from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cohorts.circles import (
    Batches,
    batch_sizes,
    batches_per_round,
    random_batches,
    similar_batches,
)
from coterie.errors import ConfigError

seeds = st.integers(0, 2**32 - 1)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[int, int, Batches]:
    privacy = draw(st.integers(1, 9))
    population = draw(st.integers(privacy, 80))
    return population, privacy, random_batches(population, privacy, np.random.default_rng(draw(seeds)))


def groups(batches: Batches) -> list[list[int]]:
    return [part.tolist() for part in np.split(batches.members, batches.starts[1:])]


@given(st.integers(1, 40), st.integers(0, 2_000))
def test_sizes_cover_everyone_and_never_fall_below_t(privacy: int, more: int) -> None:
    population = privacy + more
    sizes = batch_sizes(population, privacy)
    count, left_over = divmod(population, privacy)
    assert sizes.sum() == population
    assert sizes.size == count
    assert sizes.min() >= privacy
    assert sizes.max() - sizes.min() <= 1
    assert sizes.max() <= privacy + -(-left_over // count)


@pytest.mark.parametrize(("population", "privacy"), [(2, 3), (0, 1), (5, 0), (5, -2)])
def test_impossible_batches_are_refused(population: int, privacy: int) -> None:
    with pytest.raises(ConfigError):
        batch_sizes(population, privacy)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.data())
def test_any_k_batches_fit_and_k_is_the_largest_such_number(sizes: list[int], data: st.DataObject) -> None:
    cohort = data.draw(st.integers(max(sizes), sum(sizes)))
    chosen = batches_per_round(np.array(sizes), cohort)
    largest_first = sorted(sizes, reverse=True)
    assert sum(largest_first[:chosen]) <= cohort
    assert chosen == len(sizes) or sum(largest_first[: chosen + 1]) > cohort


@given(st.integers(1, 10), st.integers(1, 30), st.data())
def test_equal_batches_give_the_papers_k(privacy: int, count: int, data: st.DataObject) -> None:
    cohort = data.draw(st.integers(privacy, privacy * count))
    assert batches_per_round(batch_sizes(privacy * count, privacy), cohort) == cohort // privacy


@pytest.mark.parametrize("cohort", [0, 3, 13])
def test_cohorts_that_hold_no_batch_or_more_than_everyone_are_refused(cohort: int) -> None:
    with pytest.raises(ConfigError):
        batches_per_round(np.array([4, 4, 4]), cohort)


@given(partitions(), seeds)
def test_vectorised_operations_agree_with_sets(case: tuple[int, int, Batches], seed: int) -> None:
    population, privacy, batches = case
    rng = np.random.default_rng(seed)
    available = rng.random(population) < 0.8
    counts = rng.integers(0, 5, population)
    dropout = rng.random(population)
    chosen = np.flatnonzero(rng.random(len(batches)) < 0.5)
    listed = groups(batches)
    assert sorted(chain(*listed)) == list(range(population))
    assert batches.sizes.tolist() == [len(group) for group in listed]
    assert batches.privacy == min(map(len, listed)) >= privacy
    assert batches.span == population
    assert batches.complete(available).tolist() == [all(available[i] for i in group) for group in listed]
    assert batches.lowest(counts).tolist() == [min(counts[i] for i in group) for group in listed]
    np.testing.assert_allclose(
        batches.availability(dropout), [np.prod([1 - dropout[i] for i in group]) for group in listed]
    )
    assert batches.union(chosen).tolist() == sorted(chain(*(listed[b] for b in chosen)))


def test_batches_need_not_cover_the_population() -> None:
    batches = Batches.of([(7, 2), (0, 9, 4)])
    assert len(batches) == 2
    assert batches.span == 10
    assert batches.complete(np.arange(10) != 5).tolist() == [True, True]
    assert batches.union(np.array([1])).tolist() == [0, 4, 9]


def test_there_may_be_no_batches() -> None:
    nothing = Batches.of([])
    assert (len(nothing), nothing.span, nothing.privacy, nothing.sizes.size) == (0, 0, 0, 0)


@pytest.mark.parametrize("listed", [[(0, 1), (1, 2)], [(0, 1), ()], [(-1, 0)], [(), (0, 1)]])
def test_overlapping_empty_or_negative_batches_are_refused(listed: list[tuple[int, ...]]) -> None:
    with pytest.raises(ConfigError):
        Batches.of(listed)


@given(st.integers(1, 6), st.integers(1, 8), seeds)
def test_sorting_by_availability_maximises_the_expected_number_of_complete_batches(
    privacy: int, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    dropout = rng.random(privacy * count)
    similar = similar_batches(dropout, privacy, rng).availability(dropout)
    shuffled = random_batches(dropout.size, privacy, rng).availability(dropout)
    assert similar.sum() >= shuffled.sum() - 1e-12


def test_left_over_clients_join_the_most_reliable_batches() -> None:
    dropout = np.array([0.5, 0.1, 0.4, 0.2, 0.3])
    batches = similar_batches(dropout, 2, np.random.default_rng(0))
    assert groups(batches) == [[1, 3, 4], [2, 0]]


def test_equal_availability_is_ordered_at_random() -> None:
    dropout = np.full(40, 0.3)
    one, two = (similar_batches(dropout, 4, np.random.default_rng(seed)) for seed in (1, 2))
    assert groups(one) != groups(two)
