"""Training of all clients over a whole run: their examples, their work and its learning-rate schedule."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from coterie.cohorts.circles import Indices
from coterie.errors import ConfigError
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD, LocalTask


class Schedule(Protocol):
    """A learning-rate schedule: the factor of the initial rate in each round. Rounds count from 1."""

    def __call__(self, number: int) -> float:
        """Return the factor in round ``number``."""
        ...


@dataclass(frozen=True)
class Milestones:
    """factor^(number of milestones passed). Without milestones, the learning rate is constant.

    A milestone is a number of rounds; the rounds after it have the next learning rate.
    """

    rounds: tuple[int, ...] = ()
    factor: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise ConfigError(f"the factor of a milestone must be a positive number, not {self.factor}")

    def __call__(self, number: int) -> float:
        """Return the factor in round ``number``."""
        return float(self.factor ** sum(number > milestone for milestone in self.rounds))


@dataclass(frozen=True)
class Inverse:
    """1 / (1 + decay·t) after t rounds. With such a decay, federated averaging converges (Li et al. 2020)."""

    decay: float

    def __post_init__(self) -> None:
        if not 0 <= self.decay < math.inf:
            raise ConfigError(f"the decay must be a number of at least 0, not {self.decay}")

    def __call__(self, number: int) -> float:
        """Return the factor in round ``number``."""
        return 1 / (1 + self.decay * (number - 1))


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 towards ``floor`` over ``rounds`` rounds; later rounds keep the last value.

    The cosine reaches ``floor`` only after the last round. Otherwise, with a floor of 0, a continued run would have
    learning rate 0.
    """

    rounds: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.rounds < 1 or not 0 <= self.floor <= 1:
            raise ConfigError(f"a cosine from 1 to {self.floor} over {self.rounds} rounds is impossible")

    def __call__(self, number: int) -> float:
        """Return the factor in round ``number``."""
        progress = (min(number, self.rounds) - 1) / self.rounds
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True, eq=False)
class Curriculum:
    """The settings of the clients' training that are fixed for a run."""

    clients: Mapping[str, Indices] = field(repr=False)
    """The indices of each client's examples."""
    work: LocalSGD
    """A client's work in a round, at the initial learning rate."""
    seed: int
    """The seed of the order of examples and of all other randomness in a client's work."""
    schedule: Schedule = Milestones()

    def __post_init__(self) -> None:
        idle = [client for client, indices in self.clients.items() if indices.size == 0]
        if idle or not self.clients:
            raise ConfigError(f"clients without examples: {', '.join(idle)}" if idle else "there are no clients")

    def task(self, number: int, client: str, state: ModelArrays) -> LocalTask:
        """Return the task of this client in round ``number``, starting from the model in this state."""
        return LocalTask(client, number, self.seed, state, self.clients[client], self.at(number))

    def at(self, number: int) -> LocalSGD:
        """Return the work of round ``number``, with its learning rate."""
        return replace(self.work, learning_rate=self.work.learning_rate * self.schedule(number))
