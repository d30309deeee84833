"""Confined gradient descent as a strategy: participants contribute gradients, and each accepts or refuses each step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.cohorts.circles import Indices
from coterie.confined import ConfinedDescent
from coterie.errors import ConfigError, InputError
from coterie.privacy import clip_norm
from coterie.training import flatten
from coterie.training.flatten import ModelArrays
from coterie.training.gradients import FullGradient, MeanLoss
from coterie.training.local import LocalResult, LocalTask, Problem, Work
from coterie.training.strategies.base import StrategyState, check_shapes
from coterie.training.streams import stream

DISPLACEMENT = "displacement"
"""The name of the public model among the participants' models. Anyone who sees the sums can compute it."""


@dataclass(frozen=True, eq=False)
class LocalComputation:
    """How a participant computes on its own examples: the work for a gradient, the loss, and how to clip."""

    work: Work
    loss: Callable[[ModelArrays, Indices], float]
    clip: Callable[[ModelArrays, float], ModelArrays] = clip_norm


class Confined:
    """A :class:`~coterie.confined.ConfinedDescent` over the examples of a problem.

    The mean is over the gradients of the selected participants, each clipped to an L2 norm. Every participant judges
    every step on its own examples, whether it was selected or not. An absent participant catches up later: the sums are
    stored, and its decisions depend only on its own model and the steps, so they come out the same.
    """

    common_model = False  # each participant has its own model

    def __init__(
        self,
        problem: Problem,
        parts: Mapping[str, Indices],
        descent: ConfinedDescent,
        clip: float,
        seed: int,
        computation: LocalComputation | None = None,
    ) -> None:
        """Begin at the starts of ``descent``; ``computation`` is by default that of participants with whole rows."""
        if flatten.statistics(problem.model):
            raise ConfigError(
                "confined descent averages gradients only: the model must not have statistics (batch norms)"
            )
        if DISPLACEMENT in parts:
            raise ConfigError(f"a participant cannot be called {DISPLACEMENT}: that is the name of the public model")
        self.descent = descent
        self.refused = 0
        """Number of refused steps so far, over all participants."""
        self._computation = computation or LocalComputation(FullGradient(), MeanLoss(problem))
        self._loss, self._parts, self._clip, self._seed = self._computation.loss, parts, clip, seed
        self._losses: dict[str, float] = {}

    @property
    def clients(self) -> tuple[str, ...]:
        """All participants."""
        return self.descent.participants

    def task(self, number: int, client: str) -> LocalTask:
        """Return the task to compute the gradient of the participant's own model, or an older one, on all examples."""
        state = self.descent.contributing_model(client)
        return LocalTask(client, number, self._seed, state, self._parts[client], self._computation.work)

    def contribution(self, result: LocalResult) -> ModelArrays:
        """Return the clipped gradient."""
        clipped = self._computation.clip(result.update, self._clip)
        return [np.asarray(array, like.dtype) for array, like in zip(clipped, result.update, strict=True)]

    def weight(self, client: str) -> int:
        """Return 1: the mean is over participants."""
        return 1

    def apply(self, number: int, mean: Sequence[FloatArray]) -> None:
        """Propose the step, let each participant accept or refuse it, and apply the result."""
        descent = self.descent
        check_shapes(mean, descent.displacement)
        step = descent.propose(mean)
        verdicts = {}
        for name in descent.participants:
            before = self._losses.get(name)
            if before is None:
                before = self._loss(descent.confined(name), self._parts[name])
            after = self._loss(descent.candidate(name, step), self._parts[name])
            verdicts[name] = descent.judge(name, before, after, stream(self._seed, "loss check", number, name))
            self._losses[name] = after if verdicts[name] else before
        self.refused += len(descent.take(step, verdicts))

    def models(self) -> Mapping[str, ModelArrays]:
        """Return the model that each participant has now, and the public ``displacement`` from the anchor."""
        own = {name: self.descent.current_model(name) for name in self.clients}
        return {**own, DISPLACEMENT: self.descent.public_model}

    def state(self) -> StrategyState:
        """Return the displacement, the refused steps, and the losses against which the next steps are judged."""
        losses = np.array([self._losses[name] for name in self.clients if self._losses])
        return self.descent.state() | {"own_losses": losses, "refused_so_far": np.array([float(self.refused)])}

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Restore displacement, refused steps and losses."""
        try:
            # A checkpoint file has no 0-dimensional arrays.
            self.descent.restore({**state, "iteration": np.reshape(state["iteration"], ())})
            self._losses = dict(zip(self.clients, map(float, state["own_losses"]), strict=False))
            self.refused = int(state["refused_so_far"][0])
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"the state is not one of confined descent with these clients: {error}") from None
