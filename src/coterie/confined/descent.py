"""Confined gradient descent in its displacement form: one public displacement, and what each participant refused of it.

Every participant applies the same public step, or refuses it. So its confined model is always

    w_k^l = private offset (anchor + lambda_l Rand_l) + public displacement u_k - sum of the steps that l refused,

and the algorithm is gradient descent on Phi(u) = sum_l F_l(offset_l + u). Only u is stored, and for those who refused
any step the sum of those they took up; offsets are made again when needed. (That sum is u less what was refused. As a
difference it would be lost where poison, which all refuse, lets u grow without bound.) Algorithm 1 of the paper, which
moves every model by itself, gives the same numbers.

What is sent are sums of gradients. What follows from them is u, which everybody can compute, and **anchor + u is itself
a usable model**: on MNIST it classifies better than the participants' own. :attr:`ConfinedDescent.public_model` is that
model, to be evaluated beside them. Distances between models never shrink: while nobody refuses, w^l - w^j stays as it
was drawn.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.confined.check import IncreaseCheck, LossCheck, LossHistory
from coterie.confined.offsets import Offsets, Parameters
from coterie.confined.staleness import Freshness
from coterie.confined.steps import StepSize
from coterie.errors import ConfigError, InputError, LocalProtocolError
from coterie.privacy import clip_norm

DescentState: TypeAlias = dict[str, FloatArray]
"""All that a descent remembers, as named arrays: its part of a checkpoint. Which steps who took up is private."""

LocalGradient: TypeAlias = Callable[[str, Parameters], Parameters]
"""Returns the mean gradient of a participant's loss at a model: g = grad F(w, xi_l) / |xi_l|."""

LocalLoss: TypeAlias = Callable[[str, Parameters], float]
"""Returns a participant's mean loss at a model."""

Addition: TypeAlias = Callable[[Mapping[str, Parameters]], Sequence[FloatArray]]
"""Returns the mean of the contributions by participant: in the clear, by additive sharing, by secure aggregation."""


