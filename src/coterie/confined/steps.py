"""Step sizes alpha_k of confined descent; iterations count from 1.

The step is applied to the *mean* of the selected gradients. The paper applies it to their sum (CGD, Algorithm 1, lines
9 to 11): its alpha is ours divided by the size of the subset.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from coterie.errors import ConfigError


class StepSize(Protocol):
    """A step size that depends on the iteration."""

    warning: ClassVar[str]
    """A warning for users; empty if there is none."""

    def __call__(self, iteration: int) -> float:
        """Return alpha_k for k = ``iteration``, from 1."""
        ...


@dataclass(frozen=True)
class _FirstStep:
    """A schedule that begins with the step alpha."""

    warning: ClassVar[str] = ""
    alpha: float

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise ConfigError(f"a step size is a positive number, not {self.alpha}")


@dataclass(frozen=True)
class ConstantStep(_FirstStep):
    """alpha in every iteration."""

    def __call__(self, iteration: int) -> float:
        """Return alpha."""
        return self.alpha


@dataclass(frozen=True)
class InverseRootStep(_FirstStep):
    """alpha / sqrt(k): falls, and its sum still grows without bound."""

    def __call__(self, iteration: int) -> float:
        """Return alpha / sqrt(k)."""
        return self.alpha / math.sqrt(iteration)


@dataclass(frozen=True)
class PaperStep(_FirstStep):
    """Constant steps, then alpha ((1 + mu T) / (j + mu T))^2: the paper's schedule, for comparison with it.

    j counts from 1 at the switch, so the falling phase starts at alpha, the constant step (CGD, appendix I.3: "continue
    our experiment with alpha_1 = alpha"). ``constant`` is the number of iterations before the switch. All steps after
    it together are below (2 + mu T) alpha, however long the run is. The theorem that recommends such steps (CGD,
    Theorem 2) is false.
    """

    warning: ClassVar[str] = (
        "the falling steps of the paper add up to less than 2 + mu T times the first one, however long the run is; "
        "they are for comparison with the paper"
    )
    mu: float
    horizon: int
    constant: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.mu < 1 or self.horizon < 1 or self.constant < 0:
            raise ConfigError("the paper's schedule has 0 <= mu < 1, a horizon T >= 1 and no negative constant part")

    def __call__(self, iteration: int) -> float:
        """Return alpha in the constant part, and the falling step after it."""
        number = iteration - self.constant
        if number <= 1:
            return self.alpha
        flatness = self.mu * self.horizon
        return self.alpha * ((1 + flatness) / (number + flatness)) ** 2


STEP_SIZES: dict[str, Callable[..., StepSize]] = {
    "constant": ConstantStep,
    "inverse-root": InverseRootStep,
    "paper": PaperStep,
}
"""Every schedule by its name in the settings."""
