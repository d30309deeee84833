"""Gradient inversion of a client's update, and of the mean update of its circle, into the pictures behind them.

Differencing over rounds isolates a client's own update if cohorts are random, and only the mean over its circle if
circles are kept (So et al. 2023, Figure 11). The mean is attacked in two ways: *alone*, as if it were the client's own
update, as in that figure; and *together*, by searching for the pictures of the whole circle at once. The second way
needs no further knowledge, and is stronger if there are few pictures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, Self

import numpy as np

from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress, OnShare, ignore_progress, within
from coterie.attacks.federation import Federation, Vector, public_model, shaped
from coterie.attacks.inversion.descent import Budget, invert
from coterie.attacks.inversion.settings import InversionSettings
from coterie.attacks.reconstructions import Trial
from coterie.attacks.session import play_session
from coterie.attacks.similarity import Pictures, PixelScale, matched
from coterie.cohorts.circles import Indices, random_circles
from coterie.training.data.datasets import Inputs
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD
from coterie.training.streams import stream, torch_seed

ALONE, TOGETHER = "alone", "together"
"""The ways to attack an update: as if it were the client's own, or as the mean of a whole circle."""
MEAN, PICTURE = "guess: mean picture of the label", "guess: another picture of the label"
"""The baselines: guesses of an attacker who saw no update."""

TARGET = 0
"""The number of the client under attack; its data differ from seed to seed."""
_RATE = 0.01  # learning rate of the one step that clients take; the attack does not depend on it
_CROWD = 2000


class Origin(NamedTuple):
    """A way to reconstruct pictures: from the update of a circle of T = ``privacy``."""

    privacy: int
    way: str

    @property
    def label(self) -> str:
        """The way in words."""
        return f"T = {self.privacy}" + (f", {self.way}" if self.privacy > 1 else "")


@dataclass(frozen=True, eq=False)
class InversionTarget:
    """The client under attack, among other clients, and the model they are about to train."""

    federation: Federation
    state: ModelArrays
    scale: PixelScale

    @classmethod
    def prepare(cls, federation: Federation, trained: int) -> Self:
        """Return the target after this many rounds of ordinary training by all clients."""
        strategy = federation.fedavg(LocalSGD(10 * _RATE))
        for _ in federation.play(strategy, range(1, trained + 1), together=False):
            pass
        return cls(federation, public_model(strategy), PixelScale.of(federation.dataset.train_x))

    def circle(self, privacy: int) -> list[int]:
        """Return the target's circle, the target first."""
        circles = random_circles(len(self.federation), privacy, stream(self.federation.seed, "circles", privacy))
        mates = next(circle for circle in circles if TARGET in circle)
        return [TARGET, *(mate for mate in mates if mate != TARGET)]

    def update(self, members: Sequence[int]) -> Vector:
        """Return the mean update of some clients; if there are several, the mean that secure aggregation reveals."""
        work = LocalSGD(_RATE, batch_size=max(self.federation.parts[member].size for member in members))
        updates = self.federation.updates(self.state, 1, work, members)
        return play_session(list(updates), self.federation.seed).mean if len(members) > 1 else updates[0]

    def recover(self, row: Origin, update: Vector, budget: Budget, watch: OnShare = ignore_progress) -> Pictures:
        """Return the pictures that an attacker reconstructs from an update, in the order of the target's originals.

        The pictures of a whole circle are first matched with the originals of the whole circle.
        """
        circle = self.circle(row.privacy) if row.way == TOGETHER else [TARGET]
        owned = self._examples(circle)
        found = invert(
            self.federation.problem.instance(self.state),
            shaped(-update, self.state),
            np.asarray(self.federation.dataset.train_y, np.int64)[owned],
            self.federation.dataset.input_shape,
            self.scale,
            budget,
            torch_seed(self.federation.seed, "inversion", row.privacy, row.way),
            watch,
        )
        guesses = self.scale.pictures(found)
        order = matched(self.pictures(circle), guesses)
        return guesses[order[: self._examples([TARGET]).size]]

    def trial(self, drawn: dict[Origin, Pictures]) -> Trial:
        """Return the reconstructions beside the originals, the guesses, and the pictures to recognise them among."""
        dataset, own = self.federation.dataset, self._examples([TARGET])
        others = np.setdiff1d(np.arange(len(dataset.train_x)), own)
        drawn_from = stream(self.federation.seed, "crowd").permutation(others)[: _CROWD - own.size]
        crowd = np.concatenate([own, drawn_from])
        rows = {row.label: pictures for row, pictures in drawn.items()}
        return Trial(
            self.pictures([TARGET]),
            own,
            {**rows, **self.guesses()},
            self.scale.pictures(dataset.train_x[crowd]),
            crowd,
        )

    def pictures(self, members: Sequence[int]) -> Pictures:
        """Return all pictures of some clients."""
        return self.scale.pictures(self.federation.dataset.train_x[self._examples(members)])

    def guesses(self) -> dict[str, Pictures]:
        """Return the guesses of an attacker who knows only the labels: public pictures of the same kind."""
        dataset, rng = self.federation.dataset, stream(self.federation.seed, "guessing")
        means, drawn = [], []
        for label in dataset.train_y[self._examples([TARGET])]:
            public: Inputs = dataset.test_x[dataset.test_y == label]
            means.append(np.mean(public, axis=0))
            drawn.append(public[rng.integers(len(public))])
        return {MEAN: self.scale.pictures(np.stack(means)), PICTURE: self.scale.pictures(np.stack(drawn))}

    def _examples(self, members: Sequence[int]) -> Indices:
        return np.concatenate([self.federation.parts[member] for member in members])


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
            progress = partial(watch, f"inverting the updates of client {number + 1} of {self.trials}")
            trials.append(self.trial(number, within(progress, number / self.trials, 1 / self.trials)))
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
            progress = within(watch, done / len(self.rows), 1 / len(self.rows))
            drawn[row] = target.recover(row, updates[row.privacy], self.budget, progress)
        return target.trial(drawn)
