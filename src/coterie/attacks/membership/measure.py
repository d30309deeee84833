"""Passive membership inference: the same attacks on every view of a federation, in several trials."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor
from typing import ClassVar

import msgspec
import numpy as np

from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress, within
from coterie.attacks.membership.candidates import Candidates, FederatedRun, SumNoise, Training
from coterie.attacks.membership.scores import SCORES, MembershipScore, ModelAnswers, References
from coterie.attacks.membership.settings import MembershipSettings
from coterie.attacks.ranking import Decisions, Roc
from coterie.attacks.session import play_session
from coterie.cohorts.circles import Mask, Reals
from coterie.graphs.guarantees import paper_threshold
from coterie.graphs.topology import Complete, ErdosRenyi, Topology
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD
from coterie.training.streams import stream, torch_seed

CLIENT, SECURE, SPARSE, NOTHING = "client", "masked", "masked-sparse", "nothing"
"""The views: a client's own model, its masked upload on a complete and on a sparse graph, and nothing."""
PRECISION = 16
"""Bits of an entry in the observed sessions."""
LOW_RATES = (0.01, 0.001)
BUDGETED = ("lira", "rmia")
"""The attacks that are also run with fewer reference models."""


def trial_seed(seed: int, trial: int) -> int:
    """Return the seed of a trial: other examples, other models, other members."""
    return torch_seed(seed, "membership trial", trial)


def sum_of(clients: int, *, noisy: bool = False) -> str:
    """Return the name of the view of the global model after a sum over this many clients."""
    return f"{'noisy-' if noisy else ''}sum-{clients}"


@dataclass(frozen=True)
class PassiveMembership(MembershipSettings):
    """Membership inference by an adversary who only observes; tuned so that it works on plain federated averaging."""

    title: ClassVar[str] = "Passive membership inference"
    threat: ClassVar[Adversary] = threats.MEMBERSHIP

    @property
    def threshold(self) -> int:
        """The number of shares that reconstruct a secret on the sparse graph, by the rule of Choi et al."""
        return paper_threshold(self.cohorts[-1], self.connection)

    def training(self, clients: int, *, noisy: bool = False) -> Training:
        """Return how a federation of this many clients is trained."""
        work = LocalSGD(self.learning_rate, self.epochs, self.batch_size, self.momentum)
        return Training(clients, self.rounds, work, SumNoise(self.noise, self.norm) if noisy else None)

    @property
    def epsilon(self) -> float | None:
        """The epsilon that the noise guarantees; None without noise."""
        noise = self.training(self.cohorts[-1], noisy=True).noise
        return noise.epsilon(self.rounds, self.delta) if noise and self.noise else None

    def measure(self, watch: OnProgress) -> "list[PassiveTrial]":
        """Run every attack on every view, in every trial."""
        trials = []
        for trial in range(self.trials):

            def progress(what: str, done: float, trial: int = trial) -> None:
                watch(f"trial {trial + 1}: {what}", (trial + done) / self.trials)

            trials.append(play_trial(self, trial_seed(self.seed, trial), progress))
        return trials


class Success(msgspec.Struct, frozen=True):
    """The success of one attack on one view, over all victims of a trial."""

    auc: float
    decisions: Decisions
    """Decisions at the threshold that is best on the attacker's reference models."""
    hits: tuple[int, ...]
    """Members found at false-positive rates of at most 1% and 0.1%."""
    allowed: tuple[int, ...]
    """The number of non-members."""

    @classmethod
    def of(cls, scores: Reals, members: Mask, threshold: float) -> "Success":
        """Measure scores, victims x candidates."""
        curve = Roc.of(scores, members)
        return cls(
            curve.area,
            Decisions.of(scores >= threshold, members),
            tuple(curve.hits_at(rate) for rate in LOW_RATES),
            tuple(floor(rate * curve.others + 1e-9) for rate in LOW_RATES),
        )


class PassiveTrial(msgspec.Struct, frozen=True):
    """The results of one trial."""

    views: dict[str, dict[str, Success]]
    """For each view and attack."""
    accuracy: dict[str, float]
    """The accuracy of the models in each view, on examples that no client trained on."""
    budget: dict[str, dict[str, list[tuple[int, float]]]]
    """For some views and attacks: AUC by the number of reference models."""


