"""The audit of one sum: the server knows two updates of a client, and finds out which of them is in the sum."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress, OnShare, ignore_progress, within
from coterie.attacks.federation import Vector
from coterie.attacks.one_sum.bounds import Bound, audit
from coterie.attacks.one_sum.population import Population, Uncertainty, draw_sums
from coterie.attacks.one_sum.settings import OneSumSettings
from coterie.attacks.session import play_session
from coterie.privacy import Concentrated
from coterie.privacy.accounting import composed_epsilon
from coterie.training.local import LocalSGD
from coterie.training.streams import stream, torch_seed

_PRECISION = 16  # bits of an entry in the session that is played for comparison
EXAMPLE, CLIENT, CRAFTED = "example", "client", "crafted"
PAIRS = {
    EXAMPLE: "one example replaced",
    CLIENT: "another client's update",
    CRAFTED: "the worst direction",
}
"""The two updates: those of one client before and after one example is replaced; those of two clients; or two opposite
updates of the largest norm, in the direction in which the updates of other clients vary least."""


@dataclass(frozen=True)
class EpsilonAudit:
    """One audit: the number of clients, the pair of updates, the noise, and the bound on epsilon."""

    clients: int
    pair: str
    multiplier: float
    distance: float
    """The distance of the two hypotheses in standard deviations, by the normal approximation."""
    bound: Bound


@dataclass(frozen=True)
class Audits:
    """The audits of all trials."""

    trials: Sequence[Sequence[EpsilonAudit]]
    session_gap: float
    """The error of the sum that a real session revealed."""


@dataclass(frozen=True)
class OneSum(OneSumSettings):
    """What a single secure sum reveals about one of its clients."""

    title: ClassVar[str] = "What one secure sum reveals"
    threat: ClassVar[Adversary] = threats.ONE_SUM

    def measure(self, watch: OnProgress) -> Audits:
        """Audit sums without noise and with it."""
        audits, gap = [], 0.0
        for trial in range(self.trials):
            progress = within(partial(watch, f"trial {trial + 1}"), trial / self.trials, 1 / self.trials)
            seed = torch_seed(self.seed, "one sum", trial)
            people = Population.gather(
                self.data,
                self.model,
                self.population,
                self.examples,
                LocalSGD(self.learning_rate, self.epochs, self.batch_size),
                seed,
                self.data_dir,
                watch=within(progress, 0.0, 0.5),
            )
            if not trial:
                gap = max(self._session_gap(people, clients, seed) for clients in self.cohorts)
            audits.append(self.audit(people, seed, within(progress, 0.5, 0.5)))
        return Audits(audits, gap)

    def limit(self, multiplier: float) -> float:
        """Return the epsilon that noise guarantees: one update of the norm replaced by any other, twice the norm."""
        return composed_epsilon(Concentrated(0.5 * (2 / multiplier) ** 2, 0.0), 1, self.delta)

    def audit(self, people: Population, seed: int, watch: OnShare = ignore_progress) -> list[EpsilonAudit]:
        """Audit all pairs without noise, and the worst pair with each noise."""
        scatter = Uncertainty.of(people.known)
        cases = [(clients, pair, 0.0) for clients in self.cohorts for pair in PAIRS]
        cases += [(clients, CRAFTED, multiplier) for clients in self.cohorts for multiplier in self.noise]
        found = []
        for number, (clients, pair, multiplier) in enumerate(cases):
            deviation = multiplier * people.norm
            first, second = choose_pair(people, scatter, pair)
            test, distance = scatter.test(first - second, clients - 1, deviation)
            rng = stream(seed, "sums", number)
            # The attacker uses one number of a sum, so it is enough to add up this number of the other clients.
            under_first, under_second = (
                draw_sums(people.others @ test, clients - 1, self.tries, rng)
                + update @ test
                + rng.normal(0, deviation * float(np.linalg.norm(test)), self.tries)
                for update in (first, second)
            )
            bound = audit(under_first, under_second, self.delta)
            found.append(EpsilonAudit(clients, pair, multiplier, distance, bound))
            watch((number + 1) / len(cases))
        return found

    def _session_gap(self, people: Population, clients: int, seed: int) -> float:
        """Play a real session of this size; return the error of the sum that it reveals, relative to the norm."""
        updates = [people.targets[0], *people.others[: clients - 1]]
        played = play_session(updates, stream(seed, "one sum", clients), precision=_PRECISION)
        return played.error * clients / people.norm


def choose_pair(people: Population, scatter: Uncertainty, pair: str) -> tuple[Vector, Vector]:
    """Return two updates; the attacker chooses them by its simulated clients only, never by those in the sums."""
    target = people.targets[0]
    if pair == CRAFTED:
        return people.norm * scatter.directions[:, 0], -people.norm * scatter.directions[:, 0]
    if pair == CLIENT:
        return target, people.known[0]
    distances = [scatter.test(target - other, 1, 0.0)[1] for other in people.targets[1:]]
    return target, people.targets[1 + int(np.argmax(distances))]
