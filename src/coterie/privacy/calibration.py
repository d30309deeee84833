"""The least noise that keeps the spending within an epsilon, found by bisection on the accountant."""

import math
from collections.abc import Callable

from coterie.errors import ConfigError
from coterie.privacy.accounting import composed_epsilon
from coterie.privacy.distributions import Concentrated

DELTA = 1e-5
"""The delta for which epsilon is stated unless another one is given."""
MOST_MULTIPLIER = 1e6
_CLOSE = 1 + 1e-9  # the noise is larger than the least one by a factor of at most this


def least_noise(spent: Callable[[float], float], epsilon: float, low: float, high: float) -> float:
    """Return the least noise between two bounds that spends at most ``epsilon``.

    ``spent`` computes the epsilon of an amount of noise, and must not grow with it. The result is always enough.
    Raises :class:`ConfigError` if the answer is not between the bounds.
    """
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"epsilon must be a number above 0, not {epsilon!r}")
    if spent(high) > epsilon:
        raise ConfigError(
            f"no noise of up to {high:.3g} gives epsilon = {epsilon:g}, only {spent(high):.3g}: plan fewer rounds, or "
            "a larger epsilon or delta"
        )
    if spent(low) <= epsilon:
        raise ConfigError(
            f"epsilon = {epsilon:g} is larger than the {spent(low):.3g} that the least possible noise of {low:.3g} "
            "gives: take a smaller epsilon"
        )
    while high > low * _CLOSE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spent(middle) > epsilon else (low, middle)
    return high


def noise_multiplier(epsilon: float, rounds: int, delta: float = DELTA) -> float:
    """Return the least noise for which this number of sums together is (epsilon, delta)-private, for each client.

    The noise is a deviation in units of the clipping norm. Each client counts as part of every sum. A run rounds its
    updates to integers, which costs a little more; it computes that from its own settings.
    """

    def spent(multiplier: float) -> float:
        return composed_epsilon(Concentrated(rho=1 / (2 * multiplier**2), xi=0.0), rounds, delta)

    return least_noise(spent, epsilon, 1 / MOST_MULTIPLIER, MOST_MULTIPLIER)
