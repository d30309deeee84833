"""Statistics of active membership inference over trials: inference, utility, and refused steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.attacks.active_membership.methods import MethodName
from coterie.attacks.active_membership.tasks import Inferred, area_by_chance
from coterie.attacks.active_membership.trial import AttackHistory, HonestUtility, MethodTrial
from coterie.reports.intervals import mean_interval, share_interval, spread

GUESS = 0.5
_LEVEL = 0.05 / 8  # corrected for 2 rules x 2 models x (watching, attacking): one false alarm in twenty overall


@dataclass(frozen=True)
class InferenceSuccess:
    """Inference from one kind of model over all trials."""

    found: Sequence[Inferred]

    @property
    def accuracies(self) -> list[float]:
        """The share of right answers in each trial."""
        return [one.accuracy for one in self.found]

    @property
    def aucs(self) -> list[float]:
        """The area under the ROC curve in each trial."""
        return [one.auc for one in self.found]

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return float(np.mean(self.accuracies))

    @property
    def auc(self) -> float:
        """The mean area under the ROC curve."""
        return float(np.mean(self.aucs))

    @property
    def interval(self) -> tuple[float, float]:
        """The exact interval over the targets of all trials."""
        return share_interval(sum(one.right for one in self.found), sum(one.targets for one in self.found))

    @property
    def auc_interval(self) -> tuple[float, float]:
        """Student's interval over trials."""
        low, high = mean_interval(self.aucs)
        return max(0.0, low), min(1.0, high)

    @property
    def beats_guess(self) -> bool:
        """Whether the answers are significantly better than guessing, at the rule's threshold or at another.

        Members and non-members are exchangeable without information, so both tests are exact or nearly so.
        """
        from scipy.stats import binomtest, norm

        right, targets = (sum(getattr(one, name) for one in self.found) for name in ("right", "targets"))
        each = self.found[0].targets // 2
        chance = area_by_chance(each, each, len(self.found))
        by_rule = binomtest(right, targets, GUESS, alternative="greater").pvalue
        by_area = norm.sf((self.auc - GUESS) / chance)
        return bool(min(by_rule, by_area) < _LEVEL)

    def measures(self) -> dict[str, Any]:
        """All numbers for JSON."""
        return {
            "accuracy": self.accuracy,
            "accuracy_deviation": spread(self.accuracies),
            "accuracy_interval": list(self.interval),
            "auc": self.auc,
            "auc_interval": list(self.auc_interval),
            "members_found": float(np.mean([one.members_found for one in self.found])),
            "false_alarms": float(np.mean([one.false_alarms for one in self.found])),
            "accuracies": self.accuracies,
            "aucs": self.aucs,
            "targets": sum(one.targets for one in self.found),
        }


@dataclass(frozen=True)
class AttackPhase:
    """One strength over all trials."""

    courses: Sequence[AttackHistory]

    @property
    def views(self) -> Mapping[str, InferenceSuccess]:
        """The success by the model that attackers infer from, after the last round."""
        lasts = [course.last.inferred for course in self.courses]
        return {view: InferenceSuccess([last[view] for last in lasts]) for view in lasts[0]}

    @property
    def best(self) -> tuple[str, InferenceSuccess]:
        """The model from which inference works best, by the AUC, which does not depend on a threshold."""
        return max(self.views.items(), key=lambda item: item[1].auc)

    @property
    def utility(self) -> HonestUtility:
        """The utility of honest participants' models after the last round, averaged over trials."""
        return mean_utility([course.last.utility for course in self.courses])

    @property
    def refused(self) -> float:
        """The share of steps that honest participants refused."""
        return float(np.mean([course.refused for course in self.courses]))

    def curve(self, view: str) -> list[float]:
        """Return the mean AUC at every measurement."""
        looks = zip(*(course.looks for course in self.courses), strict=True)
        return [float(np.mean([look.inferred[view].auc for look in at])) for at in looks]

    def utilities(self) -> list[float]:
        """Return the mean utility at every measurement."""
        looks = zip(*(course.looks for course in self.courses), strict=True)
        return [float(np.mean([look.utility.mean for look in at])) for at in looks]

    @property
    def rounds(self) -> list[int]:
        """The rounds of the measurements."""
        return [look.round for look in self.courses[0].looks]

    def measures(self) -> dict[str, Any]:
        """All numbers for JSON."""
        return {
            "inferred_from": {view: success.measures() for view, success in self.views.items()},
            "utility": vars(self.utility),
            "refused": self.refused,
        }


@dataclass(frozen=True)
class BestInference:
    """The attackers' best result: whether they attack or observe, from which model they infer, and their success."""

    doing: str
    view: str
    success: InferenceSuccess


@dataclass(frozen=True)
class MethodSummary:
    """All trials of one method, observed and attacked from the same states."""

    method: MethodName
    trials: Sequence[MethodTrial]

    @property
    def passive(self) -> AttackPhase:
        """The phase in which attackers only observe."""
        return AttackPhase([trial.courses[0] for trial in self.trials])

    @property
    def active(self) -> AttackPhase:
        """The phase in which attackers attack."""
        return AttackPhase([trial.courses[1] for trial in self.trials])

    @property
    def best(self) -> BestInference:
        """The best that attackers can do, by the AUC, which does not depend on a threshold."""
        found = [BestInference("watching", *item) for item in self.passive.views.items()]
        found += [BestInference("attacking", *item) for item in self.active.views.items()]
        return max(found, key=lambda one: one.success.auc)

    @property
    def before(self) -> HonestUtility:
        """The utility of honest participants' models when the attack begins."""
        return mean_utility([trial.before for trial in self.trials])

    @property
    def refused_before(self) -> float:
        """The share of steps that were refused while all participants were honest."""
        return float(np.mean([trial.refused_before for trial in self.trials]))

    @property
    def began(self) -> float:
        """The rounds before the attack."""
        return float(np.mean([trial.began for trial in self.trials]))

    def measures(self) -> dict[str, Any]:
        """All numbers for JSON."""
        return {
            "rounds_before": [trial.began for trial in self.trials],
            "reached_threshold": [trial.ready for trial in self.trials],
            "utility_before": vars(self.before),
            "refused_before": self.refused_before,
            "passive": self.passive.measures(),
            "active": self.active.measures(),
        }


def mean_utility(found: Sequence[HonestUtility]) -> HonestUtility:
    """Return the means over trials of all three numbers."""
    mean, spread, worst = np.mean([(one.mean, one.spread, one.worst) for one in found], axis=0).tolist()
    return HonestUtility(mean, spread, worst)
