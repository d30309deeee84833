"""Membership inferred from a model's answers, and how often that is right.

A rule decides which records are members (:mod:`coterie.attacks.active_membership.tasks`): in the paper, those that the
model classifies correctly. The attack increases the loss of all targets, and the rule works because honest participants
decrease the loss of members again, and nobody does that for the others.

The area under the ROC curve of the loss (Yeom et al. 2018) is computed too: the probability that a member's loss is
below that of a non-member. It does not depend on a threshold, so that no choice of one hides a leak.
"""

from dataclasses import dataclass

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.attacks.active_membership.tasks import InferenceTask
from coterie.attacks.ranking import area_under_curve
from coterie.cohorts.circles import Mask
from coterie.confined.network import TrueAnswers
from coterie.errors import InputError


@dataclass(frozen=True)
class Inferred:
    """The result of inference on targets whose membership is known."""

    right: int
    """Members called members and non-members called non-members."""
    targets: int
    members_found: float
    """The share of members that the rule calls members."""
    false_alarms: float
    """The share of non-members that the rule calls members."""
    auc: float

    @property
    def accuracy(self) -> float:
        """The share of right answers: one half without any information."""
        return self.right / self.targets


def infer(task: InferenceTask, answers: FloatArray, targets: TrueAnswers, members: Mask) -> Inferred:
    """Apply the rule of the task, and compare with the truth."""
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


def area_by_chance(members: int, others: int, trials: int) -> float:
    """Return the standard deviation of the mean area over trials if scores are random (Mann and Whitney)."""
    return float(np.sqrt((members + others + 1) / (12 * members * others * trials)))
