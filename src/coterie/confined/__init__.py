"""Confined gradient descent (CGD), sans-IO: every participant keeps a model of its own, and sums of gradients travel.

:class:`ConfinedDescent` is the algorithm; its sums are made by :mod:`coterie.rounds` or by additive sharing. What is
sent are sums of gradients, and what follows from them is a public displacement that is itself a usable model.
"""

from coterie.confined.check import LOSS_CHECKS, HistoryCheck, IncreaseCheck, LossCheck, NoCheck
from coterie.confined.descent import ConfinedDescent, Contribution, DescentState, iterate
from coterie.confined.offsets import Offsets, Parameters, Spread, balanced_start
from coterie.confined.sharing import SharingTerms, add_in_process
from coterie.confined.staleness import Freshness, exceeds_bound_probability
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
