"""What an engine such as Flower has to provide: a carrier of trips on the server, and deliveries on a node.

An engine connects a server with nodes and runs an app's function on them. Coterie needs little of it. The server's half
(:mod:`~coterie.deployment.aggregator`) sends trips by a :class:`Carrier`; a node's half
(:mod:`~coterie.deployment.reception`) answers a :class:`Delivery`, which has a :class:`NodeRequest` in it. Models are
arrays by name, in one order, and everything that only the engine understands passes through as it is.
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
"""What an app reports beside the model; only numbers can be averaged."""

TRAIN, EVALUATE = "train", "evaluate"
"""Kinds of functions whose replies can be summed: the first returns a model and metrics, the second metrics alone."""


HELLO, STEP, SHOW = "hello", "step", "show"
"""Kinds of requests: who a node is, its answer in a session, and a look at models of a confined descent."""


def kind_of(function: str) -> str:
    """Return the kind of an app's function: ``train`` of ``train`` and of ``train.other``."""
    return function.partition(".")[0]


class AppReply(NamedTuple):
    """What an app's function returned."""

    arrays: Arrays
    metrics: Metrics


class Task(NamedTuple):
    """Which function of an app is to run, in which run and for which round."""

    run: int
    function: str
    group: str


@dataclass(frozen=True)
class Assignment:
    """What the nodes of a round are to work on, as the server's engine describes it."""

    function: str
    content: bytes
    """A name of all records that the app will see: equal names, equal records."""
    arrays: Arrays
    """The model; empty for a function that returns none."""
    round: int | None = None
    """The engine's number of the round, for logs; None if it has none."""
    share: float = 1.0
    """The share of the nodes that are asked to take part, in whole circles."""
    records: object = None
    """The engine's own form of it, which the carrier sends along with the request to contribute."""
    complete: "Callable[[Collection[str]], Assignment] | None" = None
    """Makes the assignment of a round, once it is known which clients are there; None if this one is complete."""


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
    """Whether nodes are asked who they are; otherwise it is a step of a session."""
    prekeys: bool = False
    """In a hello: whether nodes are asked for prekeys, too."""
    renew: bool = False
    """In a hello: whether nodes are asked to erase their earlier prekeys and make new ones."""
    shows: bool = False
    """Whether nodes are only shown models of a confined descent, outside a session and without a reply."""
    rosters: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)
    """Rosters that a node has not seen."""
    vouchers: bytes = b""
    """What members sign for each other's identity keys; empty where no rosters are checked."""
    records: object = None
    """What the app is to work on, from the :class:`Assignment`; None in all steps but one."""
    asked: Asked = NOTHING


@dataclass(frozen=True)
class TripReply:
    """One node's answer to a trip: a payload, or the reason why there is none."""

    node: int
    payload: bytes = b""
    reason: str = ""
    altered: bool = False
    """Whether the node says that its request arrived with records which the server did not send."""


class Carrier(Protocol):
    """The server's connection to its nodes, which have numbers."""

    @property
    def run(self) -> int:
        """The number of this run."""
        ...

    def connected(self) -> Collection[int]:
        """Return the nodes that are connected now."""
        ...

    def authentication_keys(self) -> Mapping[int, bytes]:
        """Return the public keys that nodes are authenticated by; none where they are not."""
        ...

    def send(self, trip: Trip) -> Iterator[TripReply]:
        """Yield one reply for every node of a trip, as they arrive."""
        ...


@dataclass(frozen=True)
class Hello:
    """The question who a node is, as it arrived there."""

    run: int
    number: int
    """The node's number in this run."""
    run_config: bytes
    """The digest of the run's configuration on this node."""
    prekeys: bool = False
    """Whether the server asks for prekeys."""
    renew: bool = False
    """Whether it asks for new ones in place of all earlier ones."""
    rosters: object = ()
    """Rosters that the server shows, as they arrived; nothing is known about them yet."""
    vouchers: object = b""


class NodeRequest(ABC):
    """A step of a session as it arrived at a node, with the app's function behind it."""

    task: Task
    created_at: float
    ttl: float
    """When the request was made and how many seconds it lives, by the server's clock."""
    run_config: bytes
    """The digest of the run's configuration on this node."""
    rosters: object = ()
    """Rosters that the server shows, as they arrived; nothing is known about them yet."""
    vouchers: object = b""
    notice: object = ""
    """What the server says about the last round, for the log."""

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
        """Yield all that configures the app's function, by name, except for keys that may vary."""

    def run_configuration(self, varying: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the part of :meth:`configuration` that comes with the run and not with the request; here nothing."""
        return iter(())

    @abstractmethod
    def run_app(self, model: Arrays | None = None) -> AppReply:
        """Run the app's function, on another model than the one that arrived if one is given.

        A :class:`~coterie.errors.TrainingError` says that it failed, without quoting data.
        """

    def displacement(self) -> Displacement | None:
        """Return the public models of a confined descent, the one that arrived last; None if none were shown."""
        return None


class Delivery(ABC, Generic[T]):
    """What an engine delivered to a node, and how the engine replies: ``T`` is the type of its replies."""

    function: str
    """The app's function that it is about, such as ``train``."""

    @abstractmethod
    def kind(self) -> str | None:
        """Return :data:`HELLO`, :data:`STEP`, :data:`SHOW` or an unknown kind; None if it does not come from Coterie.

        A :class:`~coterie.errors.CoterieError` says that it cannot be read.
        """

    @abstractmethod
    def about(self) -> str:
        """Return the server's words for the round and the step, for the log."""

    @abstractmethod
    def hello(self) -> Hello:
        """Return the question who the node is."""

    @abstractmethod
    def request(self) -> NodeRequest:
        """Return the step of a session."""

    @abstractmethod
    def pass_on(self) -> T:
        """Let the app answer what does not come from Coterie, unprotected."""

    @abstractmethod
    def reply(self, payload: bytes) -> T:
        """Make the engine's reply of an answer."""

    @abstractmethod
    def refuse(self, word: str) -> T:
        """Make the engine's reply of a word of :class:`~coterie.deployment.reasons.Reason`."""
