"""Policies that are not in the product's table."""

import numpy as np

from coterie.cohorts.circles import Circles
from coterie.cohorts.policies import MultiRound, PolicyKind, PolicySettings


def fixed_circles(size: int) -> PolicyKind:
    """Return a policy whose circles have ``size`` clients each, in the order of the clients."""

    def compose(settings: PolicySettings, _rng: np.random.Generator) -> Circles:
        return Circles.of(np.arange(settings.dropout.size).reshape(-1, size).tolist())

    description, promise = f"circles of {size}", f"T = {size}"
    return PolicyKind(description, promise, compose, lambda circles, settings: MultiRound(circles, settings.cohort))
