from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from coterie.crypto.keystream import apply_masks
from coterie.secagg.masking import LEAST_SLICE, MOST_SLICES, mask_vector


@pytest.mark.parametrize("length", [1, 100, LEAST_SLICE, LEAST_SLICE + 1, MOST_SLICES * LEAST_SLICE + 5])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
def test_masking_in_slices_equals_masking_the_whole_vector(length: int, dtype: type[np.unsignedinteger]) -> None:
    added, subtracted = [b"a" * 16, b"b" * 16], [b"c" * 16]
    expected = np.arange(length).astype(dtype)
    apply_masks(expected, added, subtracted)
    for pool in (None, ThreadPoolExecutor(2)):
        vector = np.arange(length).astype(dtype)
        mask_vector(vector, added, subtracted, pool.map if pool else None)
        assert (vector == expected).all()
