"""Differential privacy on top of secure aggregation: noise in the ring, and an account of what it is worth.

Each client clips its update, rounds it, and adds its share of the noise before masking (:class:`NoisyQuantizer`); the
sum carries enough of it even if as many clients drop out as a session allows (:class:`Noise`). What a run has spent is
a :class:`PrivacySpending`.
"""

from coterie.privacy.accounting import ASSUMPTIONS, PrivacySpending, Release, sampled_gaussian_epsilon
from coterie.privacy.distributions import DISTRIBUTIONS, Concentrated, Distribution
from coterie.privacy.encoding import NoisyQuantizer, clip_norm
from coterie.privacy.noise import Noise, least_aggregated, left_after_dropouts
from coterie.privacy.sensitivity import Sensitivity

__all__ = [
    "ASSUMPTIONS",
    "DISTRIBUTIONS",
    "Concentrated",
    "Distribution",
    "Noise",
    "NoisyQuantizer",
    "PrivacySpending",
    "Release",
    "Sensitivity",
    "clip_norm",
    "least_aggregated",
    "left_after_dropouts",
    "sampled_gaussian_epsilon",
]
