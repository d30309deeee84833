"""Families of cohorts: none with strong T is larger than that of circles, and the largest ones with weak T = 2.

The first is the necessity argument of So et al. (2023), Appendix C. The second is left open on their slides ("What is
the optimal strategy?"); here it is answered for small sizes by trying every family.
"""

from collections.abc import Iterator
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.auditing.auditor import Auditor
from coterie.cohorts.theory import family_size


def cohorts(population: int, size: int) -> np.ndarray:
    """Return all cohorts of a size, as rows of zeros and ones."""
    rows = np.zeros((comb(population, size), population), dtype=np.int64)
    for row, chosen in zip(rows, combinations(range(population), size), strict=True):
        row[list(chosen)] = 1
    return rows


def families(population: int, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all families, some at a time: which cohorts each has, and all cohorts."""
    rows = cohorts(population, size)
    numbers = np.arange(1, 2 ** len(rows))
    for some in np.array_split(numbers, max(1, len(numbers) // 4096)):
        yield (some[:, None] >> np.arange(len(rows))) & 1, rows


def strong_privacy(has: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return strong T of each family: how many clients have the same column at least, of those that are in a cohort.

    Two columns are equal if no cohort of the family separates them.
    """
    separates = rows[:, :, None] != rows[:, None, :]
    equal = np.tensordot(has, separates, 1) == 0
    there = (has @ rows) > 0
    alike = np.where(there, equal.sum(axis=2), rows.shape[1] + 1)
    least: np.ndarray = alike.min(axis=1)
    return least


def weakly_private(has: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Tell of each family whether weak T is at least 2: no client's unit vector is in the row space."""
    population = rows.shape[1]
    grams = np.einsum("fr,ri,rj->fij", has, rows, rows).astype(float)
    ranks = np.linalg.matrix_rank(grams)
    safe = np.ones(len(has), dtype=bool)
    for client in range(population):
        unit = np.zeros((population, population))
        unit[client, client] = 1
        safe &= np.linalg.matrix_rank(grams + unit) > ranks
    return safe


def audited(family: np.ndarray) -> tuple[int | None, int | None]:
    """Return strong and weak T as the auditor finds them."""
    auditor = Auditor(map(str, range(family.shape[1])))
    for number, row in enumerate(family):
        auditor.add_round(number, map(str, np.flatnonzero(row)))
    report = auditor.report()
    return report.strong_privacy, report.weak_privacy


@pytest.mark.parametrize(("population", "size"), [(4, 2), (5, 2), (6, 2), (6, 4), (5, 3)])
@pytest.mark.parametrize("privacy", [2, 3])
def test_no_family_with_strong_privacy_is_larger_than_that_of_circles(population: int, size: int, privacy: int) -> None:
    """Appendix C, for all families: R <= C(N/T, K/T) if cohorts have at most half of the clients.

    (6, 4) has more than half: there are as many unions of two circles of three as of one, and the bound is that of the
    larger binomial coefficient.
    """
    largest = 0
    for has, rows in families(population, size):
        private = strong_privacy(has, rows) >= privacy
        largest = max(largest, int(has[private].sum(axis=1).max(initial=0)))
    circles, chosen = population // privacy, size // privacy
    assert largest <= max(comb(circles, k) for k in range(chosen + 1))
    if 2 * size <= population and population % privacy == 0 and size % privacy == 0:
        assert largest == family_size(population, size, privacy)


def partitions(left: tuple[int, ...], least: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield all ways to divide clients into classes of a least size, some clients in none of them."""
    if not left:
        yield []
        return
    first, *others = left
    yield from partitions(tuple(others), least)
    for more in range(least - 1, len(others) + 1):
        for mates in combinations(others, more):
            rest = tuple(client for client in others if client not in mates)
            for division in partitions(rest, least):
                yield [(first, *mates), *division]


@pytest.mark.parametrize(
    ("population", "size", "privacy"),
    [(8, 4, 2), (8, 2, 2), (9, 3, 3), (8, 4, 4), (9, 4, 2), (7, 3, 2), (7, 3, 3), (6, 3, 2)],
)
def test_classes_of_any_size_give_no_more_cohorts(population: int, size: int, privacy: int) -> None:
    """The argument itself: classes of equal columns have T clients at least, and cohorts are unions of classes."""
    most = 0
    for classes in partitions(tuple(range(population)), privacy):
        sizes = [len(one) for one in classes]
        unions = sum(sum(chosen) == size for count in range(1, len(sizes) + 1) for chosen in combinations(sizes, count))
        most = max(most, unions)
    assert most <= comb(population // privacy, size // privacy)
    if population % privacy == 0 and size % privacy == 0:
        assert most == family_size(population, size, privacy)


@pytest.mark.parametrize(
    ("population", "size", "largest", "how_many"),
    [(4, 2, 4, 3), (4, 3, 3, 4), (5, 2, 6, 10), (5, 3, 6, 15), (5, 4, 4, 5), (6, 2, 9, 10), (6, 4, 10, 6)],
)
def test_the_largest_families_of_weak_privacy_two(population: int, size: int, largest: int, how_many: int) -> None:
    """Best are two halves, each cohort with one client of each, for K = 2; one client in all cohorts for (6, 4)."""
    counts: dict[int, int] = {}
    for has, rows in families(population, size):
        sizes = has[weakly_private(has, rows)].sum(axis=1)
        for one, times in zip(*np.unique(sizes, return_counts=True), strict=True):
            counts[int(one)] = counts.get(int(one), 0) + int(times)
    assert max(counts) == largest
    assert counts[largest] == how_many
    star, halves = comb(population - 1, size - 1), comb(population // 2, size // 2) ** 2 if size % 2 == 0 else 0
    assert largest >= max(star if size < population - 1 else 0, halves)


@given(st.data())
def test_both_measures_are_the_auditors(data: st.DataObject) -> None:
    rows = cohorts(5, 2)
    numbers = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, unique=True))
    has = np.zeros((1, len(rows)), dtype=np.int64)
    has[0, numbers] = 1
    strong, weak = audited(rows[numbers])
    assert strong_privacy(has, rows)[0] == strong
    assert weakly_private(has, rows)[0] == ((weak or 0) >= 2)
