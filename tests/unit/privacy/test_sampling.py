"""The samplers draw from the distributions they claim, bit for bit where it matters."""

import math
from collections.abc import Iterator

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from coterie.crypto.entropy import DeterministicEntropy, SystemEntropy
from coterie.errors import LocalProtocolError
from coterie.privacy import sampling
from coterie.privacy.distributions import DiscreteGaussian, Skellam, tail_bound
from coterie.privacy.sampling import LogConcave, sample, stair_width

Masses = npt.NDArray[np.float64]
KINDS = (DiscreteGaussian, Skellam)


def entropy(number: int = 0) -> DeterministicEntropy:
    return DeterministicEntropy(b"noise %d" % number)


def masses(distribution: LogConcave, reach: int) -> Masses:
    """Return p(-reach) .. p(reach), from definitions that have nothing to do with the code under test."""
    values = np.arange(-reach, reach + 1)
    if isinstance(distribution, Skellam):
        half = distribution.variance / 2
        exact: Masses = stats.skellam.pmf(values, half, half)
        return exact
    assert isinstance(distribution, DiscreteGaussian)
    weights: Masses = np.exp(-np.square(values) / (2 * distribution.variance))
    weights /= weights.sum()
    return weights


def p_value(samples: sampling.Integers, distribution: LogConcave, reach: int) -> float:
    """Chi-square test of the samples against the exact masses; both tails pooled."""
    expected = masses(distribution, reach) * samples.size
    counts = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=2 * reach + 1)
    likely = expected >= 10
    pooled = np.append(expected[likely], max(samples.size - expected[likely].sum(), 1e-9))
    observed = np.append(counts[likely], counts[~likely].sum())
    if pooled[-1] < 5:  # too few to be a class of their own
        pooled[-2] += pooled[-1]
        observed[-2] += observed[-1]
        pooled, observed = pooled[:-1], observed[:-1]
    return float(stats.chisquare(observed, pooled * observed.sum() / pooled.sum()).pvalue)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variance", [0.5, 0.9, 1.0, 3.7, 25.0, 1000.0])
def test_samples_follow_the_exact_distribution(kind: type[DiscreteGaussian] | type[Skellam], variance: float) -> None:
    distribution = kind(variance)
    samples = sample(distribution, 400_000, entropy())
    assert p_value(samples, distribution, int(12 * math.sqrt(variance)) + 12) > 1e-3


def test_the_statistical_test_rejects_a_wrong_distribution() -> None:
    samples = sample(Skellam(3.7), 400_000, entropy())
    assert p_value(samples, DiscreteGaussian(3.7), 40) < 1e-12
    assert p_value(sample(DiscreteGaussian(25.0), 400_000, entropy()), DiscreteGaussian(25.6), 80) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stddev", [250.0, 260.0, 1e4, 3e6, 2.0**40])
def test_large_noise_is_normal_in_shape(kind: type[DiscreteGaussian] | type[Skellam], stddev: float) -> None:
    samples = sample(kind(stddev**2), 100_000, entropy())
    # Spread over the unit around each integer, both are normal up to a relative 1 / variance.
    spread = samples + np.random.default_rng(0).uniform(-0.5, 0.5, samples.size)
    observed = np.histogram(stats.norm.cdf(spread / stddev), bins=np.linspace(0, 1, 51))[0]
    assert stats.chisquare(observed).pvalue > 1e-3


def test_entries_are_independent() -> None:
    samples = sample(DiscreteGaussian(9.0), 200_000, entropy()).astype(np.float64)
    for lag in (1, 2, sampling._CHUNK):
        assert abs(np.corrcoef(samples[:-lag], samples[lag:])[0, 1]) < 4 / math.sqrt(samples.size)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_follows_from_the_entropy_alone(kind: type[DiscreteGaussian] | type[Skellam]) -> None:
    distribution = kind(50.0)
    assert np.array_equal(sample(distribution, 1000, entropy()), sample(distribution, 1000, entropy()))
    assert np.array_equal(sample(distribution, 1000, entropy())[:10], sample(distribution, 10, entropy()))
    assert not np.array_equal(sample(distribution, 1000, entropy()), sample(distribution, 1000, entropy(1)))
    system = SystemEntropy()
    assert not np.array_equal(sample(distribution, 1000, system), sample(distribution, 1000, system))
    assert sample(distribution, 0, entropy()).size == 0


def test_deterministic_entropy_never_gives_the_same_noise_twice() -> None:
    source = entropy()
    sample(DiscreteGaussian(1.0), 1, source)
    with pytest.raises(LocalProtocolError, match="already drawn"):
        sample(DiscreteGaussian(1.0), 1, source)


