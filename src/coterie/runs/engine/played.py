"""A round and its result, however it is played."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from coterie.cohorts.circles import Mask
from coterie.cohorts.ledger import Outcome
from coterie.training.flatten import ModelArrays
from coterie.transports.faults import Faults

Observe: TypeAlias = Callable[[str, int, int], None]
"""Told of progress inside a round: the step, how many clients have answered, and how many are asked."""


@dataclass(frozen=True, eq=False)
class Played:
    """What became of a round; if it was completed, then something was learnt, or is to be learnt from ``mean``."""

    outcome: Outcome
    reason: str = ""
    selected: tuple[str, ...] = ()
    aggregated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    stranded: tuple[str, ...] = ()
    left_later: tuple[str, ...] = ()
    mean: ModelArrays | None = field(default=None, repr=False)
    """What the strategy has yet to learn from; None if there is nothing, or if it was told already."""
    losses: Mapping[str, float] = field(default_factory=dict, repr=False)
    clipped: float = 0.0
    upload_bytes: int = 0
    download_bytes: int = 0
    train_seconds: float = 0.0
    protect_seconds: float = 0.0
    compute_seconds: float = 0.0


class Aggregation(Protocol):
    """A way to play rounds."""

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play round ``number``, counted from 1."""
        ...
