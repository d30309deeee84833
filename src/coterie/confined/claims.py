"""Differential privacy of confined descent: the paper's claims, and the epsilon of explicit noise.

Theorem 1 of the paper counts the random start of every model as if it were fresh noise in every iteration. This is
wrong: an offset is drawn once and is the same in all T releases. It does not depend on the data, but the change of a
gradient by it does. So reports print its epsilon as "claimed by the paper, not sound", beside the epsilon of explicit
noise alone (:func:`sound_epsilon`), which is infinite without noise. The values that the paper prints follow from
neither. They come from an accountant at its floor (:mod:`coterie.privacy.bayesian`).
"""

import math
from dataclasses import dataclass

from coterie.errors import ConfigError
from coterie.privacy import Concentrated
from coterie.privacy.accounting import composed_epsilon

CLAIMED = "claimed by the paper, not sound"
"""Reports print this beside every value of :class:`Theorem1`."""


@dataclass(frozen=True)
class Theorem1:
    """The epsilon of CGD, Theorem 1, or of Corollary 1 with a ``fraction`` C below 1: claimed, and not sound.

    The condition is sum lambda + m sigma^2 >= 4 C^2 T a log(1/delta) / epsilon^2 for "some constant a". It takes the
    standard deviation lambda for a variance. Theorem 1 is for any data and has C = 1, whatever the size of the subset.
    Corollary 1 is for independent and identically distributed data only.
    """

    participants: int
    spread: float
    """lambda, or its mean over the participants."""
    sigma: float
    iterations: int
    fraction: float = 1.0
    constant: float = 0.5
    """a, which the paper does not specify; for a unit-shift Gaussian it would be 1/2."""

    def __post_init__(self) -> None:
        positive = self.participants >= 1 and self.iterations >= 1 and self.constant > 0
        if not positive or not 0 < self.fraction <= 1 or self.spread < 0 or self.sigma < 0:
            raise ConfigError(
                "Theorem 1 needs at least one participant and iteration, 0 < C <= 1, and lambda and sigma of at least 0"
            )

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
    """Return the epsilon of explicit noise alone, for one example replaced by another: infinite without noise.

    Each participant clips its gradient to ``norm`` and adds noise of deviation ``sigma`` to each entry. Colluders know
    their own noise, so the noise of ``honest`` participants counts: the fewest honest ones in any sum. Where noise is
    set for a sum, each adds the deviation of the sum divided by sqrt(honest), and ``sigma`` is that share.

    Another example moves a clipped gradient by up to 2 norm, because the mean over the examples is clipped and not each
    of them. This holds for any history of refused steps and for gradients of older iterates, which are clipped too. On
    a grid, an example of a group changes ``blocks`` = m_v + 1 clipped blocks, one of each vertical member and one of
    the group: 2 norm sqrt(m_v + 1) together. A block has the noise of the honest groups.

    Each of the T iterations costs rho = (2 norm)^2 blocks / (2 honest sigma^2) (Bun and Steinke 2016). There is no
    amplification by sampling: subsets are fixed or unions of circles, and everybody sees all sums. A run computes the
    same for its noise in the ring, rounding included (:attr:`coterie.privacy.Release.for_an_example`).
    """
    if sigma < 0 or iterations < 1 or honest < 1 or norm <= 0 or blocks < 1:
        raise ConfigError(
            "epsilon needs sigma >= 0, a positive norm and at least one iteration, honest member and block"
        )
    if not sigma:
        return math.inf
    rho = (2 * norm) ** 2 * blocks / (2 * honest * sigma**2)
    return composed_epsilon(Concentrated(rho, 0.0), iterations, delta)
