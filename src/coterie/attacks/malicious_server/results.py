"""The results of the lies: what each obtained with and without the rule against it, compared with guessing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie.attacks.malicious_server.scenario import Attempt, Lie
from coterie.reports.findings import Effect

GUESSES = 1999
"""The number of random guesses that results are compared with."""
SIGNIFICANT = 0.001


@dataclass(frozen=True)
class Variation:
    """The result of a lie in a version that was varied at random."""

    baseline: bool
    """Whether it still obtained the victim's input without the rule."""
    broken: bool
    """Whether, with all rules, it obtained anything that it must not."""
    asked: int
    """The number of messages to honest clients, with all rules."""


@dataclass(frozen=True, eq=False)
class LieResult:
    """The results of one lie over all victims."""

    lie: Lie
    without: Sequence[Attempt]
    """Without the rule against it, one for each victim."""
    against: Sequence[Attempt]
    """The same with the rule."""
    varied: Sequence[Variation]
    chance: float
    """How often guesses resemble the victims' inputs as much as what was recovered with the rule."""

    @property
    def impossible(self) -> str:
        """Why the lie cannot be tried here; empty if it can."""
        return self.without[0].impossible

    @property
    def worked(self) -> int:
        """The number of inputs that were obtained without the rule."""
        return sum(attempt.exact for attempt in self.without)

    @property
    def obtained(self) -> int:
        """The number of inputs that were obtained with the rule."""
        return sum(attempt.exact for attempt in self.against)

    @property
    def broken(self) -> int:
        """The number of varied versions that obtained something that they must not, with the rule."""
        return sum(each.broken for each in self.varied)

    @property
    def outcome(self) -> Effect:
        """The effect of the rule on the lie."""
        if self.obtained or self.broken:
            return Effect.NOT_ELIMINATED
        return Effect.REDUCED if self.chance < SIGNIFICANT else Effect.ELIMINATED

    @property
    def refusals(self) -> Sequence[str]:
        """The reasons for which clients refused with the rule, each once."""
        return tuple(dict.fromkeys(reason for attempt in self.against for reason in attempt.refusals))


def resemblance(attempts: Sequence[Attempt]) -> float:
    """Return the mean resemblance of what was recovered with the inputs."""
    return float(np.mean([attempt.resemblance for attempt in attempts]))


def chance_of(attempts: Sequence[Attempt], rng: np.random.Generator) -> float:
    """Return the p-value of what was recovered: how often random ring elements resemble the inputs as much."""
    held = [attempt for attempt in attempts if attempt.recovered is not None]
    if not held:
        return 1.0
    guessed = np.mean([_guesses(attempt, rng) for attempt in held], axis=0)
    return float(1 + np.count_nonzero(guessed >= resemblance(held))) / (1 + GUESSES)


def _guesses(attempt: Attempt, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return the resemblance of many random guesses with an input."""
    ring, planted = attempt.ring, attempt.planted
    guesses = ring.lift(rng.integers(0, ring.modulus, (GUESSES, planted.size), ring.dtype)).astype(np.float64)
    guesses -= guesses.mean(axis=1, keepdims=True)
    truth = ring.lift(planted) - ring.lift(planted).mean()
    return np.asarray(np.abs(guesses @ truth) / (np.linalg.norm(guesses, axis=1) * np.linalg.norm(truth)))
