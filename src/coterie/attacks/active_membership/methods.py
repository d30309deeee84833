"""The methods that are attacked (FedAvg, Ditto, confined descent), and what attackers see and may do in each.

All methods share one computation. Every participant computes the gradient of its mean loss over all its examples, at
its model. All take a step of the same size along the mean of the gradients that are sent. Every model starts as a draw
of lambda N(0, 1) around zeros. The methods differ in which model each participant has:

- FedAvg: all participants start from the same model and take every step, so they always have the same model, as if each
  downloaded it in every round. A round is one step on one full batch: averaging models is then averaging gradients.
  (The baseline in the code of the paper applies a step only to the selected participants, and no participant ever
  downloads the model.)
- Ditto: the same, and every honest participant also trains a personal model, which is pulled to the common one.
- Confined descent: every participant has its own model with its own start, and sees sums; ``confined-checked`` adds
  the loss check. Every participant chooses its own lambda, so attackers may choose 0 and start at the anchor
  (``confined-anchored``, with the check). Their model is then the public displacement, which is close to honest models,
  and their gradients do less damage.

Before the attack, attackers train on examples of their own. Then they send, instead of a gradient,

    strength (grad F(targets, wrong answers) - grad F(targets, true answers)),

so that the common step increases the loss of the targets (Nasr et al. 2019, and the code of CGD). Wrong answers are
random labels. For squared errors they are numbers that are one standard deviation off; the push then does not depend on
the error, while that of plain ascent would grow with it. Honest participants decrease the loss of members again in
every round, but not that of non-members.

*Why numpy.* Other attacks train with :mod:`coterie.training.strategies`. Here, one table needs tens of thousands of
rounds of up to hundreds of participants with a small network, and every loss check needs every participant's loss. This
takes a few matrix products with :class:`~coterie.confined.cached_groups.CachedGroups`, the library's code for such
grids. With torch, most of the time would be overhead of starting operations, and a round would cost several times as
much. The tests compare every method with its strategy in :mod:`coterie.training.strategies`.

Sums are computed in the clear, because the attack uses nothing else; ``ActiveMembership.secure_error`` plays one round
as a real session.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.attacks.active_membership.records import DealtRecords, Records
from coterie.attacks.active_membership.settings import ActiveMembershipSettings
from coterie.attacks.active_membership.tasks import DIVERGED
from coterie.confined import (
    LOSS_CHECKS,
    ConfinedDescent,
    ConstantStep,
    Contribution,
    DescentState,
    LossCheck,
    NoCheck,
    Offsets,
    Parameters,
    Spread,
)
from coterie.confined.cached_groups import CachedGroups
from coterie.confined.grid import Grid
from coterie.confined.network import loss_and_gradient, zero_anchor
from coterie.errors import ConfigError, InputError
from coterie.training.streams import stream

MethodName: TypeAlias = Literal["fedavg", "ditto", "confined", "confined-checked", "confined-anchored"]
METHODS: tuple[MethodName, ...] = get_args(MethodName)
NAMES: Mapping[MethodName, str] = {
    "fedavg": "FedAvg",
    "ditto": "Ditto",
    "confined": "confined, no loss check",
    "confined-checked": "confined, loss check",
    "confined-anchored": "confined, loss check, anchored attackers",
}
"""The names of the methods in texts."""
CHECKED: tuple[MethodName, ...] = ("confined-checked", "confined-anchored")
COMMON, OWN, PUBLIC = "common model", "own confined model", "public displacement"
"""The models that attackers infer membership from."""
FIRST, MALICIOUS = "group-0", "malicious"
HIDDEN = 256
"""Units of the hidden layer: the network of the paper's experiments, whose code has one hidden layer as well."""


@dataclass(frozen=True, eq=False)
class TrainedState:
    """The state of a descent, from which several attacks start."""

    honest: DescentState
    attackers: DescentState
    personal: tuple[Parameters, ...]


