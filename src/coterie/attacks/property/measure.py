"""Property inference tried on real training: some clients' pictures are upside down, and the server looks for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.federation import (
    Federation,
    ObservedRound,
    Side,
    make_problem,
    make_sides,
)
from coterie.attacks.property.detector import (
    Auxiliary,
    attribute,
    best_by_circles,
    ranking_among_mates,
)
from coterie.attacks.property.settings import PropertySettings
from coterie.attacks.ranking import area_under_curve
from coterie.cohorts.circles import Mask, Reals
from coterie.errors import ConfigError
from coterie.training.data.datasets import load
from coterie.training.local import ArrayData, LocalSGD
from coterie.training.streams import stream


@dataclass(frozen=True, eq=False)
class PropertyTrial:
    """What came of one window of rounds."""

    scores: Reals = field(repr=False)
    """Of each client: about 1 for who has the property."""
    having: Mask = field(repr=False)
    """Who has it."""
    auc: float
    among_mates: float | None
    """The same among circle mates alone; None where no circle has both kinds of clients."""
    accuracy: float
    """Of calling those with a score above a half."""
    best_by_circles: float
    """The AUC of knowing how many of each circle have the property."""
    equal_scores: bool
    """Whether circle mates have equal scores throughout."""


@dataclass(frozen=True)
class PropertyInference(PropertySettings):
    """The attack on training from its first round on, with steps as usual."""

    name: ClassVar[str] = "property"
    title: ClassVar[str] = "Property inference over rounds"

    @property
    def threat(self) -> Adversary:
        """An honest-but-curious server with data of its own."""
        return Adversary(
            who="the server, honest but curious: it follows the protocol and keeps what it sees",
            sees="the sum of each round's updates, as secure aggregation reveals it, and the model it sent out",
            knows="who was aggregated in which round; data of the same kind as the clients', with the property and "
            "without; how clients train",
            may="compute, and train clients of its own",
        )

    def measure(self, watch: OnProgress) -> Mapping[str, Sequence[PropertyTrial]]:
        """Train under every way to choose cohorts, and attribute the property; return the trials of each side."""
        found: dict[str, list[PropertyTrial]] = {}
        steps = self.trials * len(self.sides(0))
        for trial in range(self.trials):
            federation, auxiliary, having = self.prepare(trial)
            for side in self.sides(trial):
                watch(side.name, sum(map(len, found.values())) / steps)
                found.setdefault(side.name, []).append(self.attack(federation, auxiliary, having, side))
        return found

    def sides(self, trial: int) -> list[Side]:
        """Return what is compared."""
        policies, seed = ("random", "multi-round"), self.seed + trial
        return make_sides(policies, self.privacy, self.clients, self.cohort, seed, naive=self.dropouts > 0)

    def prepare(self, trial: int) -> tuple[Federation, Auxiliary, Mask]:
        """Deal examples to the clients and the attacker, and say which clients have the property."""
        seed = self.seed + trial
        dataset = load(self.data, self.data_dir)
        if dataset.classes is None or len(dataset.input_shape) != 3:
            raise ConfigError(f"{self.data!r} has no labelled pictures to turn upside down")
        size = len(dataset.train_x)
        if 2 * self.clients * self.examples > size:
            raise ConfigError(
                f"{self.data!r} has {size} examples: too few for these clients, and as many to attack with"
            )
        rng = stream(seed, "property")
        order = rng.permutation(size)
        having = np.isin(np.arange(self.clients), rng.choice(self.clients, self.holders, replace=False))
        # The same pictures upside down come after the others: example i + size is example i, turned.
        turned = np.ascontiguousarray(dataset.train_x[..., ::-1, ::-1])
        data = ArrayData(np.concatenate([dataset.train_x, turned]), np.concatenate([dataset.train_y] * 2))
        problem = make_problem(dataset, self.model, seed, data)
        parts = np.split(order[: self.clients * self.examples], self.clients)
        special = round(self.share * self.examples)
        for part, one in zip(parts, having, strict=True):
            part[:special] += size * int(one)
        rest = order[self.clients * self.examples :]
        auxiliary = Auxiliary(problem, rest, rest + size, self.examples, self.share)
        return Federation(dataset, problem, parts, seed), auxiliary, having

    def attack(self, federation: Federation, auxiliary: Auxiliary, having: Mask, side: Side) -> PropertyTrial:
        """Observe training from its beginning, score each round, and attribute the scores."""
        work = LocalSGD(self.learning_rate, batch_size=self.batch_size)
        rows, means = [], []
        for played in federation.play(federation.fedavg(work), range(1, self.rounds + 1), side, self.dropouts):
            rows.append(np.isin(np.arange(self.clients), played.members))
            means.append(self._score(auxiliary, played, work, federation.seed))
        if not rows:
            raise ConfigError("no round revealed anything: use fewer dropouts or more rounds")
        scores = attribute(np.array(rows), np.array(means), self.ridge)
        return PropertyTrial(
            scores,
            having,
            auc=area_under_curve(scores, having),
            among_mates=ranking_among_mates(scores, having, side.mates),
            accuracy=float(np.mean((scores > 0.5) == having)),
            best_by_circles=best_by_circles(having, side.mates),
            equal_scores=all(np.ptp(scores[list(circle)]) == 0 for circle in side.mates),
        )

    def _score(self, auxiliary: Auxiliary, played: ObservedRound, work: LocalSGD, seed: int) -> float:
        rng = stream(seed, "own clients", played.number)
        return auxiliary.detector(played, self.own_clients, work, rng, seed)(played.mean)
