"""Inversion of the update of a client, and of the mean update of its circle, into the pictures they were trained on.

What differencing over rounds can obtain is a client's own update where cohorts are drawn at random, and the mean over
its circle where circles are kept together (So et al. 2023, Figure 11). The mean is attacked in two ways: *alone*, as if
it were the client's own update, which is what the figure shows; and *together*, by looking for the pictures of the
whole circle at once, which asks for nothing that the attacker does not have, and is the stronger where they are few.
"""

from dataclasses import dataclass
from typing import ClassVar

from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.federation import Federation
from coterie.attacks.inversion.descent import Budget
from coterie.attacks.inversion.settings import InversionSettings
from coterie.attacks.inversion.target import ALONE, TOGETHER, Origin, Scene, Telling
from coterie.attacks.reconstructions import Trial
from coterie.attacks.similarity import Pictures
from coterie.training.streams import stream


@dataclass(frozen=True)
class Inversion(InversionSettings):
    """Gradient inversion: the pictures behind a client's update, and behind its circle's."""

    name: ClassVar[str] = "inversion"
    title: ClassVar[str] = "Gradient inversion: pictures out of an update"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.budget

    @property
    def threat(self) -> Adversary:
        """A server that only looks, with everything that helps it."""
        return Adversary(
            who="the server, honest but curious",
            sees="the mean update of a circle of T clients, exactly as differencing over rounds would isolate it; with "
            "T = 1, as under random selection, the client's own update",
            knows="the model that the update was made from, that clients take one step over all of their pictures, how "
            "many pictures each has, and every label",
            may="compute; it changes neither the model nor who takes part",
        )

    @property
    def budget(self) -> Budget:
        """What the attacker spends on every inversion."""
        return Budget(self.steps, self.step_size, self.variation)

    @property
    def rows(self) -> list[Origin]:
        """What is drawn from updates."""
        return [Origin(1, ALONE), *(Origin(privacy, way) for privacy in self.privacy for way in (ALONE, TOGETHER))]

    def federation(self, seed: int) -> Federation:
        """Return the clients of a trial."""
        return Federation.deal(
            self.data, self.model, self.clients, seed, examples=self.examples, data_dir=self.data_dir
        )

    def measure(self, watch: OnProgress) -> list[Trial]:
        """Invert the update of another client in every trial, its own and that of its circles."""
        trials = []
        for number in range(self.trials):

            def progress(share: float, number: int = number) -> None:
                watch(f"inverting the updates of client {number + 1} of {self.trials}", (number + share) / self.trials)

            trials.append(self.trial(number, progress))
        return trials

    @property
    def numbers(self) -> int:
        """How many numbers an update has."""
        return sum(array.size for array in self.federation(self.seed).start)

    def trial(self, number: int, watch: Telling = lambda _: None) -> Trial:
        """Attack one client, among clients, circles and a model of this trial's own."""
        seed = int(stream(self.seed, "inversion", number).integers(2**62))
        scene = Scene.set(self.federation(seed), self.trained)
        updates = {privacy: scene.update(scene.circle(privacy)) for privacy in (1, *self.privacy)}
        drawn: dict[Origin, Pictures] = {}
        for done, row in enumerate(self.rows):

            def progress(share: float, done: int = done) -> None:
                watch((done + share) / len(self.rows))

            drawn[row] = scene.recover(row, updates[row.privacy], self.budget, progress)
        return scene.trial(drawn)
