"""A client under attack: its circle of any size, the update that can be isolated, and the pictures behind it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeAlias

import numpy as np

from coterie.attacks.federation import Federation, Vector, public_model, shaped
from coterie.attacks.inversion.descent import Budget, invert
from coterie.attacks.reconstructions import Trial
from coterie.attacks.session import play_session
from coterie.attacks.similarity import Pictures, PixelScale, matched
from coterie.cohorts.circles import Indices, random_circles
from coterie.training.data.datasets import Inputs
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD
from coterie.training.streams import stream, torch_seed

Telling: TypeAlias = Callable[[float], None]

ALONE, TOGETHER = "alone", "together"
"""As if the update were the client's own; as what it is, that of a whole circle."""
MEAN, PICTURE = "guess: mean picture of the label", "guess: another picture of the label"
"""What somebody may draw who saw no update."""

TARGET = 0
"""The client under attack; who that is, and what it holds, differs from seed to seed."""
_RATE = 0.01  # of the one step that clients take; an update's length does not enter
_CROWD = 2000


class Origin(NamedTuple):
    """A way in which pictures are drawn: from the update of a circle of T = ``privacy``."""

    privacy: int
    way: str

    @property
    def label(self) -> str:
        """As it is shown."""
        return f"T = {self.privacy}" + (f", {self.way}" if self.privacy > 1 else "")


@dataclass(frozen=True, eq=False)
class Scene:
    """Clients and the model they are about to train."""

    federation: Federation
    state: ModelArrays
    scale: PixelScale

    @classmethod
    def set(cls, federation: Federation, trained: int) -> Self:
        """Set the scene, after so many rounds of ordinary training with everybody."""
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
        """Return the mean update of some clients, the one that secure aggregation opens where they are several."""
        work = LocalSGD(_RATE, batch_size=max(self.federation.parts[member].size for member in members))
        updates = self.federation.updates(self.state, 1, work, members)
        return play_session(list(updates), self.federation.seed).mean if len(members) > 1 else updates[0]

    def recover(self, row: Origin, update: Vector, budget: Budget, watch: Telling = lambda _: None) -> Pictures:
        """Return the pictures that an attacker draws for the target out of an update, in the order of the originals.

        Where the pictures of a whole circle are recovered, they are held against those of the whole circle.
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
        """Return what was drawn for the target beside its originals, guesses, and a crowd to recognise them in."""
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
        """Return all that some clients hold."""
        return self.scale.pictures(self.federation.dataset.train_x[self._examples(members)])

    def guesses(self) -> dict[str, Pictures]:
        """Return what somebody may guess who saw no update, and knows the labels: public pictures of the same kind."""
        dataset, rng = self.federation.dataset, stream(self.federation.seed, "guessing")
        means, drawn = [], []
        for label in dataset.train_y[self._examples([TARGET])]:
            public: Inputs = dataset.test_x[dataset.test_y == label]
            means.append(np.mean(public, axis=0))
            drawn.append(public[rng.integers(len(public))])
        return {MEAN: self.scale.pictures(np.stack(means)), PICTURE: self.scale.pictures(np.stack(drawn))}

    def _examples(self, members: Sequence[int]) -> Indices:
        return np.concatenate([self.federation.parts[member] for member in members])
