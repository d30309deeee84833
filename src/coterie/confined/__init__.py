"""Confined gradient descent (CGD), sans-IO: every participant keeps its own model.

A model is a private random start plus public steps. In each iteration the participants contribute clipped gradients,
and only their sum is revealed. The sum becomes a step. A participant takes it, or refuses it if its own loss would
increase. Anyone who sees the sums can compute the public displacement, which is itself a usable model.

* :mod:`~coterie.confined.descent`: the algorithm, :class:`ConfinedDescent`. Start here.
* :mod:`~coterie.confined.offsets`, :mod:`~coterie.confined.check`, :mod:`~coterie.confined.steps` and
  :mod:`~coterie.confined.staleness`: starts, loss checks, step sizes, and bounds on old models and gradients.
* :mod:`~coterie.confined.sharing`: sums by additive sharing between peers; :mod:`coterie.rounds` is the other way to
  compute them. :mod:`~coterie.confined.subset` refuses sums with too few honest members.
* :mod:`~coterie.confined.grid` and :mod:`~coterie.confined.vertical`: groups whose members have different columns.
  :mod:`~coterie.confined.cached_groups` and :mod:`~coterie.confined.network` compute many groups fast, with numpy.
* :mod:`~coterie.confined.claims`: the epsilon that the paper claims, and the epsilon of explicit noise.
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
