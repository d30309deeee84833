"""Differential privacy on top of secure aggregation: noise in the ring, and privacy accounting.

Each client clips its update, rounds it, and adds its share of the noise before masking (:class:`NoisyQuantizer`). The
sum has enough noise even if as many clients drop out as a session allows (:class:`Noise`). :class:`PrivacySpending`
records what a run has spent and computes epsilon with the ``dp-accounting`` library.

Start with :mod:`~coterie.privacy.encoding` (clipping, rounding and sensitivity), then :mod:`~coterie.privacy.noise`
(how large a share is), :mod:`~coterie.privacy.distributions` (discrete Gaussian and Skellam),
:mod:`~coterie.privacy.sampling` (exact sampling) and :mod:`~coterie.privacy.accounting`.
"""

from coterie.privacy.accounting import ASSUMPTIONS, PrivacySpending, Release, sampled_gaussian_epsilon
from coterie.privacy.distributions import DISTRIBUTIONS, Concentrated, Distribution
from coterie.privacy.encoding import NoisyQuantizer, clip_norm
from coterie.privacy.noise import Noise, least_aggregated
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
    "sampled_gaussian_epsilon",
]
