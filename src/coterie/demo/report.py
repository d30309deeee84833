"""Settings and results of a demonstration, as plain data for tables, texts, plots and files."""

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
    """Settings. ``dropout`` is the share of all clients that drop out, spread evenly over the steps.

    The seed determines the inputs, their rounding, and which clients drop out when. Secrets never depend on it.
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
        """The steps in which clients send messages. In two trips, a confirmation may be added after many losses."""
        if self.two_trips:
            return (Step.CONTRIBUTE, Step.REVEAL)
        confirm = (Step.CONFIRM,) if self.active else ()
        return (Step.ADVERTISE, Step.SHARE, Step.MASK, *confirm, Step.REVEAL)

    @property
    def leaving(self) -> int:
        """The number of clients that drop out."""
        return round(self.dropout * self.clients)


@dataclass(frozen=True)
class DemoPlan:
    """The communication graph and threshold, with bounds on their failure probabilities.

    The bounds are base-2 logarithms. 0 means no guarantee; ``-inf`` (``null`` in JSON) means that it cannot fail.
    """

    topology: Topology
    degree: float
    """The number of a client's neighbours; for a random graph, its expectation."""
    threshold: int
    collusion: float
    """The share of the clients that may collude with the server."""
    privacy_failure_log2: float = 0.0
    reliability_failure_log2: float = 0.0
    shortcoming: str | None = None
    """The reason why there is no guarantee."""


@dataclass(frozen=True)
class StepView:
    """The state of one step. Bytes and client time are medians over the clients.

    Client time is processor time. In the masking step it includes rounding the input to integers.
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
    """The cost of the session for a typical client and the server, compared with an unprotected sum.

    ``session_ms`` is the time of all parties on one machine. ``plain_upload_bytes`` is the size of the vector as
    float32, ``plain_integer_bytes`` its size rounded to the demonstration's precision but not masked. ``plain_ms`` is
    the time to add the aggregated float32 vectors.
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
    """Measurements on what the server received.

    ``correlation`` is between one client's input and the masked vector received from it. For independent vectors it is
    around ``chance`` = 1 / sqrt(length).
    """

    client: str
    masked_vectors: int
    correlation: float
    chance: float


@dataclass(frozen=True)
class DemoReport:
    """The results of a demonstration."""

    settings: Settings
    plan: DemoPlan
    ring_bits: int
    precision_bits: int
    steps: tuple[StepView, ...]
    aggregated: tuple[str, ...]
    stranded: tuple[str, ...]
    """Survivors that were excluded because a member of their circle dropped out."""
    exact: bool
    mean_error: float
    mean_error_bound: float
    cost: Cost
    view: ServerView
    plot: str | None = None


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors to plot: one client's vector before and after masking, and the mean without and with protection."""

    quantised: npt.NDArray[np.signedinteger[Any]]
    received: RingVector
    plain_mean: npt.NDArray[np.float64]
    decoded_mean: npt.NDArray[np.float64]
