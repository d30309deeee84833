"""One client changes the sum by no more than the stated sensitivity, whatever its update and the rounding."""

import math
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.arithmetic import FloatArray, Layout, Quantizer, RingVector
from coterie.crypto.entropy import DeterministicEntropy
from coterie.errors import ConfigError, InputError, LocalProtocolError, OverflowRisk, RoundAborted
from coterie.privacy import DISTRIBUTIONS, Noise, NoisyQuantizer, Sensitivity, clip_norm

SKELLAM = "skellam"


def entropy(client: int = 0) -> DeterministicEntropy:
    return DeterministicEntropy(b"client %d" % client)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def integers(noisy: NoisyQuantizer, vector: RingVector, client: int) -> npt.NDArray[np.int64]:
    """Return the integers below the noise, which is taken off again."""
    plain = vector.copy()
    plain[1:] -= noisy.noise.sample(noisy.size, entropy(client)).astype(plain.dtype)
    noisy.ring.reduce(plain)
    return noisy.ring.lift(plain[1:]).astype(np.int64)


updates = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]),
    hnp.array_shapes(max_dims=2, max_side=6),
    elements={"allow_nan": False, "allow_infinity": False},
)


@settings(max_examples=50)
@given(st.lists(updates, min_size=1, max_size=3), st.floats(1e-3, 1e3))
def test_clipping_bounds_the_norm_and_keeps_the_direction(arrays: list[FloatArray], norm: float) -> None:
    exact = [array.astype(np.longdouble).ravel() for array in arrays]
    length = np.sqrt(sum((np.square(array).sum() for array in exact), np.longdouble(0)))
    clipped = clip_norm(arrays, norm)
    flat = np.concatenate([array.astype(np.longdouble).ravel() for array in clipped])
    assert np.sqrt(np.square(flat).sum()) <= norm * (1 + 1e-12)
    if length <= norm * (1 - 1e-12):
        assert all(new is old for new, old in zip(clipped, arrays, strict=True))
    elif length > norm * (1 + 1e-12):
        np.testing.assert_allclose(flat, np.concatenate(exact) * (norm / length), rtol=1e-12, atol=1e-300)


def test_clipping_accepts_one_array_and_does_not_change_zeros() -> None:
    assert clip_norm(np.array([3.0, 4.0]), 1.0)[0] == pytest.approx([0.6, 0.8])
    assert clip_norm(np.zeros(3), 1.0)[0].tolist() == [0, 0, 0]
    assert clip_norm(np.zeros(0), 1.0)[0].size == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_clipping_refuses_what_has_no_norm(bad: float) -> None:
    with pytest.raises(InputError, match="NaN or infinite"):
        clip_norm([np.zeros(2), np.array([1.0, bad])], 1.0)


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan, math.inf, "1"])
def test_impossible_norms_are_refused(norm: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match="norm to clip to"):
        clip_norm(np.zeros(2), norm)


@st.composite
def noisy_quantizers(draw: st.DrawFn) -> NoisyQuantizer:
    clip = draw(st.floats(0.01, 100))
    quantizer = Quantizer(clip, draw(st.integers(2, 20)), draw(st.integers(1, 20)))
    noise = Noise(
        draw(st.sampled_from(list(DISTRIBUTIONS))), draw(st.floats(0.5, 1e9)), draw(st.integers(1, quantizer.clients))
    )
    return NoisyQuantizer(quantizer, clip * draw(st.floats(0.01, 3)), draw(st.integers(1, 60)), noise)


@settings(max_examples=60)
@given(noisy_quantizers(), st.data())
def test_no_update_exceeds_the_sensitivity(noisy: NoisyQuantizer, data: st.DataObject) -> None:
    scale = data.draw(st.sampled_from([0.1, 1.0, 1000.0])) * noisy.norm
    update = data.draw(hnp.arrays(np.float64, noisy.size, elements=st.floats(-scale, scale)))
    vector = noisy.encode(update, generator(data.draw(st.integers(0, 99))), entropy()).vector
    rounded = integers(noisy, vector, client=0)
    assert vector[0] == 1
    assert np.square(rounded).sum() <= noisy.sensitivity.l2_squared
    assert np.abs(rounded).sum() <= noisy.sensitivity.l1


@settings(max_examples=60)
@given(st.floats(0.01, 1e6), st.integers(1, 10**6), st.integers(2, 20))
def test_the_sensitivity_lies_between_the_norm_and_the_certain_bound(norm: float, size: int, precision: int) -> None:
    quantizer = Quantizer(1.0, precision, 4)
    if norm / quantizer.step > 1e9:
        return
    found = Sensitivity.of(quantizer, norm, size)
    units = norm / quantizer.step
    assert found.l2_squared >= max(1, math.floor(units**2))
    l2 = math.sqrt(found.l2_squared)
    assert l2 <= max(1, units + math.sqrt(size))
    assert found.l1 <= math.sqrt(size) * l2 * (1 + 1e-12)


