from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.arithmetic import Ring, RingVector
from coterie.arithmetic.ring import _PIECE
from coterie.errors import ConfigError, InputError

rings = st.builds(Ring, st.integers(1, 64))
lengths = st.integers(0, 200)


@st.composite
def ring_vectors(draw: st.DrawFn) -> tuple[Ring, RingVector]:
    ring = draw(rings)
    return ring, draw(hnp.arrays(ring.dtype, draw(lengths), elements=st.integers(0, ring.modulus - 1)))


def equal(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    return left.dtype == right.dtype and np.array_equal(left, right)


@given(ring_vectors())
def test_unpacking_inverts_packing(case: tuple[Ring, RingVector]) -> None:
    ring, vector = case
    packed = ring.pack(vector)
    assert len(packed) == ring.packed_size(len(vector))
    assert equal(ring.unpack(packed, len(vector)), vector)


@pytest.mark.parametrize("bits", range(1, 65))
def test_every_ring_packs_its_extremes(bits: int) -> None:
    ring = Ring(bits)
    for length in range(18):
        vector = ring.zeros(length)
        vector[::2] = ring.modulus - 1
        assert equal(ring.unpack(ring.pack(vector), length), vector)


@pytest.mark.parametrize("bits", [5, 8, 30, 33, 64])
@pytest.mark.parametrize("more", [-1, 0, 1, 9])
def test_vectors_longer_than_a_piece_are_unpacked_whole(bits: int, more: int) -> None:
    ring, length = Ring(bits), 2 * _PIECE + more
    drawn = np.random.default_rng(bits).integers(0, ring.modulus, length, dtype=np.uint64)
    vector = drawn.astype(ring.dtype)
    packed = ring.pack(vector)
    assert equal(ring.unpack(packed, length), vector)
    if bits % 8 and length % 8:
        packed[-1] |= 0x80
        with pytest.raises(InputError, match="padding"):
            ring.unpack(packed, length)


@given(st.data(), rings, lengths)
def test_a_vector_has_only_one_encoding(data: st.DataObject, ring: Ring, length: int) -> None:
    size = ring.packed_size(length)
    packed = data.draw(st.binary(min_size=size, max_size=size))
    try:
        vector = ring.unpack(packed, length)
    except InputError:
        assert ring.bits % 8  # byte planes have no padding to be wrong
        assert length % 8
    else:
        ring.check(vector, length)
        assert ring.pack(vector) == packed


@given(rings, lengths, st.binary(max_size=64))
def test_unpack_refuses_every_other_size(ring: Ring, length: int, data: bytes) -> None:
    if len(data) != ring.packed_size(length):
        with pytest.raises(InputError, match="bytes"):
            ring.unpack(data, length)


def test_unpack_refuses_padding_bits() -> None:
    ring = Ring(9)
    packed = bytearray(ring.pack(ring.zeros(3)))
    assert len(packed) == 4
    for bit in range(3, 8):
        packed[3] = 1 << bit
        with pytest.raises(InputError, match="padding"):
            ring.unpack(packed, 3)


def test_the_encoding_is_the_documented_one() -> None:
    ring = Ring(12)
    vector = np.array([0xABC, 0x123], np.uint16)
    # Low bytes; then bits 8, 9, 10 and 11 of both elements, the first in the lowest bit.
    assert ring.pack(vector) == bytes([0xBC, 0x23, 0b10, 0b01, 0b00, 0b01])
    assert Ring(24).pack(np.array([0x010203], np.uint32)) == bytes([3, 2, 1])


@given(rings, st.integers(0, 10**9))
def test_packing_wastes_less_than_a_byte_per_bit_plane(ring: Ring, length: int) -> None:
    waste = 8 * ring.packed_size(length) - ring.bits * length
    assert 0 <= waste <= 7 * (ring.bits % 8)


@given(ring_vectors())
def test_packing_takes_any_strides(case: tuple[Ring, RingVector]) -> None:
    ring, vector = case
    assert ring.pack(vector[::-3]) == ring.pack(vector[::-3].copy())


@given(st.data(), rings, st.integers(0, 8), st.integers(0, 20))
def test_a_sum_is_the_sum_of_integers_modulo_the_ring(data: st.DataObject, ring: Ring, terms: int, length: int) -> None:
    """Reducing once, at the end, is enough."""
    elements = st.integers(0, ring.modulus - 1)
    numbers = data.draw(st.lists(st.lists(elements, min_size=length, max_size=length), min_size=terms, max_size=terms))
    found = ring.sum((np.array(row, ring.dtype) for row in numbers), length)
    assert found.tolist() == [sum(row[place] for row in numbers) % ring.modulus for place in range(length)]
    ring.check(found, length)


@given(st.data(), rings)
def test_lift_inverts_the_embedding_of_signed_integers(data: st.DataObject, ring: Ring) -> None:
    half = ring.modulus // 2
    integers = data.draw(st.lists(st.integers(-half, half - 1), max_size=20))
    vector = np.array([integer % ring.modulus for integer in integers], ring.dtype)
    before = vector.copy()
    assert ring.lift(vector).tolist() == integers
    assert equal(vector, before)
    words = np.array(integers, ring.signed).view(ring.dtype)
    ring.reduce(words)
    assert equal(words, vector)


def test_words_are_the_smallest_that_hold_an_element() -> None:
    for bits in range(1, 65):
        width = 8 * Ring(bits).dtype.itemsize
        assert width == (16 if bits <= 16 else 32 if bits <= 32 else 64)
        assert Ring(bits).zeros(3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("bits", [0, -1, 65, 8.0, True, "8"])
def test_a_ring_has_1_to_64_bits(bits: object) -> None:
    with pytest.raises(ConfigError, match="1 to 64 bits"):
        Ring(bits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([0, 0], "list"),
        (np.zeros(2, np.uint16), "uint16"),
        (np.zeros(2, np.int32), "int32"),
        (np.zeros(2, ">u4"), ">u4"),
        (np.zeros(3, np.uint32), "shape"),
        (np.zeros((2, 1), np.uint32), "shape"),
        (np.zeros((), np.uint32), "shape"),
        (np.array([0, 1 << 20], np.uint32), "more than 20 bits"),
    ],
)
def test_check_refuses_values_that_are_not_vectors_of_the_ring(vector: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Ring(20).check(vector, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("vector", [np.array([1 << 20], np.uint32), np.zeros((), np.uint32), None])
def test_pack_refuses_values_that_are_not_elements(vector: object) -> None:
    with pytest.raises(InputError):
        Ring(20).pack(vector)  # type: ignore[arg-type]
