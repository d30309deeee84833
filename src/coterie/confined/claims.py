"""Claims of differential privacy for confined descent: what the paper says, and what explicit noise is worth.

Theorem 1 of the paper counts the random start of every model as if it were fresh noise in every iteration. It is not:
an offset is drawn once and is the same in all T releases, it does not depend on the data, and how a gradient changes
with it does. So its epsilon is reported as "claimed by the paper, not sound", beside one that counts explicit noise
only (:func:`sound_epsilon`) and is infinite where there is none. The values that the paper prints come from neither,
but from an accountant at its floor (:mod:`coterie.privacy.bayesian`).
"""

import math
from dataclasses import dataclass

from coterie.errors import ConfigError
from coterie.privacy import Concentrated
from coterie.privacy.accounting import composed_epsilon

CLAIMED = "claimed by the paper, not sound"
"""What must stand beside every value of :class:`Theorem1`."""


@dataclass(frozen=True)
class Theorem1:
    """The epsilon of CGD, Theorem 1 (Corollary 1 for a fraction C of the participants): claimed, and not sound.

    Its condition is sum lambda + m sigma^2 >= 4 C^2 T a log(1/delta) / epsilon^2 for "some constant a", with the
    standard deviation lambda taken for a variance.
    """

    participants: int
    spread: float
    """lambda, or its mean over the participants."""
    sigma: float
    iterations: int
    fraction: float = 1.0
    constant: float = 0.5
    """a, which the paper leaves open; 1/2 is what a unit-shift Gaussian would give."""

    def __post_init__(self) -> None:
        positive = self.participants >= 1 and self.iterations >= 1 and self.constant > 0
        if not positive or not 0 < self.fraction <= 1 or self.spread < 0 or self.sigma < 0:
            raise ConfigError("Theorem 1 speaks of participants, iterations, a fraction of them and noise")

    def printed(self, delta: float) -> float:
        """Return epsilon with sigma = 2 sqrt(C^2 T a log(1/delta) / (m epsilon^2) - E[lambda]), as printed."""
        return self._epsilon(delta, self.spread + self.sigma**2 / 4)

    def by_its_condition(self, delta: float) -> float:
        """Return epsilon by the condition that the printed formula is meant to solve: E[lambda] / 4 under the root."""
        return self._epsilon(delta, (self.spread + self.sigma**2) / 4)

    def _epsilon(self, delta: float, noise: float) -> float:
        if not 0 < delta < 1:
            raise ConfigError(f"delta must be between 0 and 1, not {delta}")
        if not noise:
            return math.inf
        work = self.fraction**2 * self.iterations * self.constant * math.log(1 / delta)
        return math.sqrt(work / (self.participants * noise))


def sound_epsilon(
    sigma: float, iterations: int, delta: float, *, honest: int, norm: float = 1.0, blocks: int = 1
) -> float:
    """Return the epsilon of explicit noise alone, for one example replaced: infinite without noise.

    Every contribution is clipped to ``norm`` and carries noise of deviation sigma on each entry; ``honest`` of them are
    in every sum. Another example moves a clipped gradient by up to 2 norm, since it is the participant's mean that is
    clipped and not every example's gradient. On a grid an example of a group touches ``blocks`` = m_v + 1 of them, one
    for each vertical member and the group's own: 2 norm sqrt(m_v + 1) in all, and a block has the noise of the honest
    groups only. Each of the T iterations costs rho = (2 norm)^2 blocks / (2 honest sigma^2) (Bun and Steinke 2016),
    without amplification: subsets are fixed or unions of circles, not independent samples, and all sums are seen.
    """
    if sigma < 0 or iterations < 1 or honest < 1 or norm <= 0 or blocks < 1:
        raise ConfigError(
            "epsilon needs sigma >= 0, a positive norm and at least one iteration, honest member and block"
        )
    if not sigma:
        return math.inf
    rho = (2 * norm) ** 2 * blocks / (2 * honest * sigma**2)
    return composed_epsilon(Concentrated(rho, 0.0), iterations, delta)
