"""The vertical sum of a group: its value, its precision, and what it refuses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.confined import sharing
from coterie.confined.vertical import VerticalSum
from coterie.crypto.entropy import DeterministicEntropy, Entropy
from coterie.errors import ConfigError, InputError, OverflowRisk, TooFewHonest
from coterie.secagg.messages import ClientMessage, encode


def parts_of(members: int, shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-10, 10, shape).astype(dtype) for _ in range(members)]


@given(
    st.integers(2, 20),
    st.sampled_from([(3,), (4, 5), (2, 3, 4)]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([10.0, 100.0, 12345.6]),
    st.integers(0, 2**32),
)
def test_the_sum_is_that_of_the_rounded_parts(
    members: int, shape: tuple[int, ...], dtype: str, bound: float, seed: int
) -> None:
    parts, addition = parts_of(members, shape, dtype, seed), VerticalSum(members, bound=bound)
    found = addition.add(parts)
    assert found.dtype == dtype
    assert found.shape == shape
    expected = np.sum(np.asarray(parts, np.float64), axis=0)
    rounding = members / 2 / addition.scale + 2.0 ** (-23 if dtype == "float32" else -52) * 10 * members
    assert np.abs(found - expected).max() <= rounding
    exact = [np.rint(part) for part in parts]
    if addition.scale >= 1:  # whole numbers are multiples of the resolution
        assert np.array_equal(addition.add(exact), np.sum(exact, axis=0))


@given(st.integers(2, 200), st.floats(1e-3, 1e6))
def test_the_largest_parts_do_not_overflow(members: int, bound: float) -> None:
    addition = VerticalSum(members, bound=bound)
    for sign in (1, -1):
        whole = np.full(1, sign * bound)
        encoded = int(np.rint(whole * addition.scale)[0])
        assert abs(members * encoded) < addition.ring.modulus // 2
    assert math.log2(addition.scale).is_integer()


def test_four_members_have_a_fine_resolution() -> None:
    assert VerticalSum(4).ring.bits == 32
    assert VerticalSum(4).scale == 2**22
    assert VerticalSum(112).ring.bits == 64
    assert VerticalSum(112).scale > 2**40


def test_in_the_clear_nothing_is_rounded() -> None:
    parts = parts_of(3, (5, 2), "float64")
    assert np.array_equal(VerticalSum(3, secure=False).add(parts), parts[0] + parts[1] + parts[2])
    VerticalSum(1, secure=False)  # a sum in the clear hides nothing, so honest members are not counted


@pytest.mark.parametrize("odd", [10.1, -10.1, math.nan, math.inf])
def test_a_part_that_is_too_large_is_refused_by_name(odd: float) -> None:
    parts = parts_of(3, (4, 2))
    parts[1][2, 1] = odd
    with pytest.raises(OverflowRisk, match=r"member-2's part .* bound is 10: scale the inputs down"):
        VerticalSum(3, bound=10.0).add(parts)


def test_parts_must_be_those_of_all_members() -> None:
    with pytest.raises(InputError, match="over 3 parts of one shape"):
        VerticalSum(3).add(parts_of(2, (4,)))
    with pytest.raises(InputError, match="over 2 parts of one shape"):
        VerticalSum(2).add([np.zeros(3), np.zeros(4)])
    with pytest.raises(ConfigError, match="positive"):
        VerticalSum(2, bound=0.0)


def test_a_sum_that_hides_nothing_is_refused() -> None:
    for members, colluders in ((1, 0), (2, 1), (4, 3)):
        with pytest.raises(TooFewHonest):
            VerticalSum(members, colluders=colluders)


def test_shares_come_from_the_entropy_of_their_dealer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The members' sources give all randomness of a sum: a keystream expands it, and numpy draws nothing."""
    drawn: dict[str, list[str]] = {}

    class Recorded:
        def __init__(self, name: str) -> None:
            self._inner, self._name = DeterministicEntropy(name.encode()), name

        def draw(self, label: str, size: int) -> bytes:
            drawn.setdefault(self._name, []).append(label)
            return self._inner.draw(label, size)

    published: list[bytes] = []

    def record(message: ClientMessage) -> bytes:
        if isinstance(message, sharing.SumOfShares):
            published.append(message.payload)
        return encode(message)

    def make(name: str) -> Entropy:
        return Recorded(name)

    monkeypatch.setattr(sharing, "encode", record)
    monkeypatch.setattr(np.random, "default_rng", None)
    parts = [np.ones((4, 2), np.float32) for _ in range(3)]
    VerticalSum(3).add(parts, make)
    VerticalSum(3).add(parts, make)
    assert published[:3] == published[3:]
    assert all(sum(label.startswith("share/") for label in labels) == 4 for labels in drawn.values())
    VerticalSum(3).add(parts)
    VerticalSum(3).add(parts)
    assert published[6:9] != published[9:]
