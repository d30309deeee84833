import tracemalloc
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.arithmetic import Arrays, FloatArray, Layout, Quantizer, Ring, RingVector
from coterie.errors import ConfigError, InputError, OverflowRisk, RoundAborted

DTYPES = ("float16", "float32", "float64")


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def add(ring: Ring, vectors: list[RingVector]) -> RingVector:
    return ring.sum(vectors, len(vectors[0]))


@st.composite
def quantizers(draw: st.DrawFn, max_clients: int = 2**20) -> Quantizer:
    clip = draw(st.floats(1e-30, 1e30) | st.sampled_from([0.1, 1.0, 3.3, 8.0]))
    precision = draw(st.integers(2, 53))
    levels = 2 ** (precision - 1) - 1
    clients = draw(st.integers(1, min(max_clients, 2**53 // levels)))
    return Quantizer(clip, precision, clients, draw(st.integers(1, levels) | st.integers(1, min(levels, 1000))))


@dataclass(frozen=True)
class Session:
    """What the clients of one aggregation hold."""

    quantizer: Quantizer
    inputs: list[list[FloatArray]]
    weights: list[int]
    seed: int


def encode_all(session: Session) -> list[RingVector]:
    rng = generator(session.seed)
    pairs = zip(session.inputs, session.weights, strict=True)
    return [session.quantizer.encode(arrays, rng, weight).vector for arrays, weight in pairs]


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    quantizer = draw(quantizers(max_clients=6))
    count = draw(st.integers(1, quantizer.clients))
    weights = draw(st.lists(st.integers(1, quantizer.max_weight), min_size=count, max_size=count))
    layout = [
        (np.dtype(draw(st.sampled_from(DTYPES))), draw(hnp.array_shapes(min_dims=0, min_side=0, max_side=3)))
        for _ in range(draw(st.integers(1, 3)))
    ]

    def entries(dtype: np.dtype[Any]) -> st.SearchStrategy[float]:
        largest = min(2 * quantizer.clip, float(np.finfo(dtype).max))
        bound = float(np.array(largest).astype(dtype))
        return st.floats(-bound, bound, width=8 * dtype.itemsize)  # type: ignore[arg-type]

    inputs: list[list[FloatArray]] = [
        [draw(hnp.arrays(dtype, shape, elements=entries(dtype))) for dtype, shape in layout] for _ in range(count)
    ]
    return Session(quantizer, inputs, weights, draw(st.integers(0, 2**32)))


def exact_mean(session: Session, number: int) -> list[Fraction]:
    """Return the weighted mean of the clipped entries of array ``number``, without any rounding."""
    clip = Fraction(session.quantizer.clip)
    columns = zip(*(arrays[number].ravel().tolist() for arrays in session.inputs), strict=True)
    return [
        sum(
            (w * max(-clip, min(clip, Fraction(x))) for x, w in zip(column, session.weights, strict=True)),
            Fraction(),
        )
        / sum(session.weights)
        for column in columns
    ]


def cast_error(found: Fraction, dtype: np.dtype[Any]) -> Fraction:
    """Bound what the last rounding, to the dtype of the result, may have changed."""
    if dtype == np.float64:
        return Fraction()  # nothing is cast
    limits = np.finfo(dtype)
    return abs(found) * Fraction(float(limits.eps)) + Fraction(float(limits.smallest_subnormal))


@given(sessions())
def test_the_decoded_mean_is_within_the_error_bound(session: Session) -> None:
    quantizer, count = session.quantizer, len(session.inputs)
    layout = Layout.of(session.inputs[0])
    total = add(quantizer.ring, encode_all(session))
    decoded = quantizer.decode(total, layout, count)
    assert decoded.total_weight == sum(session.weights)
    assert len(decoded.mean) == len(layout.shapes)
    bound = Fraction(quantizer.error_bound(count, sum(session.weights)))
    for number, array in enumerate(decoded.mean):
        assert (array.shape, array.dtype.name) == (layout.shapes[number], layout.dtypes[number])
        assert np.isfinite(array).all()
        for entry, expected in zip(array.ravel().tolist(), exact_mean(session, number), strict=True):
            found = Fraction(entry)
            assert abs(found - expected) <= bound + cast_error(found, array.dtype)


def test_the_error_bound_holds_where_float64_rounds_as_coarsely_as_the_integers() -> None:
    quantizer = Quantizer(clip=3.3, precision=53, clients=1)
    array = generator(1).uniform(-3.3, 3.3, 5000)
    vector = quantizer.encode(array, generator(2)).vector
    [mean] = quantizer.decode(vector, Layout.of(array), 1).mean
    pairs = zip(mean.tolist(), array.tolist(), strict=True)
    largest = max(abs(Fraction(found) - Fraction(entry)) for found, entry in pairs)
    assert quantizer.step / 2 < largest <= quantizer.error_bound(1, 1)


@given(sessions(), st.randoms())
def test_the_sum_does_not_depend_on_the_grouping(session: Session, random: Random) -> None:
    ring = session.quantizer.ring
    parts = encode_all(session)
    expected = add(ring, parts)
    while len(parts) > 1:
        random.shuffle(parts)
        parts.append(add(ring, [parts.pop(), parts.pop()]))
    assert np.array_equal(parts[0], expected)


class Constant(np.random.Generator):
    """A generator whose every random number is the same, to reach the ends of their range."""

    def __init__(self, number: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.number = number

    def random(self, size: Any = None, *_: Any, **__: Any) -> Any:  # noqa: ANN401
        """Return the constant."""
        return np.full(size, self.number)


@given(
    st.data(),
    quantizers(),
    st.builds(generator, st.integers(0, 2**32)) | st.builds(Constant, st.sampled_from([0.0, 1 - 2**-53])),
)
def test_every_entry_is_an_integer_next_to_its_scaled_value(
    data: st.DataObject, quantizer: Quantizer, rng: np.random.Generator
) -> None:
    weight = data.draw(st.integers(1, quantizer.max_weight))
    clip, levels = quantizer.clip, quantizer.levels
    entries = st.floats(-clip, clip) | st.sampled_from([clip, float(np.nextafter(clip, 0)), 5e-324])
    array = data.draw(hnp.arrays(np.float64, 10, elements=entries))
    vector = quantizer.encode([array, -array], rng, weight).vector
    quantizer.ring.check(vector, 21)
    assert vector[0] == weight
    for integer, entry in zip(quantizer.ring.lift(vector)[1:].tolist(), [*array, *-array], strict=True):
        scaled = Fraction(entry) / Fraction(clip) * levels * weight / quantizer.max_weight
        assert abs(integer) <= levels
        assert abs(integer - scaled) < 1 + abs(scaled) / 2**51


@given(quantizers(), st.sampled_from([0.0, 0.5, 1 - 2**-53]))
def test_the_extreme_sums_do_not_wrap_but_would_in_a_smaller_ring(quantizer: Quantizer, randomness: float) -> None:
    """All clients at the clip with the highest weight: the extreme sums decode without any error."""
    ring, clients = quantizer.ring, quantizer.clients
    array = np.array([quantizer.clip, -quantizer.clip])
    encoded = quantizer.encode(array, Constant(randomness), quantizer.max_weight)
    assert encoded.clipped == 0
    total = encoded.vector * ring.dtype.type(clients)  # modulo 2^word, as the addition of every client's
    ring.reduce(total)
    extreme = clients * quantizer.levels
    assert ring.lift(total).tolist() == [clients * quantizer.max_weight, extreme, -extreme]
    decoded = quantizer.decode(total, Layout.of(array), clients)
    assert decoded.mean[0].tolist() == array.tolist()
    assert decoded.total_weight == clients * quantizer.max_weight

    smaller = Ring(ring.bits - 1)
    wrapped = np.array([extreme % smaller.modulus], smaller.dtype)
    assert smaller.lift(wrapped)[0] != extreme


@pytest.mark.parametrize("weight", [1, 3, 7])
@pytest.mark.parametrize("entry", [-0.999, -1e-3, -1e-12, 0.0, 1e-12, 0.1, 0.34567, 0.999])
def test_rounding_is_unbiased(entry: float, weight: int) -> None:
    quantizer = Quantizer(clip=1.0, precision=4, clients=1, max_weight=7)
    samples = 200_000
    vector = quantizer.encode(np.full(samples, entry), generator(weight), weight).vector
    scaled = entry * quantizer.levels * weight / quantizer.max_weight
    fraction = scaled - np.floor(scaled)
    deviation = np.sqrt(fraction * (1 - fraction) / samples)
    # Five standard deviations and, for tiny fractions, one sample that goes the unlikely way.
    assert abs(quantizer.ring.lift(vector)[1:].mean() - scaled) <= 5 * deviation + 1 / samples


def test_rounding_uses_both_neighbours_as_often_as_it_should() -> None:
    quantizer = Quantizer(clip=127.0, precision=8, clients=1)
    vector = quantizer.encode(np.full(100_000, -2.75), generator(), 1).vector
    values, counts = np.unique(quantizer.ring.lift(vector)[1:], return_counts=True)
    assert values.tolist() == [-3, -2]
    assert abs(counts[0] / 100_000 - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 100_000)


def test_a_seed_determines_the_vector() -> None:
    quantizer = Quantizer(clip=1.0, precision=8, clients=10)
    array = generator().normal(size=(100, 7))
    first, again, other = (quantizer.encode(array, generator(seed)).vector for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@given(st.lists(st.integers(0, 50_000), max_size=4), st.sampled_from(DTYPES))
def test_the_vector_does_not_depend_on_how_entries_are_cut_into_arrays(cuts: list[int], dtype: str) -> None:
    """One random number for each entry, in order: what makes a seed's vector the same in every version."""
    quantizer = Quantizer(clip=1.0, precision=16, clients=10)
    entries = generator(4).normal(scale=0.5, size=50_000).astype(dtype)
    scaled = np.clip(entries.astype(np.float64), -1, 1) * quantizer.levels
    expected = np.floor(scaled) + (generator(5).random(50_000) < scaled - np.floor(scaled))
    vector = quantizer.encode(np.split(entries, sorted(cuts)), generator(5)).vector
    assert np.array_equal(quantizer.ring.lift(vector)[1:], expected)


def test_the_weighted_mean_of_a_model_is_that_of_numpy() -> None:
    """Arrays longer than one chunk, of several dtypes, against numpy's own weighted mean."""
    quantizer = Quantizer(clip=4.0, precision=24, clients=5, max_weight=100)
    shapes, weights = [(300, 301), (0, 5), (), (70_000,)], [1, 50, 100]
    rng = generator(3)
    models = [[rng.normal(size=shape).astype("float32") for shape in shapes] for _ in weights]
    total = add(quantizer.ring, [quantizer.encode(m, rng, w).vector for m, w in zip(models, weights, strict=True)])
    decoded = quantizer.decode(total, Layout.of(models[0]), 3)
    assert decoded.total_weight == 151
    tolerance = quantizer.error_bound(3, 151) + 2**-22
    for number, array in enumerate(decoded.mean):
        stacked = np.stack([np.clip(model[number], -4, 4) for model in models]).astype(np.float64)
        np.testing.assert_allclose(array, np.average(stacked, axis=0, weights=weights), rtol=0, atol=tolerance)


def test_any_memory_layout_is_read_in_row_major_order() -> None:
    quantizer = Quantizer(clip=100.0, precision=20, clients=1)
    plain = np.arange(24.0).reshape(4, 6)
    expected = quantizer.encode(plain, generator()).vector
    variants = [np.asfortranarray(plain), np.repeat(plain, 2, axis=1)[:, ::2], plain.astype(">f8")]
    for variant in variants:
        assert np.array_equal(quantizer.encode(variant, generator()).vector, expected)


def test_encoding_does_not_change_its_input_and_counts_clipped_entries() -> None:
    quantizer = Quantizer(clip=1.0, precision=16, clients=2)
    arrays = [
        np.array([-3.0, -1.0, 0.5]),
        np.array([[1.0], [1.5]], np.float16),
        np.full(50_000, 2, np.float32),
    ]
    before = [array.copy() for array in arrays]
    encoded = quantizer.encode(arrays, generator())
    assert encoded.clipped == 50_002
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, before, strict=True))
    assert quantizer.encode(np.array([1.0, -1.0]), generator()).clipped == 0
    [first, second, third] = quantizer.decode(encoded.vector, Layout.of(arrays), 1).mean
    assert first[:2].tolist() == [-1.0, -1.0]
    assert second.tolist() == [[1.0], [1.0]]
    assert np.all(third == 1.0)


def test_no_input_shows_in_a_repr() -> None:
    encoded = Quantizer(clip=10.0, precision=16, clients=1).encode(np.array([5.0]), generator())
    assert repr(encoded) == "Encoded(clipped=0)"


def test_arrays_without_entries_carry_the_weight_alone() -> None:
    quantizer = Quantizer(clip=1.0, precision=8, clients=3, max_weight=9)
    arrays: list[FloatArray] = [np.zeros((0, 4), np.float32), np.zeros(0)]
    vector = quantizer.encode(arrays, generator(), 9).vector
    assert vector.tolist() == [9]
    decoded = quantizer.decode(vector, Layout.of(arrays), 1)
    assert [array.shape for array in decoded.mean] == [(0, 4), (0,)]
    assert decoded.total_weight == 9


def test_a_mean_past_the_end_of_float16_saturates() -> None:
    """Rounding may carry a mean of float16's largest numbers above them; it must not become infinite."""
    quantizer = Quantizer(clip=1e5, precision=2, clients=1)
    array = np.full(100, 65504, np.float16)
    vector = quantizer.encode(array, generator()).vector
    mean = quantizer.decode(vector, Layout.of(array), 1).mean[0]
    assert set(mean.tolist()) == {0.0, 65504.0}


def test_encoding_needs_little_memory_beyond_its_result() -> None:
    quantizer = Quantizer(clip=1.0, precision=16, clients=100)
    array = generator().normal(size=4_000_000).astype(np.float32)
    tracemalloc.start()
    try:
        vector = quantizer.encode(array, generator()).vector
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - vector.nbytes < 2_000_000


QUANTIZER = Quantizer(clip=1.0, precision=8, clients=4, max_weight=10)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], "at least one"),
        ((), "at least one"),
        (None, "numpy array"),
        ({"w": np.zeros(1)}, "numpy array"),
        (1.0, "numpy array"),
        ([np.zeros(1), 2.0], r"arrays\[1\] is a float"),
        ([[1.0, 2.0]], r"arrays\[0\] is a list"),
        (np.zeros(3, np.int64), r"arrays\[0\] is int64; cast"),
        ([np.zeros(3), np.zeros(1, bool)], r"arrays\[1\] is bool; cast"),
        (np.zeros(1, complex), "cast"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "masked array"),
        (np.array(["x"], object), "cast"),
        (np.array(np.nan), r"arrays\[0\] is NaN or infinite at index \[\]"),
        ([np.zeros(2), np.array([[0.0, 1.0], [np.inf, 0.0]], np.float16)], r"arrays\[1\] .* index \[1, 0\]"),
        (np.array([0.0, -np.inf], np.float32), r"index \[1\]"),
        (np.where(np.arange(100_000) == 70_123, np.nan, 0).reshape(1000, 100), r"index \[701, 23\]"),
    ],
)
def test_what_cannot_be_aggregated_is_refused(arrays: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        QUANTIZER.encode(arrays, generator())  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", [0, -1, 11, 1.0, True, np.True_, "1", None, float("nan")])
def test_weights_are_whole_numbers_within_the_range(weight: object) -> None:
    with pytest.raises(InputError, match="weight must be a whole number from 1 to 10"):
        QUANTIZER.encode(np.zeros(1), generator(), weight)  # type: ignore[arg-type]


def test_a_weight_of_zero_is_accepted_if_allowed_and_adds_nothing() -> None:
    quantizer = Quantizer(clip=1.0, precision=8, clients=4, max_weight=10, min_weight=0)
    array: Arrays = np.array([0.5, -1.0])
    nothing = quantizer.encode(array, generator(), 0).vector
    assert not nothing.any()
    total = add(quantizer.ring, [nothing, quantizer.encode(array, generator(), 10).vector])
    decoded = quantizer.decode(total, Layout.of(array), 2)
    assert decoded.total_weight == 10
    assert np.allclose(decoded.mean[0], array, atol=quantizer.error_bound(2, 10))
    with pytest.raises(RoundAborted, match="all weights are 0"):
        quantizer.decode(nothing, Layout.of(array), 2)


def test_numpy_integers_are_accepted_as_whole_numbers() -> None:
    """Their products would overflow where Python's do not."""
    quantizer = Quantizer(np.float32(0.1), np.int8(50), np.int8(2), np.int64(2**48))  # type: ignore[arg-type]
    assert quantizer == Quantizer(float(np.float32(0.1)), 50, 2, 2**48)
    array: Arrays = np.array([0.05])
    vector = quantizer.encode(array, generator(), np.int64(2**47)).vector  # type: ignore[arg-type]
    [mean] = quantizer.decode(vector, Layout.of(array), np.int64(1)).mean  # type: ignore[arg-type]
    assert abs(mean[0] - 0.05) <= quantizer.error_bound(1, 2**47)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip": 0.0}, "clip"),
        ({"clip": -1.0}, "clip"),
        ({"clip": float("inf")}, "clip"),
        ({"clip": float("nan")}, "clip"),
        ({"clip": 1e31}, "clip"),
        ({"clip": "1"}, "clip"),
        ({"precision": 1}, "precision"),
        ({"precision": 54}, "precision"),
        ({"precision": 8.0}, "precision"),
        ({"clients": 0}, "clients"),
        ({"clients": True}, "clients"),
        ({"max_weight": 0}, "max_weight"),
        ({"max_weight": 128}, "need at least 9 bits"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Quantizer(**{"clip": 1.0, "precision": 8, "clients": 10, **settings})


def test_the_weight_may_use_every_level() -> None:
    assert Quantizer(clip=1.0, precision=8, clients=1, max_weight=127).levels == 127
    assert Quantizer(clip=1.0, precision=9, clients=1, max_weight=128).levels == 255


def test_sums_beyond_float64_are_refused() -> None:
    assert Quantizer(clip=1.0, precision=53, clients=2).ring.bits == 54
    with pytest.raises(OverflowRisk, match="lower the precision"):
        Quantizer(clip=1.0, precision=53, clients=3)


@pytest.mark.parametrize(("precision", "clients", "bits"), [(2, 1, 2), (8, 1, 8), (16, 100, 23), (24, 1000, 34)])
def test_the_ring_grows_with_the_logarithm_of_the_clients(precision: int, clients: int, bits: int) -> None:
    assert Quantizer(clip=1.0, precision=precision, clients=clients).ring.bits == bits


def test_the_step_is_one_unit_of_the_weighted_sum() -> None:
    quantizer = Quantizer(clip=2.0, precision=8, clients=4, max_weight=10)
    assert quantizer.step == pytest.approx(20 / 127)
    vector = quantizer.ring.zeros(2)
    vector[:] = 4, 1
    [mean] = quantizer.decode(vector, Layout(((1,),), ("float64",)), 4).mean
    assert mean[0] * 4 == pytest.approx(quantizer.step)


def corrupted(weight: int, entry: int) -> RingVector:
    vector = QUANTIZER.ring.zeros(2)
    vector[:] = weight, entry % QUANTIZER.ring.modulus
    return vector


@pytest.mark.parametrize(
    ("weight", "entry", "message"),
    [
        (0, 0, "weights"),
        (2, 0, "weights"),
        (31, 0, "weights"),
        (QUANTIZER.ring.modulus - 1, 0, "weights"),
        (30, 3 * 127 + 1, "entry"),
        (30, -3 * 127 - 1, "entry"),
        (3, 42, "entry"),  # three clients of weight 1 reach 3 * ceil(12.7) at most
        (3, -QUANTIZER.ring.modulus // 2, "entry"),
    ],
)
def test_an_impossible_sum_aborts_the_round(weight: int, entry: int, message: str) -> None:
    layout = Layout(((1,),), ("float32",))
    with pytest.raises(RoundAborted, match=message):
        QUANTIZER.decode(corrupted(weight, entry), layout, 3)


@pytest.mark.parametrize(("weight", "entry"), [(3, 39), (3, -39), (30, 3 * 127), (30, -3 * 127)])
def test_the_extreme_sums_are_possible(weight: int, entry: int) -> None:
    [mean] = QUANTIZER.decode(corrupted(weight, entry), Layout(((1,),), ("float64",)), 3).mean
    assert abs(abs(mean[0]) - 1) <= QUANTIZER.error_bound(3, weight)


@pytest.mark.parametrize("count", [0, 5, -1, 1.0, True])
def test_the_count_is_within_the_range(count: int) -> None:
    with pytest.raises(InputError, match="from 1 to 4"):
        QUANTIZER.decode(corrupted(1, 0), Layout(((1,),), ("float32",)), count)
    with pytest.raises(InputError, match="from 1 to 4"):
        QUANTIZER.error_bound(count, 1)


@pytest.mark.parametrize("total_weight", [0, 1, 21])
def test_the_error_bound_is_for_possible_weights(total_weight: int) -> None:
    with pytest.raises(InputError, match="from 2 to 20"):
        QUANTIZER.error_bound(2, total_weight)


def test_decode_refuses_a_vector_that_does_not_fit_the_layout() -> None:
    with pytest.raises(InputError, match="shape"):
        QUANTIZER.decode(corrupted(1, 0), Layout(((2,),), ("float32",)), 1)


@pytest.mark.parametrize(("shapes", "dtypes"), [(((1,),), ()), (((1,),), ("int32",)), ((), ("float32",))])
def test_layouts_are_complete_and_floating_point(shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="float16, float32, float64"):
        Layout(shapes, dtypes)


@given(quantizers(), st.lists(hnp.arrays(np.float64, st.integers(0, 40), elements=st.floats(-2, 2)), min_size=1))
def test_entries_in_pieces_are_rounded_like_one_array(quantizer: Quantizer, arrays: list[FloatArray]) -> None:
    whole = np.concatenate(arrays)
    pieces = quantizer.encode_pieces(iter(arrays), whole.size, generator())
    assert np.array_equal(pieces.vector, quantizer.encode(whole, generator()).vector)
    with pytest.raises(InputError, match="NaN or infinite"):
        quantizer.encode_pieces([np.array([np.nan])], 1, generator())
    with pytest.raises((InputError, ValueError)):
        quantizer.encode_pieces(iter(arrays), whole.size + 1, generator())
