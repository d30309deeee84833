"""Rankings: how well scores separate members, or another class of examples, from the others.

An example is called a member if its score is at least a threshold. Equal scores stay together on the ROC curve, so that
ties give an attack no advantage.
"""

from dataclasses import dataclass
from math import floor

import numpy as np

from coterie.cohorts.circles import Mask, Reals
from coterie.errors import InputError


@dataclass(frozen=True, eq=False)
class Roc:
    """The ROC curve: for each threshold, in descending order, how many others and members score at least as high."""

    thresholds: Reals
    false_alarms: Reals
    hits: Reals
    others: int
    members: int

    @classmethod
    def of(cls, scores: Reals, members: Mask) -> "Roc":
        """Return the curve; it begins with a threshold that no score reaches."""
        if scores.shape != members.shape or members.all() or not members.any() or np.isnan(scores).any():
            raise InputError("a ROC curve needs a score for each example, positives and others")
        order = np.argsort(-scores, axis=None, kind="stable")
        sorted_scores, sorted_members = scores.ravel()[order], members.ravel()[order]
        changes = np.flatnonzero(sorted_scores[1:] != sorted_scores[:-1])
        last = np.append(changes, sorted_scores.size - 1)  # the last of those with equal scores
        hits = np.concatenate([[0.0], np.cumsum(sorted_members)[last]])
        alarms = np.concatenate([[0.0], np.cumsum(~sorted_members)[last]])
        thresholds = np.concatenate([[np.inf], sorted_scores[last]])
        return cls(thresholds, alarms, hits, int(alarms[-1]), int(hits[-1]))

    @property
    def area(self) -> float:
        """The AUC: the probability that a member scores above another example; ties count one half."""
        return float(np.trapezoid(self.hits, self.false_alarms)) / (self.others * self.members)

    @property
    def best_threshold(self) -> float:
        """The threshold with the largest balanced accuracy."""
        return float(self.thresholds[np.argmax(self.hits / self.members - self.false_alarms / self.others)])

    def hits_at(self, rate: float) -> int:
        """Return the number of members found if at most this share of the others is falsely called a member."""
        allowed = floor(rate * self.others + 1e-9)
        return int(self.hits[np.flatnonzero(self.false_alarms <= allowed)[-1]])


@dataclass(frozen=True)
class Decisions:
    """Counts of right and wrong decisions."""

    hits: int
    misses: int
    false_alarms: int
    correct_rejections: int

    @classmethod
    def of(cls, called: Mask, members: Mask) -> "Decisions":
        """Count them."""
        return cls(
            int((called & members).sum()),
            int((~called & members).sum()),
            int((called & ~members).sum()),
            int((~called & ~members).sum()),
        )

    @property
    def recall(self) -> float:
        """The share of members that are called members."""
        return self.hits / (self.hits + self.misses)

    @property
    def balanced_accuracy(self) -> float:
        """The share of right decisions, with equal weight of members and others."""
        return (self.recall + self.correct_rejections / (self.correct_rejections + self.false_alarms)) / 2

    @property
    def precision(self) -> float | None:
        """The share of members among those called members; None if there are none."""
        called = self.hits + self.false_alarms
        return self.hits / called if called else None


def area_under_curve(scores: Reals, positives: Mask) -> float:
    """Return the AUC of scores; one that is not a number, as of a model that diverged, is below all others."""
    return Roc.of(np.nan_to_num(scores, nan=-np.inf), positives).area