@pytest.mark.parametrize(("distribution", "margin"), [(DiscreteGaussian(40.0), 2.0**-8), (Skellam(40.0), 2.0**-12)])
def test_the_exact_comparison_decides_as_the_fast_one(distribution: LogConcave, margin: float) -> None:
    fast = sample(distribution, 5000, entropy())
    assert np.array_equal(sample(distribution, 5000, entropy(), margin=margin), fast)


def test_a_coin_on_the_edge_is_decided_by_its_further_bits() -> None:
    distribution = DiscreteGaussian(40.0)
    scaled = distribution.scaled_ratio(7, 64 + 64)
    coin, fraction = scaled >> 64, (scaled & (2**64 - 1)) / 2**64
    trials = 400
    wins = sum(
        sampling._decide_exactly(distribution, 7, 0, coin, sampling._Keystream(seed.to_bytes(16, "big")))
        for seed in range(trials)
    )
    assert stats.binomtest(wins, trials, fraction).pvalue > 1e-3
    assert sampling._decide_exactly(distribution, 7, 0, coin - 1, sampling._Keystream(bytes(16)))
    assert not sampling._decide_exactly(distribution, 7, 0, coin + 1, sampling._Keystream(bytes(16)))


def test_bits_are_drawn_until_the_comparison_is_certain() -> None:
    words = sampling._Keystream(bytes(16)).words(4).tolist()

    class Edge:
        """A probability that shares the coin's first 192 bits and differs in the next 128."""

        def __init__(self) -> None:
            self.asked: list[int] = []

        def log_ratio(self, magnitudes: sampling.Doubles) -> sampling.Doubles:
            raise NotImplementedError

        def scaled_ratio(self, magnitude: int, bits: int) -> int:
            self.asked.append(bits)
            coin = 5
            for word in words[: (bits - 64) // 64]:
                coin = coin << 64 | word
            return coin + (2 if bits == 64 + 256 else 1)

    edge = Edge()
    assert sampling._decide_exactly(edge, 0, 0, 5, sampling._Keystream(bytes(16)))
    assert edge.asked == [192, 320]


variances = st.floats(0.5, 2.0**80) | st.floats(-1, 24).map(lambda bits: 2.0**bits)


@settings(max_examples=40)
@given(st.sampled_from(KINDS), variances, st.floats(0, 9))
@example(Skellam, 1e4, 4.0)
@example(Skellam, 2.0**16, 1.5)
@example(Skellam, math.nextafter(2.0**16, 0), 1.5)
def test_float64_is_as_exact_as_the_margin_needs(
    kind: type[DiscreteGaussian] | type[Skellam], variance: float, deviations: float
) -> None:
    distribution = kind(variance)
    k = int(deviations * math.sqrt(variance))
    steps = k // stair_width(distribution)
    fast = math.exp(float(distribution.log_ratio(np.array([float(k)]))[0]) + steps * math.log(2))
    exact = distribution.scaled_ratio(k, 100 + steps) / 2**100
    assert fast <= 1
    assert abs(fast - exact) < 2.0**-43


@pytest.mark.parametrize("variance", [0.5, 1.0, 6.3, 80.0, 700.0])
@pytest.mark.parametrize("k", [0, 1, 2, 5, 30])
def test_skellam_masses_are_bessel_functions(variance: float, k: int) -> None:
    with mpmath.workprec(300):
        ratio = mpmath.besseli(k, variance) / mpmath.besseli(0, variance) * 2**200
        assert abs(Skellam(variance).scaled_ratio(k, 200) - ratio) < 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variance", [0.5, 1.15, 4.0, 1e3, 2.0**15])
def test_proposals_cover_the_target(kind: type[DiscreteGaussian] | type[Skellam], variance: float) -> None:
    """The acceptance probability never exceeds 1, and what lies beyond the last stair is below 2^-300."""
    distribution = kind(variance)
    stair = stair_width(distribution)
    k = np.arange(20 * stair, dtype=np.float64)
    assert np.all(distribution.log_ratio(k) + k // stair * math.log(2) <= 1e-12)
    beyond = 64.0 * stair
    chernoff = math.hypot(beyond, variance) - variance - beyond * math.asinh(beyond / variance)
    if kind is DiscreteGaussian:
        chernoff = -(beyond**2) / (2 * variance)
    assert chernoff < -301 * math.log(2)


def convolved(distribution: LogConcave, count: int, reach: int) -> Iterator[float]:
    one = masses(distribution, reach)
    total = one
    for _ in range(count - 1):
        total = np.convolve(total, one)
    yield from total[total.size // 2 :]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variance", [0.5, 2.0, 40.0])
@pytest.mark.parametrize("exponent", [1.0, 8.0, 30.0])
def test_tails_of_sums_stay_within_the_bound(
    kind: type[DiscreteGaussian] | type[Skellam], variance: float, exponent: float
) -> None:
    upper = list(convolved(kind(variance), 4, 120))
    first = math.ceil(tail_bound(4 * variance, exponent))
    assert sum(upper[first:]) <= math.exp(-exponent)
