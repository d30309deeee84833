"""The story for a talk: secure rounds whose sums are subtracted from each other until a client's pictures appear.

Three populations train the same model on the same digits, and every single round is securely aggregated. They differ in
who takes part: clients at random, circles of 2, circles of 4. The server solves for each client's update by least
squares (:mod:`coterie.attacks.differencing`) and inverts what it finds into pictures, in the way that gives it most
(:mod:`coterie.attacks.inversion`).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.demo.settings import DemoSettings
from coterie.attacks.differencing.algebra import reconstruct, relative_errors
from coterie.attacks.federation import Federation, Observations, Side, make_sides
from coterie.attacks.inversion.descent import Budget
from coterie.attacks.inversion.target import ALONE, TARGET, TOGETHER, Origin, Scene
from coterie.attacks.reconstructions import Reading, Trial
from coterie.attacks.session import session_error
from coterie.cohorts.circles import Reals
from coterie.training.local import LocalSGD
from coterie.training.streams import stream

SIZES = (2, 4)
CLIENTS, COHORT = 16, 8
_WRITTEN = range(1, 10)  # the digits that every client writes, each once
_RATE = 0.001  # small steps: the attack needs updates that hardly change


@dataclass(frozen=True, eq=False)
class Act:
    """What the server drew under one way to choose cohorts."""

    privacy: int
    errors: Reals
    """Of the client's update, as solved for after each round."""
    reading: Reading
    drawn: Trial
    row: str
    """Of the two ways to invert, the better one."""

    @property
    def who(self) -> str:
        """Who takes part."""
        return "random cohorts" if self.privacy == 1 else f"circles of {self.privacy}"


@dataclass(frozen=True)
class Story(DemoSettings):
    """Random selection, circles of 2 and circles of 4, attacked alike."""

    name: ClassVar[str] = "demo"
    title: ClassVar[str] = "Secure rounds, and what many of them give away"

    @property
    def threat(self) -> Adversary:
        """A curious server with a memory."""
        return Adversary(
            who="the server: honest, curious, and with a memory",
            sees="one sum in every round, securely aggregated; never the update of a client",
            knows="who took part in which round, the model, and the labels of the digits",
            may="compute; it changes nothing and breaks no rule",
        )

    def measure(self, watch: OnProgress) -> list[list[Act]]:
        """Attack several clients, each under every way to choose cohorts."""
        found: list[list[Act]] = []
        for number in range(self.trials):
            seed = int(stream(self.seed, "demo", number).integers(2**62))
            scene = Scene.set(writers(seed), 0)
            sides = [
                *make_sides(("random",), (2,), CLIENTS, COHORT, seed, naive=False),
                *make_sides(("multi-round",), SIZES, CLIENTS, COHORT, seed, naive=False),
            ]
            acts = []
            for done, (privacy, side) in enumerate(zip((1, *SIZES), sides, strict=True)):
                share = (number + done / len(sides)) / self.trials
                watch(f"client {number + 1} of {self.trials}: {self.rounds} secure rounds, then subtraction", share)
                acts.append(self.act(scene, privacy, side))
            found.append(acts)
        return found

    def act(self, scene: Scene, privacy: int, side: Side) -> Act:
        """Watch rounds, solve for the client's update, and invert it."""
        work = LocalSGD(_RATE, batch_size=len(_WRITTEN))
        federation = scene.federation
        played = list(federation.play(federation.fedavg(work, scene.state), range(1, self.rounds + 1), side))
        session_error(list(played[0].updates), played[0].number)  # raises if the session opens anything else
        seen = Observations.of(played, CLIENTS)
        truth = seen.truth[[TARGET]]
        solved = [
            reconstruct(seen.participation[:count], seen.means[:count])[TARGET] for count in range(1, len(played) + 1)
        ]
        rows = [Origin(privacy, way) for way in ((ALONE,) if privacy == 1 else (ALONE, TOGETHER))]
        drawn = scene.trial({row: scene.recover(row, solved[-1], Budget(self.steps)) for row in rows})
        best = max(rows, key=lambda row: drawn.reading(row.label).psnr)
        errors = np.array([relative_errors(truth, one[None])[0] for one in solved])
        return Act(privacy, errors, drawn.reading(best.label), drawn, best.label)


def writers(seed: int) -> Federation:
    """Return clients who have written the digits from 1 to 9 once each, in their own hand."""
    federation = Federation.deal("digits", "softmax-regression", CLIENTS, seed)
    labels, rng = np.asarray(federation.dataset.train_y), stream(seed, "writing")
    dealt = [rng.permutation(np.flatnonzero(labels == digit))[:CLIENTS] for digit in _WRITTEN]
    return replace(federation, parts=list(np.stack(dealt, axis=1)))
