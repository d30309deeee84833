"""The interface that an engine such as Flower provides: a carrier of trips on the server, and deliveries on a node.

An engine connects a server with nodes and runs an app's function on them. Coterie needs only a small part of it. The
server's side (:mod:`~coterie.deployment.aggregator`) sends trips by a :class:`Carrier`. A node's side
(:mod:`~coterie.deployment.reception`) answers a :class:`Delivery`, which contains a :class:`NodeRequest`. Models are
arrays by name, in a fixed order. Data that only the engine understands passes through unchanged.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from numpy.typing import NDArray

from coterie.deployment.displacement import Displacement
from coterie.deployment.reasons import NOTHING, Asked

T = TypeVar("T")

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
"""The arrays of a model by name, in the order in which they were sent."""
Metrics: TypeAlias = Mapping[str, object]
"""The metrics that an app reports beside the model; only numbers can be averaged."""

TRAIN, EVALUATE = "train", "evaluate"
"""Kinds of functions whose replies can be summed: the first returns a model and metrics, the second only metrics."""

HELLO, STEP, SHOW = "hello", "step", "show"
"""Kinds of requests: an introduction, an answer in a session, and a look at models of a confined descent."""


def kind_of(function: str) -> str:
    """Return the kind of an app's function: ``train`` of ``train`` and of ``train.other``."""
    return function.partition(".")[0]


class AppReply(NamedTuple):
    """The result of an app's function."""

    arrays: Arrays
    metrics: Metrics


class Task(NamedTuple):
    """A function of an app to call, with the run and the round."""

    run: int
    function: str
    group: str


@dataclass(frozen=True)
class Assignment:
    """The work of the nodes in a round, as the server's engine describes it."""

    function: str
    content: bytes
    """A name of all records that the app will see; equal names mean equal records."""
    arrays: Arrays
    """The model; empty for a function that returns none."""
    round: int | None = None
    """The engine's number of the round, for logs; None if it has none."""
    share: float = 1.0
    """The share of the nodes that are selected, in whole circles."""
    records: object = None
    """The engine's own representation, which the carrier sends with the request to contribute."""
    complete: "Callable[[Collection[str]], Assignment] | None" = None
    """Makes the assignment of a round once the connected clients are known; None if this assignment is complete."""


@dataclass(frozen=True)
class Trip:
    """One message to each of some nodes."""

    function: str
    group: str
    payloads: Mapping[int, bytes]
    """The protocol's message for each node."""
    seconds: float
    """How long to wait for answers."""
    about: str = ""
    """The round and the step, for the logs of nodes."""
    notice: str = ""
    """Why the last round had no result, for the logs of nodes; empty if it had one."""
    hello: bool = False
    """Whether nodes are asked to introduce themselves (a hello); otherwise it is a step of a session."""
    prekeys: bool = False
    """In a hello: whether nodes are also asked for prekeys."""
    renew: bool = False
    """In a hello: whether nodes are asked to erase their earlier prekeys and make new ones."""
    shows: bool = False
    """Whether nodes only get models of a confined descent, outside a session and without a reply."""
    rosters: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)
    """Rosters that a node has not seen."""
    vouchers: bytes = b""
    """The vouchers of members for their identity keys; empty if no rosters are checked."""
    records: object = None
    """The work of the app, from the :class:`Assignment`; None in all steps except one."""
    asked: Asked = NOTHING


@dataclass(frozen=True)
class TripReply:
    """One node's answer to a trip: a payload, or the reason for its absence."""

    node: int
    payload: bytes = b""
    reason: str = ""
    altered: bool = False
    """Whether the node reports that its request contained records that the server did not send."""


class Carrier(Protocol):
    """The server's connection to its nodes, which are identified by numbers."""

    @property
    def run(self) -> int:
        """The number of this run."""
        ...

    def connected(self) -> Collection[int]:
        """Return the nodes that are connected now."""
        ...

    def authentication_keys(self) -> Mapping[int, bytes]:
        """Return the public keys that nodes authenticate with; none if they are not authenticated."""
        ...

    def send(self, trip: Trip) -> Iterator[TripReply]:
        """Yield one reply for every node of a trip, as they arrive."""
        ...


@dataclass(frozen=True)
class Hello:
    """The request to a node to introduce itself, as it arrived."""

    run: int
    number: int
    """The node's number in this run."""
    run_config: bytes
    """The digest of the run's configuration on this node."""
    prekeys: bool = False
    """Whether the server asks for prekeys."""
    renew: bool = False
    """Whether the server asks for new prekeys in place of all earlier ones."""
    rosters: object = ()
    """Rosters that the server shows, as received and unchecked."""
    vouchers: object = b""


class NodeRequest(ABC):
    """A step of a session as it arrived at a node, with the app's function behind it."""

    task: Task
    created_at: float
    ttl: float
    """The creation time of the request and its lifetime in seconds, by the server's clock."""
    run_config: bytes
    """The digest of the run's configuration on this node."""
    rosters: object = ()
    """Rosters that the server shows, as received and unchecked."""
    vouchers: object = b""
    notice: object = ""
    """The server's remark about the last round, for the log."""

    @abstractmethod
    def identifier(self) -> bytes:
        """Return a digest of the whole request: a request with the same one is the same request."""

    @abstractmethod
    def payload(self) -> bytes:
        """Return the protocol's message; a :class:`~coterie.errors.PeerProtocolError` if it cannot be read."""

    @abstractmethod
    def content(self) -> bytes:
        """Return the name of the records that the app will see, as in :attr:`Assignment.content`."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return the model that the app will see."""

    @abstractmethod
    def configuration(self, varying: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the whole configuration of the app's function, by name, except keys that may vary."""

    def run_configuration(self, varying: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the part of :meth:`configuration` that comes with the run and not with the request; here nothing."""
        return iter(())

    @abstractmethod
    def run_app(self, model: Arrays | None = None) -> AppReply:
        """Run the app's function, on the received model or on another one that is given.

        If it fails, :class:`~coterie.errors.TrainingError` is raised, which quotes no data.
        """

    def displacement(self) -> Displacement | None:
        """Return the public models of a confined descent, the current one last; None if the request has none."""
        return None


class Delivery(ABC, Generic[T]):
    """A message that an engine delivered to a node, and the engine's ways to reply by a value of type ``T``."""

    function: str
    """The app's function that the message is about, such as ``train``."""

    @abstractmethod
    def kind(self) -> str | None:
        """Return :data:`HELLO`, :data:`STEP`, :data:`SHOW` or an unknown kind; None if it does not come from Coterie.

        Raises :class:`~coterie.errors.CoterieError` if it cannot be read.
        """

    @abstractmethod
    def about(self) -> str:
        """Return the server's names of the round and the step, for the log."""

    @abstractmethod
    def hello(self) -> Hello:
        """Return the request to introduce itself."""

    @abstractmethod
    def request(self) -> NodeRequest:
        """Return the step of a session."""

    @abstractmethod
    def pass_on(self) -> T:
        """Let the app answer a message that does not come from Coterie, unprotected."""

    @abstractmethod
    def reply(self, payload: bytes) -> T:
        """Return the engine's reply with an answer."""

    @abstractmethod
    def refuse(self, word: str) -> T:
        """Return the engine's reply with a word of :class:`~coterie.deployment.reasons.Reason`."""
