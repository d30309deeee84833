"""Gradient inversion of a client's update, and of the mean update of its circle, into the pictures behind them.

Differencing over rounds isolates a client's own update if cohorts are random, and only the mean over its circle if
circles are kept (So et al. 2023, Figure 11). The mean is attacked in two ways: *alone*, as if it were the client's own
update, as in that figure; and *together*, by searching for the pictures of the whole circle at once. The second way
needs nothing that the attacker does not have, and is stronger where pictures are few.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress, OnShare, ignore_progress, within
from coterie.attacks.federation import Federation
from coterie.attacks.inversion.descent import Budget
from coterie.attacks.inversion.settings import InversionSettings
from coterie.attacks.inversion.target import ALONE, TOGETHER, InversionTarget, Origin
from coterie.attacks.reconstructions import Trial
from coterie.attacks.similarity import Pictures
from coterie.training.streams import stream


@dataclass(frozen=True)
class Inversion(InversionSettings):
    """Gradient inversion of a client's update, and of the mean update of its circle."""

    title: ClassVar[str] = "Gradient inversion: pictures reconstructed from an update"
    threat: ClassVar[Adversary] = threats.INVERSION

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.budget

    @property
    def budget(self) -> Budget:
        """The effort of the attacker for every inversion."""
        return Budget(self.steps, self.step_size, self.variation)

    @property
    def rows(self) -> list[Origin]:
        """The ways to reconstruct pictures that are compared."""
        return [Origin(1, ALONE), *(Origin(privacy, way) for privacy in self.privacy for way in (ALONE, TOGETHER))]

    def federation(self, seed: int) -> Federation:
        """Return the clients of a trial."""
        return Federation.deal(
            self.data, self.model, self.clients, seed, examples=self.examples, data_dir=self.data_dir
        )

    def measure(self, watch: OnProgress) -> list[Trial]:
        """Invert the update of another client in every trial: its own, and those of its circles."""
        trials = []
        for number in range(self.trials):
            told = partial(watch, f"inverting the updates of client {number + 1} of {self.trials}")
            trials.append(self.trial(number, within(told, number / self.trials, 1 / self.trials)))
        return trials

    @property
    def numbers(self) -> int:
        """The number of entries of an update."""
        return sum(array.size for array in self.federation(self.seed).start)

    def trial(self, number: int, watch: OnShare = ignore_progress) -> Trial:
        """Attack one client; each trial has its own clients, circles and model."""
        seed = int(stream(self.seed, "inversion", number).integers(2**62))
        target = InversionTarget.prepare(self.federation(seed), self.trained)
        updates = {privacy: target.update(target.circle(privacy)) for privacy in (1, *self.privacy)}
        drawn: dict[Origin, Pictures] = {}
        for done, row in enumerate(self.rows):
            told = within(watch, done / len(self.rows), 1 / len(self.rows))
            drawn[row] = target.recover(row, updates[row.privacy], self.budget, told)
        return target.trial(drawn)
