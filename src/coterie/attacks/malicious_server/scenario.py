"""The scenario of a lie (clients, terms, inputs), the lie, and its results, compared with guessing."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.arithmetic.ring import Ring, RingVector
from coterie.attacks.malicious_server.server import LyingServer, simulated_identity
from coterie.attacks.malicious_server.variants import VaryingServer
from coterie.cohorts.circles import circle_sizes
from coterie.crypto.context import bind, digest
from coterie.errors import CoterieError
from coterie.reports.findings import Effect
from coterie.secagg import Terms, ThreatMode

VICTIM = 0
"""The victim of the lies, unless a lie needs another position."""
Picture: TypeAlias = npt.NDArray[np.floating[Any]]
"""Height x width, or x 3 with colours, from 0 to 1."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """The clients that the server lies to: how their sessions are configured, and their inputs."""

    active: bool
    """Whether clients expect a malicious server."""
    privacy: int
    """T, the size of a circle; 1 is no circles."""
    clients: int
    """The number of clients of a session, unless a lie needs fewer; the server chooses whom it invites."""
    colluders: int
    ring: Ring
    inputs: Sequence[RingVector] = field(repr=False)
    """The clients' private vectors, by number."""
    seed: int
    data: str = "digits"
    """The examples that clients train on in a round of training."""
    data_dir: Path | str | None = None
    variation: np.random.Generator | None = field(default=None, repr=False)
    """If given, every message of the server is varied by it."""

    def circles(self, size: int) -> tuple[int, ...] | None:
        """Return the circle of each client; None without circles."""
        if self.privacy == 1:
            return None
        sizes = circle_sizes(size, self.privacy)
        return tuple(np.repeat(np.arange(sizes.size), sizes).tolist())

    def terms(self, purpose: str, size: int, **changes: Any) -> Terms:  # noqa: ANN401  (any of the terms)
        """Return the terms of a session with the first ``size`` clients."""
        names = tuple(f"client-{number:02}" for number in range(size))
        terms = Terms(
            session=digest(bind("demonstration", purpose.encode(), self.seed)),
            clients=names,
            bits=self.ring.bits,
            length=self.inputs[0].size,
            circles=self.circles(size),
            mode=ThreatMode.ACTIVE_SERVER if self.active else ThreatMode.HONEST_BUT_CURIOUS,
            colluders=min(self.colluders, size - 2) if self.active else None,
            identities=tuple(simulated_identity(name).public for name in names) if self.active else (),
        )
        return msgspec.structs.replace(terms, **changes)

    def open(self, purpose: str, size: int | None = None, colluders: Collection[int] | None = None) -> LyingServer:
        """Open a session in which the server may send anything; by default the last clients collude."""
        size = size or self.clients
        chosen = range(size - self.colluders, size) if colluders is None else colluders
        terms, inputs = self.terms(purpose, size), dict(enumerate(self.inputs))
        return (
            VaryingServer(terms, chosen, inputs, self.variation)
            if self.variation
            else LyingServer(terms, chosen, inputs)
        )


@dataclass(frozen=True, eq=False)
class Attempt:
    """The result of a lie: the victim's input, and the best estimate from everything that the server holds."""

    ring: Ring
    planted: RingVector = field(repr=False)
    recovered: RingVector | None = field(default=None, repr=False)
    """None if the server holds no data of the victim, not even a masked input."""
    among: int = 1
    """The number of clients whose sum the recovered vector is; 1 if it should be the victim's input."""
    refusals: Sequence[str] = ()
    """The reasons for which clients refused, each once."""
    impossible: str = ""
    """Why the lie cannot be tried in this configuration."""
    servers: Sequence[LyingServer] = field(default=(), repr=False)
    pictures: tuple[Picture, Picture | None] | None = field(default=None, repr=False)
    """Pictures of the input and of the recovered vector, if the vectors themselves are not pictures."""

    @property
    def exact(self) -> bool:
        """Whether the server has the input exactly."""
        return self.recovered is not None and self.among == 1 and bool((self.recovered == self.planted).all())

    @property
    def resemblance(self) -> float:
        """The absolute correlation of the recovered vector with the input; 0 if nothing was recovered."""
        return 0.0 if self.recovered is None else correlation(self.ring, self.planted, self.recovered)


Play: TypeAlias = Callable[[Scenario, bool], Attempt]
"""Plays a lie, without the rule against it or with it (``defended``)."""


