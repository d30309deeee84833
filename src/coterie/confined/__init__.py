"""Confined gradient descent (CGD), sans-IO: every participant keeps its own model.

:class:`ConfinedDescent` is the algorithm. :mod:`coterie.rounds` or additive sharing computes its sums of gradients.
Anyone who sees these sums can compute the public displacement, which is itself a usable model.
"""

from coterie.confined.check import LOSS_CHECKS, HistoryCheck, IncreaseCheck, LossCheck, NoCheck
from coterie.confined.descent import ConfinedDescent, Contribution, DescentState, iterate
from coterie.confined.offsets import Offsets, Parameters, Spread, balanced_start
from coterie.confined.sharing import SharingTerms, add_in_process
from coterie.confined.staleness import Freshness, LateGradients, exceeds_bound_probability
from coterie.confined.steps import STEP_SIZES, ConstantStep, InverseRootStep, PaperStep, StepSize
from coterie.confined.subset import check_honest

__all__ = [
    "LOSS_CHECKS",
    "STEP_SIZES",
    "ConfinedDescent",
    "ConstantStep",
    "Contribution",
    "DescentState",
    "Freshness",
    "HistoryCheck",
    "IncreaseCheck",
    "InverseRootStep",
    "LateGradients",
    "LossCheck",
    "NoCheck",
    "Offsets",
    "PaperStep",
    "Parameters",
    "SharingTerms",
    "Spread",
    "StepSize",
    "add_in_process",
    "balanced_start",
    "check_honest",
    "exceeds_bound_probability",
    "iterate",
]
