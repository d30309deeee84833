"""Settings of active membership inference, and the values that fit each data set."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from coterie.errors import ConfigError
from coterie.settings import DataDir, DataName, Option, Seed, Settings, Trials

_BY_DATA = "depends on the data set"


@dataclass(frozen=True)
class Preset:
    """The values that fit a data set: examples of each participant, and when and how long attackers attack."""

    examples: int
    threshold: float
    rounds: int
    step: float = 0.5
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the data set's reader."""


PRESETS = {
    "digits": Preset(examples=40, threshold=0.9, rounds=400),
    "location30": Preset(examples=200, threshold=0.5, rounds=150),
    "mnist": Preset(examples=200, threshold=0.85, rounds=150, options={"unit": True}),
    "cifar10-features": Preset(examples=200, threshold=0.35, rounds=150, options={"train_rows": 5000}),
    "energy": Preset(examples=40, threshold=0.9, rounds=1500, step=0.02, options={"window": 72}),
    "pjm": Preset(examples=50, threshold=0.9, rounds=4000, step=0.01, options={"regions": "DAYTON", "window": 100}),
}
_DIGITS = PRESETS["digits"]


@dataclass(frozen=True)
class ActiveMembershipSettings(Settings):
    """Active membership inference: malicious participants raise the loss of records to learn who trains on them.

    If honest participants bring the loss of a record down again, one of them trains on it. FedAvg, Ditto and confined
    descent, without its loss check and with it, are attacked in the same way: the same strength (tuned on FedAvg),
    records, rounds and steps. The result shows how often the attackers are right about membership, by the rule of the
    paper and at every threshold, how much the attack damages the models of honest participants, and how much of the
    poison the loss check refuses.
    """

    data: DataName = "digits"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the data set's reader."""
    data_dir: DataDir = None
    participants: Annotated[int, Option("Honest participants.", least=2, most=10_000)] = 8
    malicious: Annotated[int, Option("Malicious participants, who collude.", least=1, most=10_000)] = 2
    examples: Annotated[
        int, Option("Examples of each participant, and targets of each attacker.", least=2, default=_BY_DATA)
    ] = _DIGITS.examples
    cover: int = 0
    """Examples that each attacker trains on before the attack; 0: as many as each participant."""
    threshold: Annotated[
        float,
        Option(
            "Start the attack when the attackers' models classify this share of the targets correctly, or explain this "
            "share of their variance.",
            default=_BY_DATA,
        ),
    ] = _DIGITS.threshold
    patience: int = 300
    """Rounds after which the attack starts at the latest."""
    rounds: Annotated[int, Option("Rounds of the attack.", least=1, default=_BY_DATA)] = _DIGITS.rounds
    strength: Annotated[
        float | None,
        Option("Factor of the attackers' gradient; 0 only observes.", default="the one that works best on FedAvg"),
    ] = None
    step: Annotated[float, Option("Step size along the mean gradient, for all methods.", default=_BY_DATA)] = (
        _DIGITS.step
    )
    spread: Annotated[
        float, Option("Standard deviation of the offset at which each model starts.", name="--lambda")
    ] = 0.1
    penalty: float = 0.1
    """Ditto's weight of the distance to the common model."""
    check: Annotated[str, Option("Loss check: increase, or history as in the paper's code.", metavar="RULE")] = (
        "increase"
    )
    train_on_targets: Annotated[
        bool,
        Option(
            "Train on the targets before the attack, as the paper does; this distorts the measurement.",
            name="--train-on-targets",
        ),
    ] = False
    trials: Trials = 5
    seed: Seed = 0

    def __post_init__(self) -> None:
        from coterie.confined import LOSS_CHECKS

        super().__post_init__()
        if self.check not in LOSS_CHECKS:
            raise ConfigError(f"unknown loss check {self.check!r}; known are {', '.join(LOSS_CHECKS)}")
        if self.strength is not None and not 0 <= self.strength < math.inf:
            raise ConfigError(f"strength must be a number of at least 0, not {self.strength}")
        if self.patience < 1 or self.cover < 0 or not 0 <= self.threshold <= 1:
            raise ConfigError("patience must be at least 1, cover 0 or more, and threshold from 0 to 1")

    @classmethod
    def of(cls, data: str = "digits", **given: Any) -> Self:  # noqa: ANN401 - the other fields
        """Return settings for a data set. Values that are None or not given are chosen for that data set."""
        preset = vars(PRESETS.get(data, _DIGITS))
        return cls(data=data, **{**preset, **{name: value for name, value in given.items() if value is not None}})
