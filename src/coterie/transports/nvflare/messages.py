"""Coterie's messages over NVFlare, as bytes: requests to a node, answers of a node, and the work of an app.

NVFlare sends dictionaries of many kinds of objects. Coterie puts one value into them: the bytes of a type that is
declared here. So both sides identify the work of an app by a digest of the same bytes, and a filter cannot change a
single entry of it.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from coterie.deployment.array_bytes import pack_arrays, unpack_arrays
from coterie.deployment.engine import Arrays
from coterie.errors import ConfigError, PeerProtocolError
from coterie.secagg.messages import SERVER

S = TypeVar("S", bound=msgspec.Struct)

TASK = "coterie"
"""The name of Coterie's tasks in NVFlare, for every task of the app."""
KEY = "coterie"
"""The key of Coterie's bytes in a task's data and in its result."""


class NodeMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request of the server to a node."""

    kind: str
    run: int
    function: str
    group: str
    created_at: float
    seconds: float
    """The creation time, and how long the server waits, by the server's clock."""
    payload: bytes = b""
    work: bytes = b""
    """An encoded :class:`Work`; empty in steps that do not need the app."""
    about: str = ""
    notice: str = ""
    prekeys: bool = False
    renew: bool = False
    rosters: tuple[bytes, ...] = ()
    vouchers: bytes = b""

    def __repr__(self) -> str:
        return f"<NodeMessage {self.kind}>"


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The answer of a node: a payload, or a word of :class:`~coterie.deployment.reasons.Reason`."""

    payload: bytes = b""
    refusal: str | None = None

    def __repr__(self) -> str:
        return "<Answer>"


class Rounds(NamedTuple):
    """The numbers of rounds in an ``FLModel``; each is None if NVFlare has none."""

    start: int | None = None
    current: int | None = None
    total: int | None = None


class Work(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The work of an app: the content of an ``FLModel``."""

    model: bytes
    """The arrays, as :func:`~coterie.deployment.array_bytes.pack_arrays` makes them."""
    meta: bytes = b"{}"
    """The entries of ``FLModel.meta`` as JSON, in their order."""
    rounds: Rounds = Rounds()

    @classmethod
    def of(cls, arrays: Arrays, meta: dict[str, Any], rounds: Rounds) -> "Work":
        """Describe the work on a model."""
        try:
            encoded = msgspec.json.encode(meta)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"FLModel.meta has an entry that cannot be sent to nodes as JSON: {error}") from None
        return cls(pack_arrays(arrays), encoded, rounds)

    def arrays(self) -> Arrays:
        """Return the model."""
        return unpack_arrays(self.model)

    @property
    def start(self) -> int:
        """The number of the first round. None is 0, so that an app cannot tell them apart."""
        return self.rounds.start or 0

    def entries(self) -> dict[str, Any]:
        """Return the entries of ``FLModel.meta``."""
        try:
            return msgspec.json.decode(self.meta, type=dict[str, Any])
        except ValueError:
            raise PeerProtocolError(SERVER, "sent a description of the work that cannot be read") from None

    def to_bytes(self) -> bytes:
        """Encode the work."""
        return msgspec.msgpack.encode(self)


def encode(message: NodeMessage | Answer) -> bytes:
    """Encode a message."""
    return msgspec.msgpack.encode(message)


def decode(data: object, kind: type[S], sender: str) -> S:
    """Read a message of this type; :class:`PeerProtocolError`, which blames the sender, if it cannot be read."""
    try:
        if not isinstance(data, bytes):
            raise ValueError("not bytes")
        return msgspec.msgpack.decode(data, type=kind)
    except ValueError:
        raise PeerProtocolError(sender, f"sent something that is not a message of Coterie ({kind.__name__})") from None


def name_of(work: bytes) -> bytes:
    """Return a digest of an app's work; equal digests mean equal work."""
    return hashlib.sha256(work).digest()


def node_number(site: str) -> int:
    """Return the number of a site. NVFlare has only names, so both sides compute the number from the name."""
    return int.from_bytes(hashlib.sha256(site.encode()).digest()[:8]) >> 1


def flatten(value: object, path: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the leaves of a JSON document by their paths.

    Two documents have the same entries only if they are equal, and have their keys in the same order: an app may go
    through its arguments in that order. So a path has its keys in quotes, with a dot and their places before them
    (``.0'args'``), and places in lists in brackets (``[0]``): a key with a dot in it is not a path of two keys.
    """
    if isinstance(value, dict):
        children = [(f".{place}{key!r}", child) for place, (key, child) in enumerate(value.items())]
    elif isinstance(value, list):
        children = [(f"[{place}]", child) for place, child in enumerate(value)]
    else:
        yield path, repr(value).encode()
        return
    if not children:
        yield path, b"{}" if isinstance(value, dict) else b"[]"
    for step, child in children:
        yield from flatten(child, path + step)
