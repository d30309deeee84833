"""Clients' work over a whole run: what each is to train on, and how its learning rate changes from round to round."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from coterie.cohorts.circles import Indices
from coterie.errors import ConfigError
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD, LocalTask


class Schedule(Protocol):
    """A learning rate that depends on the round, as a factor of the initial one; rounds count from 1."""

    def __call__(self, number: int) -> float:
        """Return the factor in round ``number``."""
        ...


@dataclass(frozen=True)
class Milestones:
    """factor^(how many milestones have been passed); without milestones, a constant learning rate.

    A milestone is a number of rounds, after which the next ones have a smaller rate.
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
    """1 / (1 + decay·t) after t rounds; with such decay federated averaging provably converges (Li et al. 2020)."""

    decay: float

    def __post_init__(self) -> None:
        if not 0 <= self.decay < math.inf:
            raise ConfigError(f"the decay must be a number of at least 0, not {self.decay}")

    def __call__(self, number: int) -> float:
        """Return the factor in round ``number``."""
        return 1 / (1 + self.decay * (number - 1))


@dataclass(frozen=True)
class Cosine:
    """From 1 down towards ``floor`` along half a cosine, over so many rounds; then it stays where the last of them was.

    It would reach ``floor`` after them. With a floor of 0, a run that goes on would learn nothing there.
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
    """Everything about the clients' training that is fixed in advance."""

    clients: Mapping[str, Indices] = field(repr=False)
    """Each client's examples, by their numbers."""
    work: LocalSGD
    """What a client does in a round, at the initial learning rate."""
    seed: int
    """Decides the order of examples, and all else that is random in a client's work."""
    schedule: Schedule = Milestones()

    def __post_init__(self) -> None:
        idle = [client for client, indices in self.clients.items() if indices.size == 0]
        if idle or not self.clients:
            raise ConfigError(f"clients without examples: {', '.join(idle)}" if idle else "there are no clients")

    def task(self, number: int, client: str, state: ModelArrays) -> LocalTask:
        """Return what this client does in round ``number``, starting from the model in this state."""
        return LocalTask(client, number, self.seed, state, self.clients[client], self.at(number))

    def at(self, number: int) -> LocalSGD:
        """Return the work of round ``number``."""
        return replace(self.work, learning_rate=self.work.learning_rate * self.schedule(number))
