"""Property inference on real training: the pictures of some clients are upside down, and the server looks for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.federation import (
    Federation,
    ObservedRound,
    Selection,
    make_problem,
    make_selections,
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
    """The results of one window of rounds."""

    scores: Reals = field(repr=False)
    """The score of each client: about 1 if it has the property."""
    having: Mask = field(repr=False)
    """The clients that have the property."""
    auc: float
    among_mates: float | None
    """The AUC within circles only; None if no circle has both kinds of clients."""
    accuracy: float
    """The accuracy of the rule that clients with a score above 0.5 have the property."""
    best_by_circles: float
    """The AUC of an attacker who knows only how many members of each circle have the property."""
    equal_scores: bool
    """Whether all members of a circle have equal scores, in every circle."""


@dataclass(frozen=True)
class PropertyInference(PropertySettings):
    """The attack on training from its first round, with ordinary steps."""

    title: ClassVar[str] = "Property inference over rounds"
    threat: ClassVar[Adversary] = threats.PROPERTY

    def measure(self, watch: OnProgress) -> Mapping[str, Sequence[PropertyTrial]]:
        """Train under every selection, and attribute the property to clients; return the trials of each selection."""
        found: dict[str, list[PropertyTrial]] = {}
        steps = self.trials * len(self.selections(0))
        for trial in range(self.trials):
            federation, auxiliary, having = self.prepare(trial)
            for selection in self.selections(trial):
                watch(selection.name, sum(map(len, found.values())) / steps)
                found.setdefault(selection.name, []).append(self.attack(federation, auxiliary, having, selection))
        return found

    def selections(self, trial: int) -> list[Selection]:
        """Return the ways to choose cohorts that are compared."""
        policies, seed = ("random", "multi-round"), self.seed + trial
        return make_selections(policies, self.privacy, self.clients, self.cohort, seed, naive=self.dropouts > 0)

    def prepare(self, trial: int) -> tuple[Federation, Auxiliary, Mask]:
        """Deal examples to the clients and the attacker, and choose the clients that have the property."""
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
        # The pictures are followed by the same ones upside down: example i + size is example i, turned.
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

    def attack(self, federation: Federation, auxiliary: Auxiliary, having: Mask, selection: Selection) -> PropertyTrial:
        """Observe training from its first round, score each round, and attribute the scores to clients."""
        work = LocalSGD(self.learning_rate, batch_size=self.batch_size)
        rows, means = [], []
        for played in federation.play(federation.fedavg(work), range(1, self.rounds + 1), selection, self.dropouts):
            rows.append(np.isin(np.arange(self.clients), played.members))
            means.append(self._score(auxiliary, played, work, federation.seed))
        if not rows:
            raise ConfigError("no round revealed anything: use fewer dropouts or more rounds")
        scores = attribute(np.array(rows), np.array(means), self.ridge)
        return PropertyTrial(
            scores,
            having,
            auc=area_under_curve(scores, having),
            among_mates=ranking_among_mates(scores, having, selection.mates),
            accuracy=float(np.mean((scores > 0.5) == having)),
            best_by_circles=best_by_circles(having, selection.mates),
            equal_scores=all(np.ptp(scores[list(circle)]) == 0 for circle in selection.mates),
        )

    def _score(self, auxiliary: Auxiliary, played: ObservedRound, work: LocalSGD, seed: int) -> float:
        rng = stream(seed, "own clients", played.number)
        return auxiliary.detector(played, self.own_clients, work, rng, seed)(played.mean)