def test_conditional_rounding_beats_the_certain_bound_where_it_matters() -> None:
    quantizer = Quantizer(1.0, 12, 10)
    found = Sensitivity.of(quantizer, 1.0, 1_000_000)
    units, l2 = 1 / quantizer.step, math.sqrt(found.l2_squared)
    assert l2 < 1.01 * math.sqrt(units**2 + 250_000)
    assert units + 1000 > 1.4 * l2


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("count", [5, 8])
def test_the_decoded_mean_differs_only_by_the_noise(kind: str, count: int) -> None:
    quantizer = Quantizer(1.0, 16, 8)
    layout = Layout(((30, 10), (7,)), ("float32", "float64"))
    noisy = NoisyQuantizer(quantizer, 1.0, layout.size, Noise.for_sum(kind, 2e4, 5))
    rng = generator()
    inputs: list[list[FloatArray]] = [
        [rng.normal(0, 0.02, (30, 10)).astype(np.float32), rng.normal(0, 0.02, 7)] for _ in range(count)
    ]
    total = noisy.ring.zeros(noisy.length(layout))
    for client, arrays in enumerate(inputs):
        total += noisy.encode(arrays, rng, entropy(client)).vector
    noisy.ring.reduce(total)
    before = total.copy()
    decoded = noisy.decode(total, layout, count)
    assert np.array_equal(total, before)
    assert decoded.total_weight == count
    assert [(array.shape, array.dtype.name) for array in decoded.mean] == [((30, 10), "float32"), ((7,), "float64")]
    noise = sum((noisy.noise.sample(layout.size, entropy(client)) for client in range(count)), np.zeros(layout.size))
    found = np.concatenate([array.ravel() for array in decoded.mean])
    wanted = np.mean([np.concatenate([array.ravel() for array in arrays]) for arrays in inputs], axis=0)
    assert np.abs(found - wanted - noise * quantizer.step / count).max() < quantizer.error_bound(count, count) + 1e-6
    residue = (found - wanted).std()
    assert residue == pytest.approx(math.sqrt(count * noisy.noise.variance) * noisy.quantizer.step / count, rel=0.2)


@given(noisy_quantizers())
def test_the_ring_has_room_for_entries_and_noise(noisy: NoisyQuantizer) -> None:
    quantizer = noisy.quantizer
    room = noisy.noise.headroom(quantizer.clients, noisy.size)
    assert noisy.ring.modulus > 2 * (quantizer.clients * quantizer.levels + room)
    assert noisy.ring.bits >= quantizer.ring.bits


def test_rounding_is_repeated_until_the_norm_is_right() -> None:
    class Unlucky(np.random.Generator):
        """Rounds everything up the first ``times`` times."""

        times = 0

        def random(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self.times -= 1
            return super().random(*args, **kwargs) * (self.times < 0)

    noisy = NoisyQuantizer(Quantizer(1.0, 8, 4), 0.01, 1000, Noise(SKELLAM, 4.0, 2))
    update = np.full(1000, 1e-4)
    assert np.square(np.ceil(update / noisy.quantizer.step)).sum() > noisy.sensitivity.l2_squared
    rng = Unlucky(np.random.PCG64(0))
    rng.times = 2
    rounded = integers(noisy, noisy.encode(update, rng, entropy()).vector, client=0)
    assert np.square(rounded).sum() <= noisy.sensitivity.l2_squared
    assert rng.times == -1
    rng.times = 10**6
    with pytest.raises(LocalProtocolError, match="not random"):
        noisy.encode(update, rng, entropy())


def test_inputs_that_do_not_fit_are_refused() -> None:
    quantizer, noise = Quantizer(1.0, 16, 4), Noise(SKELLAM, 4.0, 4)
    noisy = NoisyQuantizer(quantizer, 1.0, 3, noise)
    layout = Layout(((3,),), ("float64",))
    with pytest.raises(InputError, match="3 entries in all, not 2"):
        noisy.encode(np.zeros(2), generator(), entropy())
    with pytest.raises(InputError, match="does not exist"):
        noisy.decode(noisy.ring.zeros(4), layout, 0)
    with pytest.raises(RoundAborted, match="sum of weights"):
        noisy.decode(noisy.ring.zeros(4), layout, 1)
    with pytest.raises(InputError, match="shape"):
        noisy.decode(noisy.ring.zeros(5), layout, 1)
    with pytest.raises(ConfigError, match="weigh the same"):
        NoisyQuantizer(Quantizer(1.0, 16, 4, max_weight=2), 1.0, 3, noise)
    with pytest.raises(ConfigError, match="cannot include 5"):
        NoisyQuantizer(quantizer, 1.0, 3, Noise(SKELLAM, 4.0, 5))
    with pytest.raises(ConfigError, match="at least one entry"):
        NoisyQuantizer(quantizer, 1.0, 0, noise)
    with pytest.raises(ConfigError, match="too large"):
        NoisyQuantizer(Quantizer(1.0, 40, 4), 1.0, 3, noise)
    with pytest.raises(OverflowRisk):
        NoisyQuantizer(Quantizer(1.0, 16, 2**38), 1.0, 3, Noise(SKELLAM, 2.0**60, 4))
    with pytest.raises(ConfigError, match="impossible"):
        Sensitivity(4, 5, 3)


def test_float16_saturates_rather_than_overflows() -> None:
    quantizer = Quantizer(60000.0, 8, 2)
    noisy = NoisyQuantizer(quantizer, 60000.0, 1, Noise(SKELLAM, 1e6, 1))
    layout = Layout(((1,),), ("float16",))
    vectors = (noisy.encode(np.array([6e4], np.float16), generator(), entropy(client)).vector for client in range(50))
    decoded = [float(noisy.decode(vector, layout, 1).mean[0][0]) for vector in vectors]
    assert all(math.isfinite(value) for value in decoded)
    assert max(decoded) == float(np.finfo(np.float16).max)