@dataclass(frozen=True)
class Lie:
    """One lie, and the rule against it."""

    name: str
    title: str
    action: str
    """What the server does."""
    rule: str
    """What clients do against it."""
    play: Play = field(repr=False)


def correlation(ring: Ring, one: RingVector, other: RingVector) -> float:
    """Return the absolute correlation of the integers that two ring vectors represent."""
    if not (np.ptp(one) and np.ptp(other)):
        return 0.0
    return float(abs(np.corrcoef(ring.lift(one), ring.lift(other))[0, 1]))


def words(errors: Iterable[CoterieError]) -> tuple[str, ...]:
    """Return the reasons of refusals, each once, in order."""
    return tuple(dict.fromkeys(str(error) for error in errors))


def as_picture(values: npt.NDArray[Any]) -> Picture:
    """Return an example, channels x height x width, as a picture of one channel or three."""
    pixels = np.asarray(values, np.float64)
    low, high = (0.0, 1.0) if pixels.min() >= 0 and pixels.max() <= 1 else (pixels.min(), pixels.max())
    return np.moveaxis((pixels - low) / (high - low), 0, -1).squeeze()


GUESSES = 1999
"""The number of random guesses that results are compared with."""
SIGNIFICANT = 0.001


@dataclass(frozen=True)
class Variation:
    """The result of a lie in a version that was varied at random."""

    baseline: bool
    """Whether the varied lie still obtained the victim's input without the rule."""
    broken: bool
    """Whether the varied lie obtained anything forbidden with all rules."""
    asked: int
    """The number of messages to honest clients, with all rules."""


@dataclass(frozen=True, eq=False)
class LieResult:
    """The results of one lie over all victims."""

    lie: Lie
    without: Sequence[Attempt]
    """Without the rule against it, one for each victim."""
    against: Sequence[Attempt]
    """The results with the rule."""
    varied: Sequence[Variation]
    chance: float
    """The share of random guesses that resemble the victims' inputs as much as the vector recovered with the rule."""

    @property
    def impossible(self) -> str:
        """Why the lie cannot be tried here; empty if it can."""
        return self.without[0].impossible

    @property
    def worked(self) -> int:
        """The number of inputs that were obtained without the rule."""
        return sum(attempt.exact for attempt in self.without)

    @property
    def obtained(self) -> int:
        """The number of inputs that were obtained with the rule."""
        return sum(attempt.exact for attempt in self.against)

    @property
    def broken(self) -> int:
        """The number of varied versions that obtained something that they must not, with the rule."""
        return sum(each.broken for each in self.varied)

    @property
    def outcome(self) -> Effect:
        """The effect of the rule on the lie."""
        if self.obtained or self.broken:
            return Effect.NOT_ELIMINATED
        return Effect.REDUCED if self.chance < SIGNIFICANT else Effect.ELIMINATED

    @property
    def refusals(self) -> Sequence[str]:
        """The reasons for which clients refused with the rule, each once."""
        return tuple(dict.fromkeys(reason for attempt in self.against for reason in attempt.refusals))


def resemblance(attempts: Sequence[Attempt]) -> float:
    """Return the mean resemblance of the recovered vectors and the inputs."""
    return float(np.mean([attempt.resemblance for attempt in attempts]))


def chance_of(attempts: Sequence[Attempt], rng: np.random.Generator) -> float:
    """Return the p-value of the recovered vectors: the share of random vectors that resemble the inputs as much."""
    held = [attempt for attempt in attempts if attempt.recovered is not None]
    if not held:
        return 1.0
    guessed = np.mean([_guesses(attempt, rng) for attempt in held], axis=0)
    return float(1 + np.count_nonzero(guessed >= resemblance(held))) / (1 + GUESSES)


def _guesses(attempt: Attempt, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return the resemblance of many random guesses with an input."""
    ring, planted = attempt.ring, attempt.planted
    guesses = ring.lift(rng.integers(0, ring.modulus, (GUESSES, planted.size), ring.dtype)).astype(np.float64)
    guesses -= guesses.mean(axis=1, keepdims=True)
    truth = ring.lift(planted) - ring.lift(planted).mean()
    return np.asarray(np.abs(guesses @ truth) / (np.linalg.norm(guesses, axis=1) * np.linalg.norm(truth)))
