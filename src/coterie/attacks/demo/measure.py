"""The demonstration for a talk: subtract the sums of secure rounds until a client's pictures appear.

Three populations train the same model on the same digits, and every round is securely aggregated. They differ in the
selection of clients: at random, circles of 2, circles of 4. The server solves for each client's update by least squares
(:mod:`coterie.attacks.differencing`) and inverts the result into pictures (:mod:`coterie.attacks.inversion`), by the
method that gives the best pictures.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.demo.settings import DemoSettings
from coterie.attacks.differencing.algebra import reconstruct, relative_errors
from coterie.attacks.federation import Federation, Observations, Selection, make_selections
from coterie.attacks.inversion.descent import Budget
from coterie.attacks.inversion.measure import ALONE, TARGET, TOGETHER, InversionTarget, Origin
from coterie.attacks.reconstructions import Reading, Trial
from coterie.attacks.session import session_error
from coterie.cohorts.circles import Reals
from coterie.errors import ConfigError
from coterie.training.local import LocalSGD
from coterie.training.streams import stream

SIZES = (2, 4)
CLIENTS, COHORT = 16, 8
_WRITTEN = range(1, 10)  # every client writes each of these digits once
_RATE = 0.001  # small steps: the attack needs updates that hardly change


@dataclass(frozen=True, eq=False)
class SelectionOutcome:
    """What the server reconstructed under one way to choose cohorts."""

    privacy: int
    errors: Reals
    """The error of the client's update after each round."""
    reading: Reading
    drawn: Trial
    row: str
    """The better of the two ways to invert."""

    @property
    def who(self) -> str:
        """The selection in words."""
        return "random cohorts" if self.privacy == 1 else f"circles of {self.privacy}"


@dataclass(frozen=True)
class AttackDemo(DemoSettings):
    """The same attack on random selection, circles of 2 and circles of 4."""

    title: ClassVar[str] = "What the sums of many secure rounds reveal"
    threat: ClassVar[Adversary] = threats.DEMO

    def measure(self, watch: OnProgress) -> list[list[SelectionOutcome]]:
        """Attack several clients, each under every way to choose cohorts."""
        found: list[list[SelectionOutcome]] = []
        for number in range(self.trials):
            seed = int(stream(self.seed, "demo", number).integers(2**62))
            target = InversionTarget.prepare(writers(seed), 0)
            selections = [
                *make_selections(("random",), (2,), CLIENTS, COHORT, seed, naive=False),
                *make_selections(("multi-round",), SIZES, CLIENTS, COHORT, seed, naive=False),
            ]
            outcomes = []
            for done, (privacy, selection) in enumerate(zip((1, *SIZES), selections, strict=True)):
                share = (number + done / len(selections)) / self.trials
                watch(f"client {number + 1} of {self.trials}: {self.rounds} secure rounds, then subtraction", share)
                outcomes.append(self.attack_client(target, privacy, selection))
            found.append(outcomes)
        return found

    def attack_client(self, target: InversionTarget, privacy: int, selection: Selection) -> SelectionOutcome:
        """Observe rounds, solve for the client's update, and invert it."""
        work = LocalSGD(_RATE, batch_size=len(_WRITTEN))
        federation = target.federation
        played = list(federation.play(federation.fedavg(work, target.state), range(1, self.rounds + 1), selection))
        session_error(list(played[0].updates), played[0].number)  # raises an error if the session reveals another sum
        seen = Observations.of(played, CLIENTS)
        if not seen.seen[TARGET]:
            raise ConfigError(f"the attacked client took part in none of {self.rounds} rounds: use more rounds")
        truth = seen.truth[[TARGET]]
        solved = [
            reconstruct(seen.participation[:count], seen.means[:count])[TARGET] for count in range(1, len(played) + 1)
        ]
        rows = [Origin(privacy, way) for way in ((ALONE,) if privacy == 1 else (ALONE, TOGETHER))]
        drawn = target.trial({row: target.recover(row, solved[-1], Budget(self.steps)) for row in rows})
        best = max(rows, key=lambda row: drawn.reading(row.label).psnr)
        errors = np.array([relative_errors(truth, one[None])[0] for one in solved])
        return SelectionOutcome(privacy, errors, drawn.reading(best.label), drawn, best.label)


def writers(seed: int) -> Federation:
    """Return clients who have each written the digits from 1 to 9 once."""
    federation = Federation.deal("digits", "softmax-regression", CLIENTS, seed)
    labels, rng = np.asarray(federation.dataset.train_y), stream(seed, "writing")
    dealt = [rng.permutation(np.flatnonzero(labels == digit))[:CLIENTS] for digit in _WRITTEN]
    return replace(federation, parts=list(np.stack(dealt, axis=1)))