class PersonalModels:
    """Ditto's personal models, one for each honest participant: argmin F_k(v) + penalty/2 ||v - common||^2.

    In every round, v <- v - step (grad F_k(v) + penalty (v - common)), as :class:`coterie.training.strategies.Ditto`.
    """

    def __init__(self, dealt: DealtRecords, settings: ActiveMembershipSettings, start: Parameters) -> None:
        """Start all of them at the common model."""
        self._dealt, self._settings = dealt, settings
        self.models: tuple[Parameters, ...] = (start,) * dealt.participants

    def train(self, common: Sequence[FloatArray]) -> None:
        """Take one step with every model, towards the common model as it is before this round's sum."""
        data = self._dealt.honest
        each = len(data) // self._dealt.participants
        parts = [slice(each * number, each * number + each) for number in range(self._dealt.participants)]
        self.models = tuple(
            self._stepped(own, loss_and_gradient(data.x[part], data.y[part], own)[1], common)
            for own, part in zip(self.models, parts, strict=True)
        )

    def _stepped(self, own: Parameters, gradient: Parameters, common: Sequence[FloatArray]) -> Parameters:
        step, penalty = self._settings.step, self._settings.penalty
        return [
            np.asarray(v - step * (g + penalty * (v - w)), v.dtype)
            for v, g, w in zip(own, gradient, common, strict=True)
        ]


