"""How long one selection takes and what it allocates. Prints; asserts nothing about time."""

import statistics
import time
import tracemalloc

import numpy as np
import pytest

from coterie.cohorts.circles import random_circles
from coterie.cohorts.policies import Mode, MultiRound


@pytest.mark.bench
@pytest.mark.parametrize("mode", ["uniform", "fair", "fairest"])
@pytest.mark.parametrize(
    ("population", "cohort", "privacy", "repeats"), [(120, 12, 3, 2_000), (1_000_000, 1_000, 10, 50)]
)
def test_selection_speed(
    mode: Mode, population: int, cohort: int, privacy: int, repeats: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    policy = MultiRound(random_circles(population, privacy, rng), cohort, mode)
    frequencies = np.zeros(population, dtype=np.int64)
    seconds = []
    for _ in range(repeats):
        available = rng.random(population) >= 0.1
        start = time.perf_counter()
        selected = policy.select(available, frequencies, rng)
        seconds.append(time.perf_counter() - start)
        frequencies[selected] += 1
    assert selected.size == cohort
    tracemalloc.start()
    policy.select(available, frequencies, rng)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    with capsys.disabled():
        print(
            f"\nN={population} K={cohort} T={privacy} {mode}: median {statistics.median(seconds) * 1e3:.3f} ms, "
            f"worst {max(seconds) * 1e3:.3f} ms, {peak / population:.1f} bytes allocated for each client"
        )
