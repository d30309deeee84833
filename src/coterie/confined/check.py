"""Loss checks: rules by which a participant accepts or refuses a step, using only its own data.

CGD, Algorithm 1, line 12 prints "LRR_k = F(w) - g", a scalar minus a vector. It must mean the increase of the local
loss. A decision needs the participant's data and the public sum only, so checks work with secure addition. Selection
must not depend on them.

A threshold of 0 refuses a few per cent of honest steps, and nearly all steps of a persistent poison. With a positive
threshold an attacker may add that much to the loss in every step. In both cases poison becomes denial of service: the
model of a participant that refuses every step does not change.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from coterie.errors import ConfigError

LossHistory: TypeAlias = tuple[float, ...]
"""Earlier losses of one participant, as far as a check needs them."""


class LossCheck(Protocol):
    """A rule for accepting a step."""

    def judge(
        self, history: LossHistory, before: float, after: float, rng: np.random.Generator
    ) -> tuple[bool, LossHistory]:
        """Judge a step by the local loss before and after it; return the verdict and the new history."""
        ...


@dataclass(frozen=True)
class IncreaseCheck:
    """Accepts if F(candidate) - F(current) is at most ``threshold``; a loss that is not a number is never accepted."""

    threshold: float = 0.0

    def __post_init__(self) -> None:
        if math.isnan(self.threshold):
            raise ConfigError("the threshold of the loss check must be a number")

    def judge(
        self, history: LossHistory, before: float, after: float, rng: np.random.Generator
    ) -> tuple[bool, LossHistory]:
        """Compare the two losses; there is no history."""
        return after - before <= self.threshold, ()


@dataclass(frozen=True)
class HistoryCheck:
    """The rule in the authors' code: refuse if the loss exceeds the mean of the last 15 by their deviation or more.

    It compares the loss *before* the step, so it detects harm only afterwards. (In the authors' code that loss is
    the one of the last time the participant was selected; here it is the current one.) Every step is accepted until the
    history is full. After a refusal the loss enters the history with probability 49/99.
    """

    length: int = 15
    remembered: float = 49 / 99

    def __post_init__(self) -> None:
        if self.length < 2 or not 0 <= self.remembered <= 1:
            raise ConfigError("a history check needs at least 2 losses, and remembers with a probability from 0 to 1")

    def judge(
        self, history: LossHistory, before: float, after: float, rng: np.random.Generator
    ) -> tuple[bool, LossHistory]:
        """Compare the current loss with those before it."""
        if not math.isfinite(before):
            return False, history
        full = len(history) >= self.length
        accepted = not full or before - statistics.fmean(history) < statistics.pstdev(history)
        if accepted or rng.random() < self.remembered:
            history = (*history, before)[-self.length :]
        return accepted, history


@dataclass(frozen=True)
class NoCheck:
    """Accepts every step, as the authors' experiment on MNIST does."""

    def judge(
        self, history: LossHistory, before: float, after: float, rng: np.random.Generator
    ) -> tuple[bool, LossHistory]:
        """Accept."""
        return True, ()


LOSS_CHECKS: dict[str, Callable[..., LossCheck]] = {
    "increase": IncreaseCheck,
    "history": HistoryCheck,
    "none": NoCheck,
}
"""All checks, by their names in the settings."""
