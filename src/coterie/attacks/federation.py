"""Rounds that an attacker watches: who is in each sum, and what the sum is, under several ways to choose cohorts.

Cohorts are chosen by the product's own policies, members that drop out inside a round are dealt with by its rule of
whole circles, and updates are those of real training. Sums are added up in the clear, since these attacks see nothing
of a round but its sum; :func:`check_secure_sum` shows that a session of secure aggregation reveals the same one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from torch import nn

from coterie.attacks.finding import OnProgress
from coterie.attacks.session import secure_mean
from coterie.attacks.victims import Victims, flat, shaped
from coterie.cohorts.circles import Circles, Indices, Mask, random_circles
from coterie.cohorts.policies import POLICIES, Policy, PolicySettings
from coterie.errors import ConfigError
from coterie.secagg.circles import whole_circles
from coterie.training import flatten
from coterie.training.executors.vectorised import train_together
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD, LocalTask, Problem, one_thread
from coterie.training.streams import stream

Matrix: TypeAlias = npt.NDArray[np.float64]
"""Vectors in rows."""

_MINIMUM = 2  # clients in a sum: no session reveals less
_PRECISION = 40  # bits of an entry: finer than the float32 of a model


@dataclass(frozen=True, eq=False)
class Side:
    """A way to choose cohorts, and what is summed when members are lost inside a round."""

    name: str
    policy: Policy = field(repr=False)
    mates: Circles = field(repr=False)
    """The circles that are kept together; where none are, circles drawn the same way, to compare with."""
    circles: bool
    """Whether cohorts are unions of circles."""
    aligned: bool = True
    """Whether a circle that lost a member is left out, or its survivors are summed all the same."""

    @property
    def words(self) -> str:
        """The side, as people call it."""
        if not self.circles:
            return {"random": "random selection"}.get(self.name, self.name)
        return f"circles of {self.mates.privacy}" + ("" if self.aligned else ", survivors of broken circles summed")

    def summed(self, survivors: Indices) -> Indices:
        """Return who is in the sum of a round."""
        if not (self.circles and self.aligned):
            return survivors
        return np.array(sorted(whole_circles(self.mates, survivors.tolist())), np.int64)


def make_sides(
    policies: Sequence[str], privacy: Sequence[int], clients: int, cohort: int, seed: int, *, naive: bool
) -> list[Side]:
    """Return a side for each policy; for multi-round selection one for each T, the first under the policy's name.

    With ``naive``, circles also without the rule that a broken circle is left out.
    """
    sides = []
    for name in policies:
        if name not in POLICIES:
            raise ConfigError(f"unknown policy {name!r}; known are {', '.join(POLICIES)}")
        for number, size in enumerate(privacy if name == "multi-round" else privacy[:1]):
            settings = PolicySettings(np.zeros(clients), cohort, size)
            drawn = POLICIES[name].compose(settings, stream(seed, "circles", size))
            kept = drawn.privacy > 1
            mates = drawn if kept else random_circles(clients, size, stream(seed, "circles", size))
            label = f"{name} T={size}" if number else name
            policy = POLICIES[name].build(drawn, settings)
            sides.append(Side(label, policy, mates, kept))
            if naive and kept:
                sides.append(Side(f"{label} naive", policy, mates, circles=True, aligned=False))
    return sides


@dataclass(frozen=True, eq=False)
class WatchedRound:
    """A round: the model that was sent out, who was aggregated, and what each of them sent."""

    number: int
    state: ModelArrays = field(repr=False)
    members: Indices
    updates: Matrix = field(repr=False)
    """A row for each member; an attacker sees their mean alone."""

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """What the round reveals."""
        return np.asarray(self.updates.mean(0))

    @property
    def after(self) -> ModelArrays:
        """The model that the server makes of it."""
        return flatten.moved(self.state, shaped(self.mean, self.state))


def play_rounds(
    victims: Victims, side: Side, state: ModelArrays, rounds: range, work: LocalSGD, dropouts: float = 0.0
) -> Iterator[WatchedRound]:
    """Train by federated averaging, and yield the rounds that reveal anything; everybody is available in each.

    A selected client is lost inside a round with probability ``dropouts``.
    """
    frequencies = np.zeros(len(victims), np.int64)
    for number in rounds:
        available = np.ones(len(victims), np.bool_)
        chosen = side.policy.select(available, frequencies, stream(victims.seed, "selection", number))
        lost = stream(victims.seed, "losses", number).random(len(victims)) < dropouts
        members = side.summed(chosen[~lost[chosen]])
        if members.size < _MINIMUM:
            continue
        holdings = {f"client-{client}": victims.parts[client] for client in members.tolist()}
        updates = train_clients(victims.problem, holdings, state, number, work, victims.seed)
        frequencies[members] += 1
        played = WatchedRound(number, state, members, updates)
        yield played
        state = played.after


def train_clients(
    problem: Problem, holdings: Mapping[str, Indices], state: ModelArrays, number: int, work: LocalSGD, seed: int
) -> Matrix:
    """Return the updates of clients by name, each with examples of its own, in rows."""
    tasks = [LocalTask(name, number, seed, state, indices, work) for name, indices in holdings.items()]
    with one_thread():
        if any(isinstance(layer, nn.Conv2d) for layer in problem.model.modules()):  # one by one is faster for these
            return np.stack([flat(work(problem, task).update) for task in tasks])
        return np.stack([flat(result.update) for result in train_together(problem, tasks)])


@dataclass(frozen=True, eq=False)
class Sightings:
    """All that was watched: P, the mean update of each round, and what the clients really sent."""

    participation: Mask
    """A row for each round, a column for each client."""
    means: Matrix = field(repr=False)
    """A row for each round."""
    truth: Matrix = field(repr=False)
    """For each client the mean of the updates it sent that were aggregated; zeros if there were none."""

    @classmethod
    def of(cls, rounds: Iterable[WatchedRound], clients: int) -> "Sightings":
        """Gather what a window of rounds shows."""
        rows, means, total = [], [], np.zeros((clients, 1))
        for played in rounds:
            rows.append(np.isin(np.arange(clients), played.members))
            means.append(played.mean)
            if len(means) == 1:
                total = np.zeros((clients, played.updates.shape[1]))
            total[played.members] += played.updates
        if not means:
            raise ConfigError("no round revealed anything; fewer clients may be lost, or more rounds played")
        participation = np.array(rows)
        return cls(participation, np.array(means), total / np.maximum(1, participation.sum(0))[:, None])

    @property
    def seen(self) -> Mask:
        """Which clients took part at all."""
        return np.asarray(self.participation.any(0))


def stretch(watch: OnProgress, doing: str, start: float, length: float) -> Callable[[float], None]:
    """Return what is told shares of one thing that is done, itself a share of the whole."""
    return lambda share: watch(doing, start + share * length)


def check_secure_sum(played: WatchedRound) -> float:
    """Play the round as a real session and return how far the mean that it opens is off, relative to the largest entry.

    :class:`~coterie.errors.VerificationError` where that is more than rounding explains.
    """
    opened = secure_mean(list(played.updates), played.number, precision=_PRECISION).mean
    return float(np.abs(opened - played.mean).max() / np.abs(played.updates).max())
