"""Settings and findings of a demonstration: plain data that goes into a table, a text, a plot and a file."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arithmetic import RingVector
from coterie.errors import ConfigError
from coterie.graphs import TOPOLOGIES, Complete, Topology
from coterie.secagg import Step
from coterie.secagg.protocols import two_trips_fit

LEAST_LENGTH = 64


@dataclass(frozen=True)
class Settings:
    """What to run; ``dropout`` is the share of all clients that leave, spread evenly over the steps.

    The seed decides the inputs, how they are rounded and who drops out when; it never makes a secret.
    """

    clients: int = 100
    length: int = 100_000
    dropout: float = 0.1
    topology: str = "harary"
    active: bool = False
    circle_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.clients < 3:
            raise ConfigError(f"a demonstration needs at least 3 clients, not {self.clients}")
        if self.length < LEAST_LENGTH:
            raise ConfigError(f"a fingerprint needs at least {LEAST_LENGTH} pixels, not {self.length}")
        if not 0 <= self.dropout <= 1:
            raise ConfigError(f"the dropout is a share of the clients, from 0 to 1, not {self.dropout}")
        if self.circle_size is not None and not 2 <= self.circle_size <= self.clients:
            raise ConfigError(f"a circle has from 2 to {self.clients} clients, not {self.circle_size}")
        if self.seed < 0:
            raise ConfigError(f"a seed is 0 or more, not {self.seed}")

    @property
    def two_trips(self) -> bool:
        """Whether the session takes two trips: on the complete graph, while that is cheap enough."""
        kind = TOPOLOGIES.get(self.topology)
        return kind is not None and kind.complete and two_trips_fit(self.clients, self.circle_size or 1, Complete())

    @property
    def masking(self) -> Step:
        """The step in which clients send their masked vectors."""
        return Step.CONTRIBUTE if self.two_trips else Step.MASK

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in which clients speak; in two trips, without the confirmation that many losses call for."""
        if self.two_trips:
            return (Step.CONTRIBUTE, Step.REVEAL)
        confirm = (Step.CONFIRM,) if self.active else ()
        return (Step.ADVERTISE, Step.SHARE, Step.MASK, *confirm, Step.REVEAL)

    @property
    def leaving(self) -> int:
        """How many clients drop out in all."""
        return round(self.dropout * self.clients)


@dataclass(frozen=True)
class DemoPlan:
    """Who shares with whom, and how rarely that is proven to fail.

    The bounds are base-2 logarithms: 0 promises nothing, and ``-inf``, ``null`` in JSON, means that it cannot fail.
    """

    topology: Topology
    degree: float
    """The number of a client's neighbours; on a random graph, its expectation."""
    threshold: int
    collusion: float
    """The share of the clients that may help the server."""
    privacy_failure_log2: float = 0.0
    reliability_failure_log2: float = 0.0
    shortcoming: str | None = None
    """Why nothing is promised."""


@dataclass(frozen=True)
class StepView:
    """One step as far as it has come. Bytes and client time are medians over the clients.

    Client time is processor time; in the masking step it includes rounding the input to integers.
    """

    step: str
    asked: int = 0
    answered: int = 0
    left: int = 0
    dropped: tuple[str, ...] = ()
    upload_bytes: int = 0
    download_bytes: int = 0
    client_ms: float = 0.0
    server_ms: float = 0.0
    done: bool = False


@dataclass(frozen=True)
class Cost:
    """What the session cost a typical client and the server, beside summing without protection.

    ``session_ms`` is for everybody, played on one machine. ``plain_upload_bytes`` is the vector as float32,
    ``plain_integer_bytes`` the same rounded to the demonstration's precision but not masked, ``plain_ms`` the time
    to add the aggregated float32 vectors up.
    """

    upload_bytes: int
    download_bytes: int
    client_ms: float
    server_ms: float
    session_ms: float
    plain_upload_bytes: int
    plain_integer_bytes: int
    plain_ms: float


@dataclass(frozen=True)
class ServerView:
    """What the server received of its clients' vectors, in numbers.

    ``correlation`` is between one client's input and what was received in its place; for vectors that have nothing
    to do with each other it is around ``chance``, 1 / sqrt(length).
    """

    client: str
    masked_vectors: int
    correlation: float
    chance: float


@dataclass(frozen=True)
class DemoReport:
    """Everything the demonstration shows."""

    settings: Settings
    plan: DemoPlan
    ring_bits: int
    precision_bits: int
    steps: tuple[StepView, ...]
    aggregated: tuple[str, ...]
    stranded: tuple[str, ...]
    """Survivors left out because one of their circle had dropped out."""
    exact: bool
    mean_error: float
    mean_error_bound: float
    cost: Cost
    view: ServerView
    plot: str | None = None


@dataclass(frozen=True, eq=False)
class Vectors:
    """What is plotted: one client's vector before and after masking, and the mean without and with protection."""

    quantised: npt.NDArray[np.signedinteger[Any]]
    received: RingVector
    plain_mean: npt.NDArray[np.float64]
    decoded_mean: npt.NDArray[np.float64]
