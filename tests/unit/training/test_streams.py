import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.training.streams import sequence, stream, torch_seed

KNOWN_WORDS = ["ec0e70d430631d84", "118699d9dfe1c8f2", "46ead37edbe6eea8"]
KNOWN_TORCH_SEED = 670664210849150961

KEYS = st.lists(st.one_of(st.integers(), st.text(max_size=8)), max_size=3).map(tuple)
NAMES = st.tuples(st.integers(), st.text(max_size=8), KEYS)


@given(NAMES, NAMES)
def test_streams_are_the_same_exactly_if_their_names_are(
    one: tuple[int, str, tuple[int | str, ...]], other: tuple[int, str, tuple[int | str, ...]]
) -> None:
    first, second = (stream(seed, purpose, *keys).integers(2**63, size=4) for seed, purpose, keys in (one, other))
    assert bool((first == second).all()) == (one == other)
    assert (torch_seed(one[0], one[1], *one[2]) == torch_seed(other[0], other[1], *other[2])) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, "ab", "c"), (1, "a", "bc")),
        ((1, "a", 1), (1, "a", "1")),
        ((1, "a", 1, 2), (1, "a", 12)),
        ((1, "a"), (1, "a", "")),
        ((-1, "a"), (1, "a")),
        ((1, "a", "\ud800"), (1, "a", "\\ud800")),
    ],
)
def test_similar_names_are_distinguished(one: tuple[int, str], other: tuple[int, str]) -> None:
    assert sequence(*one).entropy != sequence(*other).entropy


def test_known_streams_do_not_change() -> None:
    # A change here changes the results of every experiment ever recorded.
    bits = stream(7, "data order", 3, "client-05").bit_generator
    assert [f"{word:016x}" for word in bits.random_raw(3)] == KNOWN_WORDS
    assert torch_seed(7, "torch", 3, "client-05") == KNOWN_TORCH_SEED


def test_numpy_integers_are_integers() -> None:
    assert sequence(1, "a", np.int64(5)).entropy == sequence(1, "a", 5).entropy


@pytest.mark.parametrize("key", [1.0, None, b"x"])
def test_other_keys_are_refused(key: object) -> None:
    with pytest.raises(TypeError):
        stream(1, "a", key)  # type: ignore[arg-type]


def test_torch_seeds_are_non_negative_and_fit_into_63_bits() -> None:
    seeds = [torch_seed(0, "torch", number) for number in range(1000)]
    assert min(seeds) >= 0
    assert 2**62 < max(seeds) < 2**63
    assert len(set(seeds)) == 1000


def test_streams_are_not_correlated() -> None:
    # Means of 2,000 uniform numbers from each of 200 streams: their spread is that of independent streams.
    means = np.array([stream(0, "x", number).random(2000).mean() for number in range(200)])
    assert np.std(means) == pytest.approx(1 / np.sqrt(12 * 2000), rel=0.2)
    rows = np.array([stream(0, "x", number).random(2000) for number in range(20)])
    assert np.abs(np.corrcoef(rows) - np.eye(20)).max() < 5 / np.sqrt(2000)
