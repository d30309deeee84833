"""Everything the parties agree on before a session; its digest is bound into every key and signature."""

import enum
from collections.abc import Collection
from functools import cached_property, lru_cache

import msgspec

from coterie.arithmetic.ring import Ring
from coterie.crypto.context import bind, digest
from coterie.crypto.shamir import PRIME
from coterie.crypto.signing import IDENTITY_BYTES
from coterie.errors import ConfigError
from coterie.graphs.guarantees import majority_threshold, quorum_of
from coterie.graphs.table import is_complete, read_topology, topology_name
from coterie.graphs.topology import Complete, Graph, Topology, build
from coterie.secagg.circles import CircleMap
from coterie.secagg.members import Members

MOST_CLIENTS = PRIME - 1
LEAST_SESSION_BYTES = 16


class ThreatMode(enum.StrEnum):
    """The adversary that the session protects its clients from."""

    HONEST_BUT_CURIOUS = "honest-but-curious"
    """The server follows the protocol and tries to learn from what it sees."""
    ACTIVE_SERVER = "active-server"
    """The server may lie, and clients may collude with it. Clients sign their messages and check each other's."""


def default_colluders(clients: int) -> int:
    """Return the default number of colluders that a session on the complete graph withstands: just under a third."""
    return (clients - 1) // 3


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True, kw_only=True):
    """The terms of one session of secure aggregation.

    A client is named by ``clients`` and, on the wire, numbered by its position there. All parties must have the same
    terms: a party with other terms derives other keys, and is refused.
    """

    session: bytes
    """Random bytes that no other session of these clients has used."""
    clients: tuple[str, ...]
    """The names of all clients that may take part; no other client can join later."""
    bits: int
    """Ring elements are integers modulo ``2 ** bits``."""
    length: int
    """Number of ring elements in every input."""
    topology: Topology = Complete()
    """The graph: neighbours agree on masks and hold each other's shares."""
    threshold: int | None = None
    """The number of shares that reconstruct a client's secret; ``None``: the safe value of :meth:`threshold_for`."""
    circles: tuple[int, ...] | None = None
    """A circle number for each client; with it, only whole circles are aggregated."""
    minimum: int = 2
    """The fewest clients that may ever be aggregated; :attr:`fewest` may be more."""
    mode: ThreatMode = ThreatMode.HONEST_BUT_CURIOUS
    """The adversary that the session protects its clients from."""
    colluders: int | None = None
    """The most clients that may collude with a malicious server; ``None``: ``(n - 1) // 3`` on the complete graph.

    On a sparse graph, give the number that degree and threshold were planned for.
    """
    identities: tuple[bytes, ...] = ()
    """The clients' Ed25519 public keys, in order; required against an active server."""
    roster: bytes = b""
    """The digest of the roster that circles and identities were taken from, for clients that pin theirs."""
    content: bytes = b""
    """A digest of what the clients work on, such as a model; a :class:`~coterie.rounds.Member` that knows its own
    compares them."""

    def __post_init__(self) -> None:
        size = len(self.clients)
        if len(self.session) < LEAST_SESSION_BYTES:
            raise ConfigError(f"a session is named by at least {LEAST_SESSION_BYTES} random bytes")
        if not 2 <= size <= MOST_CLIENTS:
            raise ConfigError(f"a session has between 2 and {MOST_CLIENTS} clients, not {size}")
        if len(set(self.clients)) != size:
            raise ConfigError("client names must be distinct")
        Ring(self.bits)
        if self.length < 1:
            raise ConfigError("the vectors of a session have at least one entry")
        if self.threshold is not None and self.threshold < 1:
            raise ConfigError("a threshold is at least 1")
        if not 2 <= self.minimum <= size:
            raise ConfigError(f"the minimum of aggregated clients lies between 2 and {size}, not {self.minimum}")
        if self.circles is not None and len(self.circles) != size:
            raise ConfigError("a circle map gives one circle number for each client")
        topology_name(self.topology)
        if self.active:
            self._check_active()

    def _check_active(self) -> None:
        size, complete = len(self.clients), is_complete(self.topology, len(self.clients))
        distinct = len(set(self.identities)) == len(self.identities) == size
        if not distinct or set(map(len, self.identities)) != {IDENTITY_BYTES}:
            raise ConfigError("against an active server every client needs its own 32-byte identity key")
        if self.colluders is None and not complete:
            raise ConfigError("against an active server a sparse graph is planned for a number of colluders: give it")
        if not 0 <= self.tolerated <= size - 2:
            raise ConfigError(
                f"of {size} clients between 0 and {size - 2} may collude, not {self.tolerated}: "
                "a sum hides no client unless two honest ones are in it"
            )
        if complete and self.threshold is not None and self.threshold <= self.tolerated:
            raise ConfigError(
                f"{self.tolerated} colluders hold as many shares of everybody's secrets; "
                f"a threshold of {self.threshold} must be above that"
            )

    def __repr__(self) -> str:
        return f"<Terms of session {self.session.hex()[:8]}: {len(self.clients)} clients, {self.mode}>"

    def to_bytes(self) -> bytes:
        """Encode the terms for the invitation."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> "Terms":
        """Read and check the output of :meth:`to_bytes`; :class:`ConfigError` if it is not valid terms.

        The last few are cached, because in one process many clients are invited to the same session.
        """
        return _read(bytes(data))

    @property
    def active(self) -> bool:
        """Whether the server may be malicious."""
        return self.mode is ThreatMode.ACTIVE_SERVER

    @property
    def ring(self) -> Ring:
        """The ring of the inputs."""
        return Ring(self.bits)

    @cached_property
    def digest(self) -> bytes:
        """A collision-resistant digest of exactly these terms."""
        return digest(bind("terms", self.to_bytes()))

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each client."""
        return dict(zip(self.clients, range(len(self.clients)), strict=True))

    @property
    def tolerated(self) -> int:
        """The colluders ``c`` that the session withstands beside an active server; 0 in the other mode."""
        if not self.active:
            return 0
        return default_colluders(len(self.clients)) if self.colluders is None else self.colluders

    @property
    def quorum(self) -> int:
        """The signatures on one survivor set that clients require: the least ``q`` with ``2 q > n + c``.

        It is a quorum of *all* clients, not of each client's neighbours. Otherwise, on a sparse graph, a malicious
        server could show different sets to different regions.
        """
        return quorum_of(len(self.clients), self.tolerated)

    @property
    def fewest(self) -> int:
        """The fewest clients that can be aggregated: ``minimum``, and enough for two honest ones.

        Against an active server, on the complete graph, ``c + 2`` aggregated clients include two honest ones. On a
        sparse graph :func:`coterie.secagg.rules.check_company` checks the neighbours of every aggregated client.
        """
        complete = self.active and is_complete(self.topology, len(self.clients))
        return max(self.minimum, self.tolerated + 2) if complete else self.minimum

    def threshold_for(self, shares: int) -> int:
        """Return the number of shares needed to open a secret of a client that dealt ``shares`` of them.

        By default, it is a strict majority, and more than the number of shares that colluders can hold.
        """
        if self.threshold is not None:
            return self.threshold
        return max(majority_threshold(shares), min(self.tolerated, shares - 1) + 1)

    def graph(self, seed: bytes) -> Graph:
        """Return the assignment graph, which all parties compute from the same seed."""
        return build(self.topology, len(self.clients), seed)

    def circle_of(self, client: int) -> int:
        """Return the circle of this client; without circles, all clients are in circle 0, which may lose members."""
        return 0 if self.circles is None else self.circles[client]

    def summed(self, survivors: Members) -> Members:
        """Return the clients to aggregate: all survivors or, with circles, those whose whole circle survived.

        A circle is summed whole or not at all. The survivors of a broken circle are treated as dropped, so that
        the set of sums over many rounds never separates those of one circle.
        """
        if self.circles is None:
            return survivors
        return Members.flagged(self._circle_map.whole(survivors.flags))

    def aggregated(self, survivors: Collection[int]) -> frozenset[int]:
        """Return the same as :meth:`summed`, for any collection of survivors."""
        return frozenset(self.summed(Members.of(survivors, len(self.clients))))

    @cached_property
    def _circle_map(self) -> CircleMap:
        return CircleMap(self.circles or ())


@lru_cache(maxsize=4)
def _read(data: bytes) -> Terms:
    try:
        return msgspec.msgpack.decode(data, type=Terms, dec_hook=read_topology)
    except (ValueError, RecursionError) as error:  # includes what __post_init__ raises
        raise ConfigError(f"not the terms of a session: {error}") from None
