"""Outcomes of an attack in a table: all trials of one method, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coterie.attacks.active_membership.inference import Inferred
from coterie.attacks.active_membership.summary import AttackPhase, InferenceSuccess, MethodSummary
from coterie.attacks.active_membership.trial import MethodTrial
from coterie.cohorts.circles import Reals

if TYPE_CHECKING:
    from coterie.reproduce.active_membership.experiment import AttackClaim


class Attacked(msgspec.Struct, frozen=True, kw_only=True):
    """All trials of a method in a table."""

    table: str
    method: str
    numbers: tuple[int, ...]
    """Of the trials."""
    trials: tuple[MethodTrial, ...]
    nothing: tuple[Inferred, ...]
    """What a model that saw no target comes to, in the same trials."""

    @property
    def summary(self) -> MethodSummary:
        """The trials put together."""
        return MethodSummary(self.trials[0].method, self.trials)

    @property
    def guess(self) -> InferenceSuccess:
        """What is inferred without information."""
        return InferenceSuccess(self.nothing)

    def values(self, claim: AttackClaim, phase: AttackPhase) -> Reals:
        """Return what a claim is about, for each trial: in points, but areas from 0 to 1."""
        if claim.measure == "lost":
            return _points(self.summary.passive, "mean") - _points(phase, "mean")
        if claim.measure in ("utility", "spread"):
            return _points(phase, "mean" if claim.measure == "utility" else "spread")
        success = self.inferred(claim, phase)
        return np.array(success.aucs) if claim.measure == "auc" else 100 * np.array(success.accuracies)

    def inferred(self, claim: AttackClaim, phase: AttackPhase) -> InferenceSuccess:
        """Return what is inferred from the model that a claim names; from the attackers' own, if it names none."""
        views = phase.views
        return views[claim.view or next(iter(views))]


def _points(phase: AttackPhase, name: str) -> Reals:
    """Return a number of honest participants' models at the end, for each trial, in points."""
    return 100 * np.array([getattr(course.last.utility, name) for course in phase.courses])


def paired(ours: Attacked, our_values: Reals, theirs: Attacked, their_values: Reals) -> Reals:
    """Return the differences in the trials that both have."""
    others = dict(zip(theirs.numbers, their_values, strict=True))
    pairs: Sequence[tuple[int, float]] = list(zip(ours.numbers, our_values, strict=True))
    return np.array([value - others[number] for number, value in pairs if number in others])
