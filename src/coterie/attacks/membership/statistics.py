"""Statistics of passive membership inference over trials, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from coterie.attacks.membership.measure import LOW_RATES, PassiveTrial, Success
from coterie.reports.intervals import mean_interval, share_interval

ATTACKS = {"loss": "loss threshold", "shadow": "shadow models", "lira": "LiRA", "rmia": "RMIA"}
"""The names of the attacks in texts."""
GUESSING = 0.5
"""The AUC and the balanced accuracy of guessing."""


@dataclass(frozen=True)
class MembersFound:
    """The number of members found at a low false-positive rate."""

    rate: float
    """The largest false-positive rate, in every trial."""
    share: float
    interval: tuple[float, float]
    """The interval of Clopper and Pearson, as if all candidates were independent."""
    false_alarms: int
    """The number of false positives that this allows, over all trials."""
    others: int


@dataclass(frozen=True)
class InferenceSummary:
    """One attack on one view over all trials; intervals of means are over trials, None with a single one."""

    auc: float
    auc_interval: tuple[float, float] | None
    balanced_accuracy: float
    balanced_accuracy_interval: tuple[float, float] | None
    precision: float | None
    recall: float
    found: tuple[MembersFound, ...]

    @classmethod
    def of(cls, measured: Sequence[Success]) -> "InferenceSummary":
        """Combine the trials."""
        decisions = [one.decisions for one in measured]
        areas, accuracies = [one.auc for one in measured], [one.balanced_accuracy for one in decisions]
        precisions = [one.precision for one in decisions if one.precision is not None]
        members = sum(one.hits + one.misses for one in decisions)
        others = sum(one.false_alarms + one.correct_rejections for one in decisions)
        found = []
        for place, rate in enumerate(LOW_RATES):
            hits, allowed = sum(one.hits[place] for one in measured), sum(one.allowed[place] for one in measured)
            found.append(MembersFound(rate, hits / members, share_interval(hits, members), allowed, others))
        return cls(
            float(np.mean(areas)),
            _interval(areas),
            float(np.mean(accuracies)),
            _interval(accuracies),
            float(np.mean(precisions)) if precisions else None,
            float(np.mean([one.recall for one in decisions])),
            tuple(found),
        )

    @property
    def beats_guessing(self) -> bool:
        """Whether trials show, with 95% confidence, that members score above others."""
        return self.auc_interval is not None and self.auc_interval[0] > GUESSING

    @property
    def auc_reach(self) -> float:
        """Half of the interval of the AUC; 0 if it has none."""
        return 0.0 if self.auc_interval is None else self.auc_interval[1] - self.auc

    def record(self) -> dict[str, Any]:
        """All numbers for JSON."""
        return asdict(self)


def summarise(trials: Sequence[PassiveTrial]) -> dict[str, dict[str, InferenceSummary]]:
    """Return a summary for each view and attack."""
    return {
        view: {attack: InferenceSummary.of([trial.views[view][attack] for trial in trials]) for attack in attacks}
        for view, attacks in trials[0].views.items()
    }


def summarise_budget(trials: Sequence[PassiveTrial]) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return the mean AUC by the number of reference models, for the views and attacks that it was tried on."""
    return {
        view: {
            attack: [
                (size, float(np.mean([trial.budget[view][attack][place][1] for trial in trials])))
                for place, (size, _) in enumerate(curve)
            ]
            for attack, curve in attacks.items()
        }
        for view, attacks in trials[0].budget.items()
    }


def mean_accuracy(trials: Sequence[PassiveTrial]) -> dict[str, float]:
    """Return the mean accuracy of the models in each view."""
    return {view: float(np.mean([trial.accuracy[view] for trial in trials])) for view in trials[0].accuracy}


def strongest(summaries: Mapping[str, InferenceSummary]) -> str:
    """Return the attack with the largest AUC; apply it to the baseline only, not to protected views."""
    return max(summaries, key=lambda attack: summaries[attack].auc)


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval for the mean over trials; None for a single trial, because JSON has no infinity."""
    return mean_interval(values) if len(values) > 1 else None
