"""One trial of an attack: honest training up to a threshold, then rounds of the attack, or of observation only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.attacks.active_membership.methods import AttackedDescent, MethodName, outputs
from coterie.attacks.active_membership.records import DealtRecords
from coterie.attacks.active_membership.settings import ActiveMembershipSettings
from coterie.attacks.active_membership.tasks import Inferred, infer
from coterie.confined import Spread, balanced_start
from coterie.confined.network import loss_and_gradient, zero_anchor
from coterie.training.streams import stream

_EVERY = 10  # rounds between two checks of the threshold
_MODELS = 20  # honest participants whose models are tested
LOOKS = 5
"""The number of measurements of an attack, evenly spread over its rounds."""


@dataclass(frozen=True)
class HonestUtility:
    """The score of honest participants' models on the test examples: accuracy, or explained variance."""

    mean: float
    spread: float
    """Standard deviation over participants, which CGD calls gamma-fairness."""
    worst: float

    @classmethod
    def of(cls, descent: AttackedDescent) -> "HonestUtility":
        """Test the models of the first honest participants."""
        test = descent.dealt.test
        task, models = descent.dealt.task, descent.honest_models(_MODELS)
        scores = np.array([task.score(outputs(test.x, model), test.y) for model in models])
        return cls(float(scores.mean()), float(scores.std()), float(scores.min()))


@dataclass(frozen=True)
class AttackMeasurement:
    """Measurements after some rounds of an attack."""

    round: int
    inferred: Mapping[str, Inferred]
    """By the model that attackers infer from."""
    utility: HonestUtility


@dataclass(frozen=True)
class AttackHistory:
    """One attack on one method; strength 0 only observes."""

    strength: float
    looks: Sequence[AttackMeasurement]
    refused: float
    """The share of steps that honest participants refused during the attack."""

    @property
    def last(self) -> AttackMeasurement:
        """The measurements after the last round."""
        return self.looks[-1]


@dataclass(frozen=True)
class MethodTrial:
    """One method, and all attacks on it from the same state."""

    method: MethodName
    began: int
    """Rounds of honest training before the attack."""
    ready: bool
    """Whether the threshold was reached before patience was exhausted."""
    before: HonestUtility
    refused_before: float
    courses: Sequence[AttackHistory]


@np.errstate(over="ignore", invalid="ignore")  # a descent that diverges is detected when its step is not finite
def play(
    method: MethodName,
    dealt: DealtRecords,
    settings: ActiveMembershipSettings,
    strengths: Sequence[float],
    looks: int = LOOKS,
) -> MethodTrial:
    """Train with a method, then attack it from that state with each of the strengths; measure ``looks`` times.

    The attack begins once the attackers' own models, the only ones that they see, reach the threshold on the targets,
    or when patience ends. If attackers train on their targets before, they do so with the largest strength.
    """
    descent = AttackedDescent(method, dealt, settings)
    refused, ready = 0, False
    while not ready and descent.rounds < settings.patience:
        refused += descent.train(max(strengths))
        ready = descent.rounds % _EVERY == 0 and _own_score(descent) >= settings.threshold
    began, trained, before = descent.rounds, descent.trained_state(), HonestUtility.of(descent)
    courses = []
    for strength in strengths:
        descent.prepare_attack(trained)
        courses.append(_attack(descent, strength, looks))
    return MethodTrial(method, began, ready, before, refused / (began * dealt.participants), courses)


def _attack(descent: AttackedDescent, strength: float, looks: int) -> AttackHistory:
    dealt, rounds, seen, refused = descent.dealt, descent.settings.rounds, [], 0
    due = {round(number) for number in np.linspace(0, rounds, looks + 1)[1:]}
    for number in range(1, rounds + 1):
        refused += descent.attack(strength)
        if number in due:
            inferred = {
                view: infer(dealt.task, answers, dealt.targets.y, dealt.members)
                for view, answers in descent.answers().items()
            }
            seen.append(AttackMeasurement(number, inferred, HonestUtility.of(descent)))
    return AttackHistory(strength, seen, refused / (rounds * dealt.participants))


def _own_score(descent: AttackedDescent) -> float:
    """Return the score of the attackers' own models on the targets."""
    own, *_ = descent.answers().values()
    return descent.dealt.task.score(own, descent.dealt.targets.y)


def infer_without_targets(dealt: DealtRecords, settings: ActiveMembershipSettings) -> Inferred:
    """Infer membership from a model that attackers train alone on their own examples, without any target.

    This is the baseline: the rule without any information.
    """
    anchor = zero_anchor(dealt.cover.x.shape[1], classes=dealt.task.outputs)
    model = balanced_start(anchor, Spread(settings.spread), stream(dealt.seed, "offset", "alone"))
    for _ in range(settings.rounds):
        _, gradient = loss_and_gradient(dealt.cover.x, dealt.cover.y, model)
        model = [np.asarray(w - settings.step * g, w.dtype) for w, g in zip(model, gradient, strict=True)]
    return infer(dealt.task, outputs(dealt.targets.x, model), dealt.targets.y, dealt.members)
