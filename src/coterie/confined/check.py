"""Loss checks: whether a participant takes a step up, judged on its own data alone.

Printed as "LRR_k = F(w) - g" (CGD, Algorithm 1, line 12), a scalar minus a vector; meant is the increase of the local
loss. The decision is local and uses the public sum only, so it is compatible with secure addition; who takes part in a
sum must not depend on it.

At threshold 0 a few per cent of honest steps are refused too, and so is nearly all of a persistent poison. A positive
threshold is what an attacker may add to the loss in every step. Either way poison becomes denial of service: a
participant that refuses every step stands still.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from coterie.errors import ConfigError

LossHistory: TypeAlias = tuple[float, ...]
"""What a check remembers of one participant."""


class LossCheck(Protocol):
    """A rule for taking a step up."""

    def judge(
        self, history: LossHistory, before: float, after: float, rng: np.random.Generator
    ) -> tuple[bool, LossHistory]:
        """Judge a step by the local loss before it and after it; return the verdict and what to remember."""
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
        """Compare the two losses; nothing is remembered."""
        return after - before <= self.threshold, ()


@dataclass(frozen=True)
class HistoryCheck:
    """The rule in the authors' code: refuse if the loss is above the mean of the last 15 by their deviation or more.

    It looks at the loss *before* the step, so that it notices harm only once it is done. (There that loss is the one of
    the last time the participant was selected; here it is the current one.) Until the history is full every step is
    accepted. After a refusal the loss enters the history with probability 49/99.
    """

    length: int = 15
    remembered: float = 49 / 99

    def __post_init__(self) -> None:
        if self.length < 2 or not 0 <= self.remembered <= 1:
            raise ConfigError("the history of losses has at least 2 of them, and remembers with a probability")

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
    """Accepts every step: what the authors' experiment on MNIST does."""

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
"""Every check by the name that settings know it by."""