class ConfinedDescent:
    """All participants of a descent, one displacement between them.

    A participant is whoever decides as one: with vertical partitions, a horizontal group. An iteration is

        step = descent.propose(mean)                      # the mean of the selected contributions
        verdicts = {l: descent.judge(l, loss before, loss after, rng) for l in descent.participants}
        descent.take(step, verdicts)

    where losses are those at ``confined(l)`` and ``candidate(l, step)``. Who missed the step counts as having refused
    it.

    When all refuse, all stand still, and with full batches and a constant step size the same step is proposed for ever:
    the descent is stuck, while the displacement runs away. Take a smaller step size, or one that falls.
    """

    def __init__(
        self,
        offsets: Offsets,
        participants: Sequence[str],
        step_size: StepSize,
        check: LossCheck | None = None,
        tau: int | None = None,
    ) -> None:
        """Begin at the offsets.

        Args:
            offsets: every participant's private start, and the anchor.
            participants: their names.
            step_size: alpha_k, for the mean of the gradients.
            check: when a step is taken up; :class:`IncreaseCheck` at threshold 0 if not given.
            tau: who took up no step in the last ``tau`` iterations may not contribute; None is no bound.

        """
        if len(set(participants)) != len(participants) or not participants:
            raise ConfigError("a descent needs participants, each with a name of its own")
        self.offsets = offsets
        self.participants = tuple(participants)
        self.step_size = step_size
        self.check = check or IncreaseCheck()
        self.freshness = Freshness(self.participants, tau)
        self.iteration = 0
        """How many iterations are done."""
        self.displacement: Parameters = [np.zeros(array.shape) for array in offsets.anchor]
        """u: public, in float64."""
        self._taken: dict[str, Parameters] = {}
        """Of those who refused a step, the sum of the steps they took up."""
        self._histories: dict[str, LossHistory] = {}

    @property
    def public_model(self) -> Parameters:
        """The model that an observer of the sums has: anchor + u."""
        return _sum_like(self.offsets.anchor, self.displacement)

    @property
    def excluded(self) -> tuple[str, ...]:
        """Who is too stale to contribute to the next iteration; leave them, and so their circles, unselected."""
        return self.freshness.excluded(self.iteration + 1)

    def confined(self, participant: str) -> Parameters:
        """Return a participant's own model: offset + u - what it refused."""
        return _sum_like(self.offsets.of(participant), self._moved(participant))

    def candidate(self, participant: str, step: Sequence[FloatArray]) -> Parameters:
        """Return what a participant's model would be after this step."""
        moved = [sum_ + change for sum_, change in zip(self._moved(participant), step, strict=True)]
        return _sum_like(self.offsets.of(participant), moved)

    def check_subset(self, selected: Iterable[str]) -> None:
        """Refuse a subset with a member that is too stale.

        To leave that member out would break up the circle that it is summed with: select among the others instead.
        """
        if stale := sorted(set(self.excluded).intersection(selected)):
            raise LocalProtocolError(f"too stale to contribute: {', '.join(stale)}; select among those who are not")

    def propose(self, mean: Sequence[FloatArray]) -> Parameters:
        """Return the step of the next iteration: -alpha_k times the mean of the contributions."""
        if [array.shape for array in mean] != [array.shape for array in self.displacement]:
            raise InputError("the arrays of the mean are not those of the model: their number or shapes differ")
        if not all(np.isfinite(array).all() for array in mean):
            raise InputError("the mean has NaN or infinite entries: nobody could take up such a step, or any after it")
        alpha = self.step_size(self.iteration + 1)
        return [-alpha * np.asarray(array, np.float64) for array in mean]

    def judge(self, participant: str, before: float, after: float, rng: np.random.Generator) -> bool:
        """Return whether a participant takes a step up, by its loss before and after it; remembers what the rule needs.

        ``rng`` is the participant's own, for rules that toss a coin.
        """
        history = self._histories.get(participant, ())
        verdict, self._histories[participant] = self.check.judge(history, before, after, rng)
        return verdict

    def take(self, step: Sequence[FloatArray], verdicts: Mapping[str, bool]) -> tuple[str, ...]:
        """End the iteration: displace by ``step``, keep it from those who refused it, and return them."""
        if set(verdicts) != set(self.participants):
            raise LocalProtocolError("every participant takes a step up or refuses it, and nobody else")
        self.iteration += 1
        refused = tuple(name for name in self.participants if not verdicts[name])
        for name in refused:
            if name not in self._taken:  # in the anchor's type: there may be many of them
                self._taken[name] = _sum_like(
                    [np.zeros_like(array) for array in self.offsets.anchor], self.displacement
                )
        for name in self.participants:
            if verdicts[name]:
                self.freshness.took(name, self.iteration)
                if name in self._taken:
                    self._taken[name] = _sum_like(self._taken[name], step)
        self.displacement = [sum_ + change for sum_, change in zip(self.displacement, step, strict=True)]
        return refused

    def state(self) -> DescentState:
        """Return what a descent built with the same arguments needs to go on from here."""
        state: DescentState = {"iteration": np.array(float(self.iteration))}
        state["last_taken"] = np.array([self.freshness.last[name] for name in self.participants], np.float64)
        state |= _named("displacement", self.displacement)
        for name, arrays in self._taken.items():
            state |= _named(f"taken.{name}", arrays)
        return state | {f"losses.{name}": np.array(losses) for name, losses in self._histories.items() if losses}

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Go on from there."""
        size = len(self.displacement)

        def arrays(name: str) -> Parameters:
            return [state[f"{name}.{position}"] for position in range(size)]

        self.iteration = int(state["iteration"])
        self.freshness.last = dict(zip(self.participants, map(int, state["last_taken"]), strict=True))
        self.displacement = arrays("displacement")
        self._taken = {name: arrays(f"taken.{name}") for name in self.participants if f"taken.{name}.0" in state}
        self._histories = {
            name: tuple(map(float, state[f"losses.{name}"])) for name in self.participants if f"losses.{name}" in state
        }

    def _moved(self, participant: str) -> Parameters:
        """Return the sum of the steps that a participant took up."""
        return self._taken.get(participant, self.displacement)


@dataclass(frozen=True)
class Contribution:
    """The way from a gradient to what is added up: clipped to an L2 norm, and noise of deviation ``sigma`` added.

    g / max(1, ||g|| / norm) + N(0, sigma^2 I) (CGD, Algorithm 1, line 7). Noise comes before the encoding, and only
    this noise counts towards (epsilon, delta): the offsets do not. Drawn by a numpy generator it is good for
    simulation; a deployment puts :class:`~coterie.privacy.NoisyQuantizer` in place of clip, noise and encoding, whose
    noise is exact and comes from a cryptographic keystream.
    """

    norm: float | None = 1.0
    sigma: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < np.inf or (self.norm is not None and not 0 < self.norm < np.inf):
            raise ConfigError("gradients are clipped to a positive norm, and noise has a deviation of at least 0")

    def of(self, gradient: Sequence[FloatArray], rng: np.random.Generator) -> Parameters:
        """Clip, then add noise."""
        clipped = list(gradient) if self.norm is None else clip_norm(gradient, self.norm)
        if not self.sigma:
            return clipped
        return [array + self.sigma * rng.standard_normal(array.shape) for array in clipped]


def iterate(
    descent: ConfinedDescent,
    selected: Sequence[str],
    gradient: LocalGradient,
    loss: LocalLoss,
    add: Addition,
    rng: np.random.Generator,
    contribution: Contribution | None = None,
) -> tuple[str, ...]:
    """Play one iteration with the subset S = ``selected``, drawn once for all, and return who refused its step.

    Nobody in S may be too stale (:meth:`ConfinedDescent.check_subset`).
    """
    contribution = contribution or Contribution(norm=None)
    if not selected:
        raise LocalProtocolError("nobody was selected")
    descent.check_subset(selected)
    given = {name: contribution.of(gradient(name, descent.confined(name)), rng) for name in selected}
    step = descent.propose(add(given))
    verdicts = {
        name: descent.judge(name, loss(name, descent.confined(name)), loss(name, descent.candidate(name, step)), rng)
        for name in descent.participants
    }
    return descent.take(step, verdicts)


def _sum_like(first: Sequence[FloatArray], second: Sequence[FloatArray]) -> Parameters:
    return [np.asarray(one + other, one.dtype) for one, other in zip(first, second, strict=True)]


def _named(name: str, arrays: Sequence[FloatArray]) -> DescentState:
    return {f"{name}.{position}": array for position, array in enumerate(arrays)}
