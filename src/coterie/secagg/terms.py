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
from coterie.graphs.topology import Complete, Graph, Topology, build

MOST_CLIENTS = PRIME - 1
LEAST_SESSION_BYTES = 16


class ThreatMode(enum.StrEnum):
    """Against whom the session protects its clients."""

    HONEST_BUT_CURIOUS = "honest-but-curious"
    """The server follows the protocol and tries to learn from what it sees."""
    ACTIVE_SERVER = "active-server"
    """The server may lie; clients sign their keys and the survivor set, and check each other's signatures."""


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True, kw_only=True):
    """The terms of one session of secure aggregation.

    A client is named by ``clients`` and, on the wire, numbered by its position there. All parties must hold equal
    terms: whoever holds others derives other keys and is refused.
    """

    session: bytes
    """Random bytes that no other session of these clients has used."""
    clients: tuple[str, ...]
    bits: int
    """Ring elements are integers modulo ``2 ** bits``."""
    length: int
    """Number of ring elements in every input."""
    topology: Topology = Complete()
    threshold: int | None = None
    """Shares that open a client's secret; ``None`` takes a strict majority of each client's share holders."""
    batches: tuple[int, ...] | None = None
    """A batch number for each client; with it, only complete batches are aggregated."""
    minimum: int = 2
    """The fewest clients that may ever be aggregated."""
    mode: ThreatMode = ThreatMode.HONEST_BUT_CURIOUS
    identities: tuple[bytes, ...] = ()
    """The clients' Ed25519 public keys, in order; required against an active server."""
    roster: bytes = b""
    """The digest of the roster that batches and identities were taken from, for clients that pin theirs."""

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
        if self.batches is not None and len(self.batches) != size:
            raise ConfigError("a batch map gives one batch number for each client")
        if self.mode is ThreatMode.ACTIVE_SERVER and (
            len(set(self.identities)) != size or any(len(key) != IDENTITY_BYTES for key in self.identities)
        ):
            raise ConfigError("against an active server every client needs its own 32-byte identity key")

    def __repr__(self) -> str:
        return f"<Terms of session {self.session.hex()[:8]}: {len(self.clients)} clients, {self.mode}>"

    def to_bytes(self) -> bytes:
        """Encode the terms for the invitation."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> "Terms":
        """Read what :meth:`to_bytes` wrote, and check it; :class:`ConfigError` where it cannot be terms.

        The last few are remembered: in one process many clients are invited to the same session.
        """
        return _read(bytes(data))

    @property
    def active(self) -> bool:
        """Whether the server is taken for an active adversary."""
        return self.mode is ThreatMode.ACTIVE_SERVER

    @property
    def ring(self) -> Ring:
        """The ring the inputs live in."""
        return Ring(self.bits)

    @cached_property
    def digest(self) -> bytes:
        """A collision-resistant name for exactly these terms."""
        return digest(bind("terms", self.to_bytes()))

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each client."""
        return {name: number for number, name in enumerate(self.clients)}

    @property
    def quorum(self) -> int:
        """Signatures on one survivor set that clients ask for: a strict majority of the roster.

        An honest client signs one set, so two different sets cannot both be signed by a majority of the roster
        unless clients collude with the server. It is a majority of *all*, not of each client's neighbours: on a
        sparse graph a lying server could otherwise show one set to one region and another to the next.
        """
        return len(self.clients) // 2 + 1

    def threshold_for(self, shares: int) -> int:
        """Shares needed to open the secret of a client that dealt ``shares`` of them."""
        return shares // 2 + 1 if self.threshold is None else self.threshold

    def graph(self, seed: bytes) -> Graph:
        """The assignment graph that everybody computes from the same seed."""
        return build(self.topology, len(self.clients), seed)

    def aggregated(self, survivors: Collection[int]) -> frozenset[int]:
        """The clients to aggregate: all survivors, or those whose whole batch survived.

        A batch is summed whole or not at all. The survivors of a broken batch are treated as dropped, so that
        the set of sums over many rounds never separates batch mates.
        """
        kept = frozenset(survivors)
        if self.batches is None:
            return kept
        broken = {batch for client, batch in enumerate(self.batches) if client not in kept}
        return frozenset(client for client in kept if self.batches[client] not in broken)


@lru_cache(maxsize=4)
def _read(data: bytes) -> Terms:
    try:
        return msgspec.msgpack.decode(data, type=Terms)
    except (ValueError, RecursionError) as error:  # includes what __post_init__ raises
        raise ConfigError(f"these are no terms of a session: {error}") from None
