"""Shares of noise: enough in the smallest sum that may be opened, and more in larger sums, in proportion."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.crypto.entropy import DeterministicEntropy
from coterie.errors import ConfigError
from coterie.privacy import DISTRIBUTIONS, Noise, least_aggregated

circles = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(circles, st.integers(0, 20))
def test_least_aggregated_is_the_smallest_union_of_circles(sizes: list[int], minimum: int) -> None:
    sums = {sum(chosen) for count in range(len(sizes) + 1) for chosen in combinations(sizes, count)}
    enough = [total for total in sums if total >= minimum]
    if enough:
        assert least_aggregated(sizes, minimum) == min(enough)
    else:
        with pytest.raises(ConfigError, match="never reach"):
            least_aggregated(sizes, minimum)


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_the_smallest_sum_has_the_target_variance_and_larger_ones_more_in_proportion(kind: str) -> None:
    clients, least, target = 16, 8, 30.0
    noise = Noise.for_sum(kind, target, least)
    assert noise.least * noise.variance == pytest.approx(target**2)
    size = 40_000
    shares = [noise.sample(size, DeterministicEntropy(b"client %d" % client)) for client in range(clients)]
    for count in (least, 12, clients):
        variance = np.square(sum(shares[:count], np.zeros(size, np.int64))).mean()
        expected = target**2 * count / least
        assert variance == pytest.approx(expected, rel=5 * math.sqrt(2 / size))  # five standard errors


@given(st.floats(0.5, 1e20), st.integers(1, 1000), st.integers(0, 10**7))
def test_headroom_grows_with_whatever_makes_the_noise_larger(variance: float, clients: int, size: int) -> None:
    noise = Noise("skellam", variance, 1)
    room = noise.headroom(clients, size)
    assert room >= 7 * math.sqrt(clients * variance)  # a normal tail of 2^-40
    assert noise.headroom(clients + 1, size) >= room
    assert noise.headroom(clients, size + 1) >= room


@pytest.mark.parametrize(
    ("kind", "variance", "least", "message"),
    [
        ("laplace", 1.0, 1, "noise is one of discrete-gaussian, skellam"),
        ("skellam", 0.4, 1, "variance from 0.5"),
        ("skellam", math.nan, 1, "variance from 0.5"),
        ("skellam", math.inf, 1, "variance from 0.5"),
        ("skellam", "1", 1, "variance from 0.5"),
        ("skellam", 1.0, 0, "least number of honest clients"),
        ("skellam", 1.0, 2.0, "least number of honest clients"),
    ],
)
def test_impossible_noise_is_refused(kind: str, variance: float, least: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Noise(kind, variance, least)


def test_sizes_of_numpy_do_not_overflow() -> None:
    assert least_aggregated(np.full(20, 40), 737) == 760  # type: ignore[arg-type]


def test_impossible_circles_are_refused() -> None:
    for sizes in ([], [0], [3, -1]):
        with pytest.raises(ConfigError, match="at least one client"):
            least_aggregated(sizes, 1)
    with pytest.raises(ConfigError, match="minimum of -1"):
        least_aggregated([2, 2], -1)
    with pytest.raises(ConfigError, match="least number"):
        Noise.for_sum("skellam", 3.0, 0)
