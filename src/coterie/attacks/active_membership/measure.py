"""Active membership inference: the strength is tuned on FedAvg, then every method meets the same attack."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from coterie.attacks.active_membership.inference import Inferred
from coterie.attacks.active_membership.methods import COMMON, METHODS, NAMES, AttackedDescent, MethodName, Recipe
from coterie.attacks.active_membership.records import MembershipScene
from coterie.attacks.active_membership.tasks import InferenceTask
from coterie.attacks.active_membership.trial import AttackSchedule, MethodTrial, know_nothing, play
from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.federation import flat
from coterie.attacks.session import session_error
from coterie.confined import LOSS_CHECKS
from coterie.errors import ConfigError
from coterie.training.streams import sequence

TUNING = -1
"""The trial that the strength is tuned in."""
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
"""What is tried on FedAvg, where no strength is given."""


@dataclass(frozen=True)
class Preset:
    """What fits a data set: how much everybody has of it, and when attackers attack, and for how long."""

    examples: int
    threshold: float
    rounds: int
    step: float = 0.5
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the data set's reader."""


PRESETS = {
    "digits": Preset(examples=40, threshold=0.9, rounds=400),
    "location30": Preset(examples=200, threshold=0.5, rounds=150),
    "mnist": Preset(examples=200, threshold=0.85, rounds=150, options={"unit": True}),
    "cifar10-features": Preset(examples=200, threshold=0.35, rounds=150, options={"train_rows": 5000}),
    "energy": Preset(examples=40, threshold=0.9, rounds=1500, step=0.02, options={"window": 72}),
    "pjm": Preset(examples=50, threshold=0.9, rounds=4000, step=0.01, options={"regions": "DAYTON", "window": 100}),
}


@dataclass(frozen=True, eq=False)
class AttackResults:
    """The results of all trials."""

    task: InferenceTask
    strength: float
    tuning: Mapping[float, float]
    """What each strength that was tried came to; empty where the strength was given."""
    nothing: Sequence[Inferred]
    """Inferred from a model that saw no target, in each trial."""
    trials: Mapping[MethodName, Sequence[MethodTrial]]
    secure_error: float
    """By how much a sum made by additive sharing differs."""


@dataclass(frozen=True)
class ActiveMembership:
    """Active membership inference by malicious participants (CGD, Tables 3, 4 and 7)."""

    name: ClassVar[str] = "active-membership"
    title: ClassVar[str] = "Active membership inference"

    data: str = "digits"
    options: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | None = None
    participants: int = 8
    """Honest ones."""
    malicious: int = 2
    examples: int = 40
    threshold: float = 0.9
    patience: int = 300
    rounds: int = 400
    strength: float | None = None
    """If not given, the one that does best on FedAvg, in a trial of its own."""
    step: float = 0.5
    spread: float = 0.1
    penalty: float = 0.1
    check: str = "increase"
    train_on_targets: bool = False
    trials: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.check not in LOSS_CHECKS:
            raise ConfigError(f"unknown loss check {self.check!r}; known are {', '.join(LOSS_CHECKS)}")
        if self.strength is not None and not 0 <= self.strength < math.inf:
            raise ConfigError(f"the strength of the attack is a number of at least 0, not {self.strength}")
        if self.trials < 1 or self.rounds < 1 or self.patience < 1 or not 0 <= self.threshold <= 1:
            raise ConfigError("trials and rounds are 1 at least, and the threshold is a share")

    @classmethod
    def on(cls, data: str, **settings: Any) -> Self:  # noqa: ANN401  (those of this class)
        """Return the attack on a data set, with what fits that one wherever a setting is not given, or None."""
        preset = vars(PRESETS.get(data, PRESETS["digits"]))
        return cls(data=data, **{**preset, **{name: value for name, value in settings.items() if value is not None}})

    @property
    def threat(self) -> Adversary:
        """Participants that collude."""
        return Adversary(
            who=f"{self.malicious} of {self.participants + self.malicious} participants, who collude; the others and "
            "the server, if there is one, are honest",
            sees="what every participant sees: in FedAvg and Ditto the common model after each round; in confined "
            "descent the sum of each round, as an eavesdropper does, and their own confined models, nobody else's",
            knows=f"{self.examples} records each and their right answers, half of which some honest participant trains "
            "on; the network, the step size; nothing of who trains on what",
            may="send anything in place of their gradients, in every round; they cannot see or change what others send",
        )

    @property
    def recipe(self) -> Recipe:
        """How everybody learns."""
        return Recipe(self.step, self.spread, self.penalty, self.check, self.train_on_targets)

    @property
    def schedule(self) -> AttackSchedule:
        """When attackers attack."""
        return AttackSchedule(self.threshold, self.patience, self.rounds)

    def measure(self, watch: OnProgress) -> AttackResults:
        """Tune the strength on FedAvg, then attack every method."""
        watch("tuning the strength on FedAvg", 0.0)
        tuning = self.tune() if self.strength is None else {}
        strength = max(tuning, key=lambda tried: tuning[tried]) if self.strength is None else self.strength
        played: dict[MethodName, list[MethodTrial]] = {method: [] for method in METHODS}
        nothing = []
        for trial in range(self.trials):
            scene = self.scene(trial)
            nothing.append(know_nothing(scene, self.recipe, self.rounds))
            for position, method in enumerate(METHODS):
                done = (1 + trial * len(METHODS) + position) / (1 + self.trials * len(METHODS))
                watch(f"trial {trial + 1} of {self.trials}: {NAMES[method]}", done)
                played[method].append(play(method, scene, self.recipe, self.schedule, (0.0, strength)))
        return AttackResults(scene.task, strength, tuning, nothing, played, self.secure_error(strength))

    def tune(self) -> dict[float, float]:
        """Return the accuracy of each strength against FedAvg, in a trial that is used for nothing else."""
        found = play("fedavg", self.scene(TUNING), self.recipe, self.schedule, STRENGTHS)
        return {course.strength: course.last.inferred[COMMON].accuracy for course in found.courses}

    def scene(self, trial: int) -> MembershipScene:
        """Deal the examples of a trial."""
        seed = int(sequence(self.seed, "trial", trial).generate_state(1)[0])
        return MembershipScene.deal(
            self.data,
            self.participants,
            self.malicious,
            self.examples,
            seed,
            data_dir=self.data_dir,
            options=self.options,
        )

    def secure_error(self, strength: float) -> float:
        """Play the first round of an attack as a real session, and return the error of the mean that it opens."""
        descent = AttackedDescent("confined", self.scene(0), self.recipe)
        descent.prepare_attack(descent.standing())
        return session_error([flat(arrays) for arrays in descent.contributions(strength)], self.seed)
