"""Active membership inference: tune the strength on FedAvg, then attack every method in the same way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from coterie.attacks import threats
from coterie.attacks.active_membership.methods import COMMON, METHODS, NAMES, AttackedDescent, MethodName
from coterie.attacks.active_membership.records import DealtRecords
from coterie.attacks.active_membership.settings import ActiveMembershipSettings
from coterie.attacks.active_membership.tasks import InferenceTask, Inferred
from coterie.attacks.active_membership.trial import MethodTrial, infer_without_targets, play
from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.federation import flat
from coterie.attacks.session import session_error
from coterie.training.streams import sequence

TUNING = -1
"""The number of the trial in which the strength is tuned."""
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
"""The strengths that are tried on FedAvg if none is given."""


@dataclass(frozen=True)
class AttackResults:
    """The results of all trials."""

    task: InferenceTask
    strength: float
    tuning: Mapping[float, float]
    """The success of each strength that was tried; empty if the strength was given."""
    nothing: Sequence[Inferred]
    """The baseline of each trial: inference from a model that saw no target."""
    trials: Mapping[MethodName, Sequence[MethodTrial]]
    secure_error: float
    """The relative error of a sum that additive sharing computed."""


@dataclass(frozen=True)
class ActiveMembership(ActiveMembershipSettings):
    """Active membership inference by malicious participants (CGD, Tables 3, 4 and 7)."""

    title: ClassVar[str] = "Active membership inference"

    @property
    def threat(self) -> Adversary:
        """Who attacks, and with what."""
        return threats.active_membership(self.malicious, self.participants, self.examples)

    def measure(self, watch: OnProgress) -> AttackResults:
        """Tune the strength on FedAvg, then attack every method."""
        watch("tuning the strength on FedAvg", 0.0)
        tuning = self.tune() if self.strength is None else {}
        strength = max(tuning, key=lambda tried: tuning[tried]) if self.strength is None else self.strength
        played: dict[MethodName, list[MethodTrial]] = {method: [] for method in METHODS}
        nothing = []
        for trial in range(self.trials):
            dealt = self.deal(trial)
            nothing.append(infer_without_targets(dealt, self))
            for position, method in enumerate(METHODS):
                done = (1 + trial * len(METHODS) + position) / (1 + self.trials * len(METHODS))
                watch(f"trial {trial + 1} of {self.trials}: {NAMES[method]}", done)
                played[method].append(play(method, dealt, self, (0.0, strength)))
        return AttackResults(dealt.task, strength, tuning, nothing, played, self.secure_error(strength))

    def tune(self) -> dict[float, float]:
        """Return the accuracy of each strength against FedAvg, in a trial that is used for nothing else."""
        found = play("fedavg", self.deal(TUNING), self, STRENGTHS)
        return {course.strength: course.last.inferred[COMMON].accuracy for course in found.courses}

    def deal(self, trial: int) -> DealtRecords:
        """Deal the examples of a trial."""
        seed = int(sequence(self.seed, "trial", trial).generate_state(1)[0])
        return DealtRecords.deal(
            self.data,
            self.participants,
            self.malicious,
            self.examples,
            seed,
            cover=self.cover,
            data_dir=self.data_dir,
            options=self.options,
        )

    def secure_error(self, strength: float) -> float:
        """Play the first round of an attack as a real session, and return the error of the mean that it reveals."""
        descent = AttackedDescent("confined", self.deal(0), self)
        descent.prepare_attack(descent.trained_state())
        return session_error([flat(arrays) for arrays in descent.contributions(strength)], self.seed)
