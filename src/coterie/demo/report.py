"""Results of a demonstration, as plain data for tables, texts, plots and files."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arithmetic import RingVector
from coterie.demo.settings import DemoSettings
from coterie.graphs import Topology


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
    """Measurements on the data that the server received.

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

    settings: DemoSettings
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