class AttackedDescent:
    """Honest participants and attackers in one descent: they train together, then the attackers attack."""

    def __init__(self, method: MethodName, dealt: DealtRecords, settings: ActiveMembershipSettings) -> None:
        """Start all participants."""
        self.method, self.dealt, self.settings = method, dealt, settings
        self._honest = self._honest_groups()
        self._attackers = [self._malicious(dealt.targets if settings.train_on_targets else dealt.cover)]
        start = self._honest.descent.confined(FIRST)
        self._personal = PersonalModels(dealt, settings, start) if method == "ditto" else None

    @property
    def rounds(self) -> int:
        """The number of rounds that were played."""
        return self._honest.descent.iteration

    def train(self, strength: float = 1.0) -> int:
        """Play a round in which attackers train too; return the number of honest participants that refused the step.

        If they train on their targets, they do so with the strength of the later attack, as in the paper.
        """
        scale = strength if self.settings.train_on_targets else 1.0
        (own,) = self._attackers
        return self._step([scale * array for array in _mean_gradient(own)])

    def trained_state(self) -> TrainedState:
        """Return the state of all participants after training."""
        personal = self._personal.models if self._personal else ()
        return TrainedState(self._honest.descent.state(), self._attackers[0].descent.state(), personal)

    def prepare_attack(self, trained: TrainedState) -> None:
        """Reset all participants to a state, and prepare the attackers to attack from there."""
        targets = self.dealt.targets
        self._honest = self._honest_groups(trained.honest)
        self._attackers = [
            self._malicious(Records(targets.x, answers), trained.attackers)
            for answers in (targets.y, self.dealt.decoys)
        ]
        if self._personal:
            self._personal.models = trained.personal

    def attack(self, strength: float) -> int:
        """Play a round of the attack (strength 0 only observes); return how many honest participants refused it."""
        true, decoys = map(_mean_gradient, self._attackers)
        return self._step(crafted(true, decoys, strength))

    def contributions(self, strength: float) -> list[Parameters]:
        """Return what each participant would send to the next round of the attack, honest ones first."""
        true, decoys = self._attackers
        honest = [_mean_gradient(self._honest, one) for one in range(self.dealt.participants)]
        return honest + [
            crafted(_mean_gradient(true, one), _mean_gradient(decoys, one), strength)
            for one in range(self.dealt.malicious)
        ]

    def answers(self) -> Mapping[str, FloatArray]:
        """Return the outputs of the models that attackers have, for all targets, by the kind of model."""
        targets, descent = self.dealt.targets.x, self._attackers[0].descent
        if not self._confined:
            return {COMMON: outputs(targets, descent.confined(FIRST))}
        each = targets.reshape(self.dealt.malicious, -1, targets.shape[1])
        own = [outputs(x, descent.confined(name)) for x, name in zip(each, descent.participants, strict=True)]
        return {OWN: np.concatenate(own), PUBLIC: outputs(targets, descent.public_model)}

    def honest_models(self, most: int) -> Iterator[Parameters]:
        """Yield the models of the first honest participants; a common model is yielded once."""
        descent = self._honest.descent
        if self._personal:
            yield from self._personal.models[:most]
        elif self._confined:
            yield from map(descent.confined, descent.participants[:most])
        else:
            yield descent.confined(FIRST)

    @property
    def _confined(self) -> bool:
        return self.method not in ("fedavg", "ditto")

    def _step(self, malicious: Parameters) -> int:
        """Take a step along the mean over all participants, given the attackers' mean."""
        dealt, descent = self.dealt, self._honest.descent
        everybody = dealt.participants + dealt.malicious
        mean = [
            (dealt.participants * ours + dealt.malicious * theirs) / everybody
            for ours, theirs in zip(_mean_gradient(self._honest), malicious, strict=True)
        ]
        if self._personal:
            self._personal.train(descent.confined(FIRST))
        rng = stream(dealt.seed, "loss check", self.rounds)
        try:
            step = descent.propose(mean)
        except InputError:
            raise ConfigError(DIVERGED) from None
        refused = self._honest.advance(step, rng)
        for groups in self._attackers:
            groups.advance(step, rng)
        return len(refused)

    def _honest_groups(self, state: DescentState | None = None) -> CachedGroups:
        check = LOSS_CHECKS[self.settings.check]() if self.method in CHECKED else NoCheck()
        return self._groups("honest", self.dealt.honest, self.dealt.participants, check, state)

    def _malicious(self, examples: Records, state: DescentState | None = None) -> CachedGroups:
        """Return the attackers, who take every step; refusing one would not help them, as they see the sums anyway."""
        return self._groups(MALICIOUS, examples, self.dealt.malicious, NoCheck(), state)

    def _groups(
        self, side: str, examples: Records, count: int, check: LossCheck, state: DescentState | None
    ) -> CachedGroups:
        def generator(name: str) -> np.random.Generator:
            whose = (side, name) if self._confined else ("everybody",)
            return stream(self.dealt.seed, "offset", *whose)

        grid, anchor = Grid(count), zero_anchor(examples.x.shape[1], HIDDEN, self.dealt.task.outputs)
        anchored = self.method == "confined-anchored" and side == MALICIOUS
        offsets = Offsets(anchor, generator, Spread(0.0 if anchored else self.settings.spread))
        descent = ConfinedDescent(offsets, grid.names, ConstantStep(self.settings.step), check)
        if state is not None:
            descent.restore(state)
        return CachedGroups(examples.x, examples.y, grid, descent)


def crafted(true: Sequence[FloatArray], decoys: Sequence[FloatArray], strength: float) -> Parameters:
    """Return what an attacker sends: strength (gradient under wrong answers - gradient under true ones)."""
    return [strength * (other - own) for own, other in zip(true, decoys, strict=True)]


def outputs(x: FloatArray, parameters: Sequence[FloatArray]) -> FloatArray:
    """Return the network's outputs, before any softmax."""
    w1, b1, w2, b2 = parameters
    found: FloatArray = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    return found


def _mean_gradient(groups: CachedGroups, one: int | None = None) -> Parameters:
    """Return the mean gradient of all groups, or that of one; nothing is clipped, because attackers would not clip."""
    chosen = np.ones(groups.grid.groups, bool) if one is None else np.arange(groups.grid.groups) == one
    return groups.gradient(chosen, Contribution(None), np.random.default_rng(0))
