"""The global random generators of torch, numpy and Python, from which transforms of examples draw."""

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed all global generators, and restore them afterwards."""
    with torch.random.fork_rng(devices=[]), others_seeded(seed):
        torch.default_generator.manual_seed(seed)
        yield


def generator_states() -> tuple[Any, ...]:
    """Return the states of all global generators. They change when random numbers are drawn."""
    numbers = pickle.dumps(np.random.get_state())  # noqa: NPY002 - the global one is what transforms draw from
    return torch.default_generator.get_state().numpy().tobytes(), numbers, random.getstate()


@contextmanager
def others_seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of numpy and Python, and restore them afterwards."""
    numbers, words = np.random.get_state(), random.getstate()  # noqa: NPY002 - the global one, which transforms use
    np.random.seed(seed % 2**32)  # noqa: NPY002 - as above
    random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(numbers)  # noqa: NPY002 - as above
        random.setstate(words)
