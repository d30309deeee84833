"""Weights that vary between sums over one circle reveal the updates of its members. Constant weights do not.

Every sum is over the whole circle: by participation alone, T is 4.
"""

import numpy as np
import pytest

from coterie import aggregate, audit

SIZES = {"ann": 23, "bob": 31, "cid": 40, "dan": 57}
CAPS = (10, 25, 35, 50, 60)
"""Limits that a server may set on the number of examples that count."""


def sums(caps: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum the same updates once for each cap; return the weights, the weighted sums and the updates."""
    rng = np.random.default_rng(0)
    updates = {name: rng.uniform(-1, 1, 50) for name in SIZES}
    weights, seen = [], []
    for cap in caps:
        chosen = {name: min(size, cap) for name, size in SIZES.items()}
        result = aggregate(updates, clip=1.0, weights=chosen, precision=40, seed=cap, circles=dict.fromkeys(SIZES, 0))
        assert result.clients == tuple(SIZES)
        weights.append(list(chosen.values()))
        seen.append(result.sum)
    return np.array(weights, float), np.array(seen), np.array(list(updates.values()))


@pytest.mark.parametrize(("caps", "found"), [(CAPS, True), ((60,) * 5, False)])
def test_changing_weights_add_equations_that_reveal_single_updates(caps: tuple[int, ...], found: bool) -> None:
    weights, seen, updates = sums(caps)
    solved = np.linalg.lstsq(weights, seen, rcond=None)[0]
    assert bool(np.abs(solved - updates).max() < 1e-3) is found
    assert np.linalg.matrix_rank(weights) == (len(SIZES) if found else 1)
    assert audit([[1] * len(SIZES)] * len(caps)).strong_privacy == len(SIZES)  # the audit knows only who took part
