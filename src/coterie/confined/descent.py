"""Confined gradient descent in displacement form: one public displacement, and the steps that each participant refused.

Every participant applies the same public step, or refuses it. So its confined model is always

    w_k^l = private offset (anchor + lambda_l Rand_l) + public displacement u_k - sum of the steps that l refused,

and the algorithm is gradient descent on Phi(u) = sum_l F_l(offset_l + u). Only u is stored, and the sum of the steps
that a participant took, if it refused any. Offsets are computed again when needed. (That sum is u minus the refused
steps. Computed as a difference, it would lose precision when poison, which all refuse, lets u grow without bound.)
Algorithm 1 of the paper updates every model separately and gives the same numbers.

Sums of gradients are sent. Everyone who sees them can compute u, and **anchor + u is itself a usable model**: on MNIST
it classifies better than the participants' own. :attr:`ConfinedDescent.public_model` is that model, to be evaluated
beside them. Distances between models never shrink: while no participant refuses, w^l - w^j keeps its initial value.

A participant may be late: then the gradient that it contributes is one of an older iterate (CGD, eq. (12)), at most
``late`` iterations old. A network may cut a participant off: then it does not receive the steps. Sums are stored, so it
receives the missed steps when it is reached again, and makes the same decisions as it would have made before.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.confined.check import IncreaseCheck, LossCheck, LossHistory
from coterie.confined.offsets import Offsets, Parameters
from coterie.confined.staleness import Freshness, LateGradients
from coterie.confined.steps import StepSize
from coterie.errors import ConfigError, InputError, LocalProtocolError
from coterie.privacy import clip_norm

DescentState: TypeAlias = dict[str, FloatArray]
"""The state of a descent as named arrays, for a checkpoint. It is private: it shows who accepted which steps."""

LocalGradient: TypeAlias = Callable[[str, Parameters], Parameters]
"""Returns the mean gradient of a participant's loss at a model: g = grad F(w, xi_l) / |xi_l|."""

LocalLoss: TypeAlias = Callable[[str, Parameters], float]
"""Returns a participant's mean loss at a model."""

MeanOf: TypeAlias = Callable[[Mapping[str, Parameters]], Sequence[FloatArray]]
"""Returns the mean of the contributions by participant: in the clear, by additive sharing, by secure aggregation."""


