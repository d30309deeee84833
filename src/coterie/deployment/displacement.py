"""The public displacement of confined descent: a chain of all models that a server has sent.

A node's own model is its private start plus the moves that it accepted. A move is the difference of two consecutive
public models, and a node's decision depends on its data. If a server could send a model to one node only, it could lead
that node's model away from the others', and so learn their sum without it. So models form a chain:

    link(k) = H(link(k - 1), model k),        link(-1) = the descent's random name

A request names the chain up to the current model, and the request's digest is in the terms that all members of a
session agree on. A node follows a chain only if it begins with the models that the node has judged. So if a node was
sent a model, every node that it is later summed with judges this model too, in the same order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray

from coterie.crypto.context import bind, digest
from coterie.deployment.array_bytes import pack_arrays
from coterie.errors import PeerProtocolError
from coterie.secagg.messages import SERVER

PublicModel: TypeAlias = Mapping[str, NDArray[Any]]
"""A model that the server sends, as arrays by name."""

NAME_BYTES = 32
MOST_MODELS = 1 << 20
"""The largest number of models in a chain."""


@dataclass(frozen=True, eq=False)
class Displacement:
    """A part of the chain: its models from number ``first`` on. The last one is the current model.

    Without models it is a position in the chain, for functions that use a node's own model without a move.
    """

    descent: bytes
    """The random name of this descent."""
    first: int
    before: bytes
    """The link before model ``first``; the descent's name if that is model 0."""
    models: tuple[PublicModel, ...] = field(default=(), repr=False)
    task: str = ""
    """In a position: the function of the app whose losses decided about the chain."""
    configuration: bytes = field(default=b"", repr=False)
    """In a position: the configuration of that function, without the run's configuration, which each node adds."""

    def __post_init__(self) -> None:
        sizes = {len(self.descent), len(self.before)}
        if sizes != {NAME_BYTES} or not 0 <= self.first <= self.first + len(self.models) <= MOST_MODELS:
            raise PeerProtocolError(SERVER, "sent a displacement that cannot be read")
        if self.first == 0 and self.before != self.descent:
            raise PeerProtocolError(SERVER, "sent a chain of models that does not begin with its own name")

    @property
    def end(self) -> int:
        """The number of models in the whole chain."""
        return self.first + len(self.models)

    def links(self) -> list[bytes]:
        """Return the link before the first model, and the link after each."""
        links = [self.before]
        for model in self.models:
            links.append(next_link(links[-1], model))
        return links


def next_link(before: bytes, model: PublicModel) -> bytes:
    """Return the link after a model."""
    return digest(bind("confined model", before, digest(pack_arrays(model))))