def play_trial(game: PassiveMembership, seed: int, watch: OnProgress = lambda _what, _share: None) -> PassiveTrial:
    """Play one trial; all of it depends on the settings and the seed alone."""
    candidates = Candidates.deal(game.data, game.model, game.examples, game.strangers, seed, game.data_dir)
    known = [candidates.draw_members(run) for run in range(game.references)]
    hidden = [candidates.draw_members(game.references + 2 * victim) for victim in range(game.victims)]
    federations = [(clients, False) for clients in game.cohorts]
    if game.noise:
        federations.append((game.cohorts[-1], True))
    sizes = np.cumsum([0, *(clients for clients, _ in federations)]) / sum(clients for clients, _ in federations)
    views: dict[str, dict[str, Success]] = {}
    accuracy: dict[str, float] = {}
    budget: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for number, (clients, noisy) in enumerate(federations):
        begun, share = float(sizes[number]), float(sizes[number + 1] - sizes[number])
        name = sum_of(clients, noisy=noisy)
        training = game.training(clients, noisy=noisy)
        progress = within(partial(watch, f"training for {name}"), begun, share)
        runs = candidates.train([*known, *hidden], 0, training, progress)
        attack = _Attack(candidates, runs[: game.references], runs[game.references :], seed)
        views[name] = attack.measure(lambda run: run.after)
        accuracy[name] = attack.accuracy(lambda run: run.after)
        if clients == game.cohorts[-1] and not noisy:
            views |= {CLIENT: attack.measure(lambda run: run.client), NOTHING: attack.guess(lambda run: run.client)}
            accuracy[CLIENT] = attack.accuracy(lambda run: run.client)
            budget = {
                name: attack.by_budget(lambda run: run.after),
                CLIENT: attack.by_budget(lambda run: run.client),
            }
            watch("playing sessions of secure aggregation", begun + share)
            for view, stolen in _read_uploads(game, attack.victims, seed):
                views[view] = attack.measure(lambda run: run.client, stolen)
                accuracy[view] = float(np.mean([candidates.accuracy(state) for state in stolen]))
    return PassiveTrial(views, accuracy, budget)


def _read_uploads(
    game: PassiveMembership, victims: Sequence[FederatedRun], seed: int
) -> Iterator[tuple[str, list[ModelArrays]]]:
    """Yield, for each graph, the targets' masked uploads, decoded as if they were unmasked models."""
    graphs: tuple[tuple[str, Topology, int | None], ...] = (
        (SECURE, Complete(), None),
        (SPARSE, ErdosRenyi(game.connection), game.threshold),
    )
    for view, topology, threshold in graphs:
        sessions = [
            play_session(
                list(run.updates),
                stream(seed, view, number),
                topology=topology,
                threshold=threshold,
                precision=PRECISION,
                everybody=True,
            )
            for number, run in enumerate(victims)
        ]
        yield view, [run.claimed(session.uploads[0]) for run, session in zip(victims, sessions, strict=True)]


@dataclass(frozen=True, eq=False)
class _Attack:
    """An attacker with reference runs, and the victims."""

    candidates: Candidates
    known: Sequence[FederatedRun]
    victims: Sequence[FederatedRun]
    seed: int

    def measure(
        self, seen: Callable[[FederatedRun], ModelArrays], stolen: Sequence[ModelArrays] | None = None
    ) -> dict[str, Success]:
        """Run every attack on what is ``seen`` of a run, or on ``stolen`` models instead of the victims' own."""
        references = self.candidates.references(self.known, seen)
        answers = [self.candidates.look(state) for state in stolen or [seen(victim) for victim in self.victims]]
        return {name: self._measured(score, answers, references, self._members) for name, score in SCORES.items()}

    def guess(self, seen: Callable[[FederatedRun], ModelArrays]) -> dict[str, Success]:
        """Evaluate the same scores with newly drawn members, which the attacker cannot know: the baseline."""
        rng = stream(self.seed, "members of nobody")
        anew = rng.permuted(self._members, axis=1)
        references = self.candidates.references(self.known, seen)
        answers = [self.candidates.look(seen(victim)) for victim in self.victims]
        return {name: self._measured(score, answers, references, anew) for name, score in SCORES.items()}

    def by_budget(self, seen: Callable[[FederatedRun], ModelArrays]) -> dict[str, list[tuple[int, float]]]:
        """Measure the AUC with the first 2, 4, 8 ... reference models only."""
        references = self.candidates.references(self.known, seen)
        answers = [self.candidates.look(seen(victim)) for victim in self.victims]
        sizes = sorted({*(2**power for power in range(1, len(self.known).bit_length())), len(self.known)})
        return {
            name: [
                (size, Roc.of(_scores(SCORES[name], answers, references.only(range(size))), self._members).area)
                for size in sizes
            ]
            for name in BUDGETED
        }

    def accuracy(self, seen: Callable[[FederatedRun], ModelArrays]) -> float:
        """The mean accuracy of the victims' models."""
        return float(np.mean([self.candidates.accuracy(seen(victim)) for victim in self.victims]))

    @property
    def _members(self) -> Mask:
        return np.stack([victim.members for victim in self.victims])

    def _measured(
        self, score: MembershipScore, answers: Sequence[ModelAnswers], references: References, members: Mask
    ) -> Success:
        return Success.of(_scores(score, answers, references), members, rehearse(score, references))


def rehearse(score: MembershipScore, references: References) -> float:
    """Return the best threshold on the attacker's own models, each pair attacked with the others as references."""
    count = len(references.answers)
    scores = [score(references.answers[model], references.without((model, model ^ 1))) for model in range(count)]
    return Roc.of(np.stack(scores), references.members).best_threshold


def _scores(score: MembershipScore, answers: Sequence[ModelAnswers], references: References) -> Reals:
    return np.stack([score(answer, references) for answer in answers])