class ConfinedDescent:
    """All participants of a descent, with one displacement.

    A participant is a party that decides as one: with vertical partitions, a horizontal group. An iteration is

        gradients at ``contributing_model(l)`` for all selected l, and their mean
        descent.attend(summed, late, cut_off)             # only if some were late or cut off, or have been
        step = descent.propose(mean)
        verdicts = {l: descent.judge(l, loss before, loss after, rng) for l in descent.participants}
        descent.take(step, verdicts)

    where losses are those at ``confined(l)`` and ``candidate(l, step)``.

    If all refuse, no model changes. With full batches and a constant step size the same step is then proposed forever:
    the descent is stuck, and the displacement grows without bound. Use a smaller or a falling step size.
    """

    def __init__(
        self,
        offsets: Offsets,
        participants: Sequence[str],
        step_size: StepSize,
        check: LossCheck | None = None,
        tau: int | None = None,
        late: int | None = 0,
    ) -> None:
        """Begin at the offsets.

        Args:
            offsets: every participant's private start, and the anchor.
            participants: their names.
            step_size: alpha_k, for the mean of the gradients.
            check: the rule for accepting a step; by default :class:`IncreaseCheck` with threshold 0.
            tau: a participant that took none of the last ``tau`` steps must not contribute; None is no bound.
            late: the largest age in iterations of a late participant's gradient; 0 allows no late ones, None allows
                all.

        """
        if len(set(participants)) != len(participants) or not participants:
            raise ConfigError("a descent needs participants with different names")
        self.offsets = offsets
        self.participants = tuple(participants)
        self.step_size = step_size
        self.check = check or IncreaseCheck()
        self.freshness = Freshness(self.participants, tau)
        self.late = LateGradients(late)
        self.iteration = 0
        """The number of iterations that are done."""
        self.displacement: Parameters = [np.zeros(array.shape) for array in offsets.anchor]
        """u: public, in float64."""
        self._taken: dict[str, Parameters] = {}
        """For participants that refused a step, the sum of the steps they accepted; equal histories share an array."""
        self._histories: dict[str, LossHistory] = {}
        self._older: dict[str, Parameters] = {}
        """For participants with a late gradient, the sum of the steps they had taken when they computed it."""
        self._cut_off: dict[str, Parameters] = {}
        """For participants that are cut off, the sum of the steps they had taken before."""

    @property
    def public_model(self) -> Parameters:
        """The model that an observer of the sums has: anchor + u."""
        return _sum_like(self.offsets.anchor, self.displacement)

    @property
    def unanimous(self) -> bool:
        """Whether all participants took every step."""
        return not self._taken

    @property
    def excluded(self) -> tuple[str, ...]:
        """The participants that are too stale for the next iteration; do not select their circles."""
        return self.freshness.excluded(self.iteration + 1)

    def confined(self, participant: str) -> Parameters:
        """Return a participant's own model: offset + u - the sum of the steps that it refused."""
        return _sum_like(self.offsets.of(participant), self._sum_of_steps(participant))

    def contributing_model(self, participant: str) -> Parameters:
        """Return the model whose gradient a participant contributes: an older one if it has a late gradient."""
        return _sum_like(self.offsets.of(participant), self._older.get(participant, self._sum_of_steps(participant)))

    def current_model(self, participant: str) -> Parameters:
        """Return the current model of a participant, which is an older one while it is cut off."""
        return _sum_like(self.offsets.of(participant), self._cut_off.get(participant, self._sum_of_steps(participant)))

    def attend(self, summed: Iterable[str], late: Iterable[str] = (), cut_off: Iterable[str] = ()) -> None:
        """Record which participants are in the next sum, which were too late for it, and which are cut off during it.

        Call it between two calls of :meth:`take`, after the gradients were computed. A participant that was late keeps
        its gradient for a later sum, and so does one that is cut off.
        """
        for name in summed:
            self.late.sum_up(name, self.iteration)
            self._older.pop(name, None)
        lost = set(cut_off)
        for name in sorted(lost.difference(self._cut_off).union(late)):
            if self.late.hold(name, self.iteration):
                self._older[name] = self._sum_of_steps(name)
        self._cut_off = {name: self._cut_off.get(name, self._sum_of_steps(name)) for name in sorted(lost)}

    def candidate(self, participant: str, step: Sequence[FloatArray]) -> Parameters:
        """Return the model that a participant will have if it accepts this step, bit for bit."""
        return _sum_like(self.offsets.of(participant), _sum_like(self._sum_of_steps(participant), step))

    def check_subset(self, selected: Iterable[str]) -> None:
        """Refuse a subset with a member that is too stale.

        Leaving that member out would split its circle, so select among the other circles instead.
        """
        if stale := sorted(set(self.excluded).intersection(selected)):
            raise LocalProtocolError(f"too stale to contribute: {', '.join(stale)}; select among those who are not")

    def propose(self, mean: Sequence[FloatArray]) -> Parameters:
        """Return the step of the next iteration: -alpha_k times the mean of the contributions."""
        if [array.shape for array in mean] != [array.shape for array in self.displacement]:
            raise InputError("the arrays of the mean are not those of the model: their number or shapes differ")
        if not all(np.isfinite(array).all() for array in mean):
            raise InputError("the mean has NaN or infinite entries: no participant could take such a step")
        alpha = self.step_size(self.iteration + 1)
        return [-alpha * np.asarray(array, np.float64) for array in mean]

    def judge(self, participant: str, before: float, after: float, rng: np.random.Generator) -> bool:
        """Return whether a participant accepts a step, given its loss before and after; update the rule's history.

        ``rng`` is the participant's own, for rules with a random decision.
        """
        history = self._histories.get(participant, ())
        verdict, self._histories[participant] = self.check.judge(history, before, after, rng)
        return verdict

    def take(self, step: Sequence[FloatArray], verdicts: Mapping[str, bool]) -> tuple[str, ...]:
        """End the iteration: add ``step`` to the displacement, and return the participants that refused it."""
        if set(verdicts) != set(self.participants):
            raise LocalProtocolError("a step needs one verdict from every participant, and from nobody else")
        self.iteration += 1
        refused = tuple(name for name in self.participants if not verdicts[name])
        if first := [name for name in refused if name not in self._taken]:
            zeros = [np.zeros_like(array) for array in self.offsets.anchor]  # in the anchor's type, which is smaller
            self._taken |= dict.fromkeys(first, _sum_like(zeros, self.displacement))
        sums: dict[int, tuple[Parameters, Parameters]] = {}  # before and after; equal decisions share arrays
        for name in self.participants:
            if verdicts[name]:
                self.freshness.record_step(name, self.iteration)
                if name in self._taken:
                    before = self._taken[name]
                    if id(before) not in sums:
                        sums[id(before)] = before, _sum_like(before, step)
                    self._taken[name] = sums[id(before)][1]
        self.displacement = [sum_ + change for sum_, change in zip(self.displacement, step, strict=True)]
        for name in self.late.discard_old(self.iteration):
            del self._older[name]
        return refused

    def state(self) -> DescentState:
        """Return the state from which a descent with the same arguments can continue."""
        state: DescentState = {"iteration": np.array(float(self.iteration))}
        state["last_taken"] = np.array([self.freshness.last[name] for name in self.participants], np.float64)
        state |= _to_state("displacement", self.displacement)
        for name, arrays in self._taken.items():
            state |= _to_state(f"taken.{name}", arrays)
        for name, arrays in self._older.items():
            state |= _to_state(f"older.{name}", arrays)
            state[f"late_since.{name}"] = np.array([float(self.late.since[name])])
        for name, arrays in self._cut_off.items():
            state |= _to_state(f"cut_off.{name}", arrays)
        if any(counts := (self.late.summed, self.late.oldest, self.late.refused)):
            state["late_counts"] = np.array(counts, np.float64)
        return state | {f"losses.{name}": np.array(losses) for name, losses in self._histories.items() if losses}

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Continue from this state."""
        shapes = [array.shape for array in self.displacement]

        def arrays(name: str) -> Parameters:
            found = [state[f"{name}.{position}"] for position in range(len(shapes))]
            if [array.shape for array in found] != shapes:
                raise InputError("the arrays of the state are not those of the model: their shapes differ")
            return found

        self.iteration = int(state["iteration"])
        self.freshness.last = dict(zip(self.participants, map(int, state["last_taken"]), strict=True))
        self.displacement = arrays("displacement")
        self._taken, self._older, self._cut_off = (
            {name: arrays(f"{kind}.{name}") for name in self.participants if f"{kind}.{name}.0" in state}
            for kind in ("taken", "older", "cut_off")
        )
        self.late.since = {name: int(state[f"late_since.{name}"][0]) for name in self._older}
        self.late.summed, self.late.oldest, self.late.refused = map(int, state.get("late_counts", np.zeros(3)))
        self._histories = {
            name: tuple(map(float, state[f"losses.{name}"])) for name in self.participants if f"losses.{name}" in state
        }

    def _sum_of_steps(self, participant: str) -> Parameters:
        """Return the sum of the steps that a participant took."""
        return self._taken.get(participant, self.displacement)


@dataclass(frozen=True)
class Contribution:
    """How a gradient becomes a contribution: it is clipped to an L2 norm, and noise is added.

    g / max(1, ||g|| / norm) + N(0, sigma^2 I) (CGD, Algorithm 1, line 7). Noise is added before the encoding. Only this
    noise counts towards (epsilon, delta); the offsets do not. A numpy generator draws it, which is enough for a
    simulation. A deployment uses :class:`~coterie.privacy.NoisyQuantizer` for clipping, noise and encoding: its noise
    is exact and comes from a cryptographic keystream.
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
    add: MeanOf,
    rng: np.random.Generator,
    contribution: Contribution | None = None,
    late: Collection[str] = (),
    cut_off: Collection[str] = (),
) -> tuple[str, ...]:
    """Play one iteration with the subset S = ``selected``, drawn once for all; return the participants that refused.

    No member of S may be too stale (:meth:`ConfinedDescent.check_subset`). Participants that are ``late`` or
    ``cut_off`` are not summed; see :meth:`ConfinedDescent.attend`.
    """
    contribution = contribution or Contribution(norm=None)
    summed = [name for name in selected if name not in late and name not in cut_off]
    if not summed:
        raise LocalProtocolError("no selected participant can be summed: none was selected, or all are late or cut off")
    descent.check_subset(selected)
    given = {name: contribution.of(gradient(name, descent.contributing_model(name)), rng) for name in summed}
    descent.attend(summed, set(late).intersection(selected), cut_off)
    step = descent.propose(add(given))
    verdicts = {
        name: descent.judge(name, loss(name, descent.confined(name)), loss(name, descent.candidate(name, step)), rng)
        for name in descent.participants
    }
    return descent.take(step, verdicts)


def _sum_like(first: Sequence[FloatArray], second: Sequence[FloatArray]) -> Parameters:
    return [np.asarray(one + other, one.dtype) for one, other in zip(first, second, strict=True)]


def _to_state(name: str, arrays: Sequence[FloatArray]) -> DescentState:
    return {f"{name}.{position}": array for position, array in enumerate(arrays)}
