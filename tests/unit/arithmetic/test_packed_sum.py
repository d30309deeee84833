import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.arithmetic.packed_sum import PackedSum
from coterie.arithmetic.ring import Ring, RingVector
from coterie.errors import InputError

RINGS = (1, 7, 8, 9, 15, 16, 29, 31, 32, 40, 63, 64)


def reduced(ring: Ring, packed: PackedSum) -> RingVector:
    total = packed.total().copy()
    ring.reduce(total)
    return total


@given(st.data(), st.builds(Ring, st.integers(1, 64)), st.integers(0, 40), st.integers(0, 6), st.booleans())
def test_a_packed_sum_is_the_sum_of_the_vectors(
    data: st.DataObject, ring: Ring, length: int, size: int, slim: bool
) -> None:
    elements = st.lists(st.integers(0, ring.modulus - 1), min_size=length, max_size=length)
    vectors = [np.array(data.draw(elements), ring.dtype) for _ in range(size)]
    packed = PackedSum(ring, length, slim=slim)
    for count, vector in enumerate(vectors):
        if data.draw(st.booleans()):  # asking for the sum so far changes nothing
            assert np.array_equal(reduced(ring, packed), ring.sum(vectors[:count], length))
        packed.add(ring.pack(vector))
    assert packed.total().dtype == ring.dtype
    assert np.array_equal(reduced(ring, packed), ring.sum(vectors, length))


@pytest.mark.parametrize("bits", RINGS)
@pytest.mark.parametrize("count", [254, 255, 256, 600])
def test_the_largest_vectors_do_not_overflow_their_planes(bits: int, count: int) -> None:
    ring, length = Ring(bits), 11
    largest = np.full(length, ring.modulus - 1, ring.dtype)
    packed = PackedSum(ring, length)
    for _ in range(count):
        packed.add(ring.pack(largest))
    assert reduced(ring, packed).tolist() == [count * (ring.modulus - 1) % ring.modulus] * length


@pytest.mark.parametrize("slim", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("bits", [9, 29])
def test_a_refused_vector_does_not_change_the_sum(bits: int, first: bool, slim: bool) -> None:
    ring, length = Ring(bits), 11
    vector = np.arange(length).astype(ring.dtype)
    good = ring.pack(vector)
    padded = bytearray(good)
    padded[-1] |= 0x80  # eleven bits leave five of the last byte
    packed = PackedSum(ring, length, slim=slim)
    if not first:
        packed.add(good)
    for bad, reason in ((good[:-1], "bytes"), (good + b"\0", "bytes"), (padded, "padding")):
        with pytest.raises(InputError, match=reason):
            packed.add(bad)
    packed.add(good)
    assert np.array_equal(reduced(ring, packed), (1 if first else 2) * vector)


def test_vectors_are_not_changed() -> None:
    ring = Ring(29)
    data = ring.pack(np.arange(11).astype(ring.dtype))
    before = bytes(data)
    packed = PackedSum(ring, 11)
    for _ in range(3):
        packed.add(data)
    packed.total()
    assert data == before
