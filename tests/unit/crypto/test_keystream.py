from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from coterie.crypto import keystream
from coterie.errors import LocalProtocolError

SEEDS = st.lists(st.binary(min_size=16, max_size=16), max_size=4)
DTYPES = st.sampled_from([np.uint16, np.uint32, np.uint64])


def reference(seed: bytes, length: int, dtype: Any) -> Any:  # noqa: ANN401
    encryptor = Cipher(algorithms.AES128(seed), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(encryptor.update(bytes(length * np.dtype(dtype).itemsize)), dtype)


@given(SEEDS, SEEDS, st.integers(0, 300), DTYPES)
def test_masks_are_the_sum_of_aes_ctr_streams(plus: list[bytes], minus: list[bytes], length: int, dtype: Any) -> None:  # noqa: ANN401
    vector = np.arange(length).astype(dtype)
    expected = vector.copy()
    for seed in plus:
        expected += reference(seed, length, dtype)
    for seed in minus:
        expected -= reference(seed, length, dtype)
    keystream.apply_masks(vector, plus, minus)
    assert (vector == expected).all()


@given(st.binary(min_size=16, max_size=16), DTYPES, st.integers(0, 40), st.integers(0, 100))
def test_slices_are_masked_like_the_whole(seed: bytes, dtype: Any, blocks: int, rest: int) -> None:  # noqa: ANN401
    start = blocks * 16 // np.dtype(dtype).itemsize
    whole = np.zeros(start + rest, dtype)
    keystream.apply_masks(whole, [seed])
    parts = np.zeros(start + rest, dtype)
    keystream.apply_masks(parts[:start], [seed])
    keystream.apply_masks(parts[start:], [seed], start=start)
    assert (parts == whole).all()


def test_vectors_longer_than_a_chunk_are_masked_whole() -> None:
    length = keystream.CHUNK_BYTES // 4 * 2 + 3
    vector = np.zeros(length, np.uint32)
    keystream.apply_masks(vector, [b"0123456789abcdef"])
    assert (vector == reference(b"0123456789abcdef", length, np.uint32)).all()


def test_a_slice_inside_a_block_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        keystream.apply_masks(np.zeros(4, np.uint32), [bytes(16)], start=3)


def test_masks_have_the_known_answer_of_aes() -> None:
    # AES-128 of the all-zero block under the all-zero key (FIPS 197 and the NIST CAVP known-answer tests).
    vector = np.zeros(8, np.uint16)
    keystream.apply_masks(vector, [bytes(16)])
    assert vector.tobytes().hex() == "66e94bd4ef8a2c3b884cfa59ca342b2e"
