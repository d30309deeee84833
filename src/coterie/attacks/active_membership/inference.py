"""Inference from models to membership, in plain arrays, and what its success is worth.

A rule calls records members (:mod:`coterie.attacks.active_membership.tasks`): in the paper, those that the model
classifies correctly. An attack that pushes all targets up their loss makes it work, because honest participants push
members down again, and nobody pushes the others.
Beside it stands the area under the ROC curve of the loss (Yeom et al. 2018): the chance that a member's loss is below
that of a non-member, whatever threshold is taken, so that a rule at one threshold hides nothing.
"""

from dataclasses import dataclass

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.attacks.active_membership.tasks import InferenceTask
from coterie.cohorts.circles import Mask, Reals
from coterie.confined.network import TrueAnswers
from coterie.errors import InputError


@dataclass(frozen=True)
class Inferred:
    """What inference came to on targets whose membership is known."""

    right: int
    """Members called members and non-members called non-members."""
    targets: int
    members_found: float
    """The share of members that are called so."""
    false_alarms: float
    """The share of non-members that are called members."""
    auc: float

    @property
    def accuracy(self) -> float:
        """The share of right answers: one half for who knows nothing."""
        return self.right / self.targets


def infer(task: InferenceTask, answers: FloatArray, targets: TrueAnswers, members: Mask) -> Inferred:
    """Call records members by the rule of the task, and compare with the truth."""
    if answers.ndim != 2 or len(answers) != len(targets) or members.shape != targets.shape[:1]:
        raise InputError("inference needs a row of outputs, a target and the truth for every record")
    called = task.called(answers, targets)
    return Inferred(
        right=int((called == members).sum()),
        targets=members.size,
        members_found=float(called[members].mean()),
        false_alarms=float(called[~members].mean()),
        auc=area_under_curve(-task.losses(answers, targets), members),
    )


def area_under_curve(scores: Reals, members: Mask) -> float:
    """Return the chance that a member scores higher than a non-member, ties counting half (Mann and Whitney)."""
    from scipy.stats import rankdata

    inside, outside = int(members.sum()), int((~members).sum())
    if not inside or not outside:
        raise InputError("there must be members and non-members")
    ranks = rankdata(np.nan_to_num(scores, nan=-np.inf))
    return float((ranks[members].sum() - inside * (inside + 1) / 2) / (inside * outside))


def area_by_chance(members: int, others: int, trials: int) -> float:
    """Return the standard deviation of the mean area over trials, if the scores say nothing (Mann and Whitney)."""
    return float(np.sqrt((members + others + 1) / (12 * members * others * trials)))
