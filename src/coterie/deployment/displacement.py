"""The public displacement of confined descent: every model that a server ever showed, in one chain.

A node's own model is its private start plus those moves that it took: differences of two public models, one after the
other. Which moves a node takes depends on its data. If a server could show one node a model and the others not, it
could lead that node's model away from the others' and read their sum without it. So models form a chain:

    link(k) = H(link(k - 1), model k),        link(-1) = the descent's random name

A request names the chain up to the model that is worked on, and the request's digest is in the terms that all members
of a session agree on. A node follows a chain only if the models it has judged are the beginning of it. So whatever a
node was ever shown, every node that it is later summed with judges as well, in the same order.
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
"""A model that the server shows, as arrays by name."""

NAME_BYTES = 32
MOST_MODELS = 1 << 20
"""The most models in a chain."""


@dataclass(frozen=True, eq=False)
class Displacement:
    """A piece of the chain: its models from number ``first`` on. The last is the one that is worked on.

    Without models it is a place in the chain, for functions that work on a node's own model as it is.
    """

    descent: bytes
    """The random name of this descent."""
    first: int
    before: bytes
    """The link before model ``first``; the descent's name if that is model 0."""
    models: tuple[PublicModel, ...] = field(default=(), repr=False)
    task: str = ""
    """In a place: the function of the app by whose losses nodes have judged the chain."""
    configuration: bytes = field(default=b"", repr=False)
    """In a place: how that function was configured, without the run's configuration, which each node adds."""

    def __post_init__(self) -> None:
        sizes = {len(self.descent), len(self.before)}
        if sizes != {NAME_BYTES} or not 0 <= self.first <= self.first + len(self.models) <= MOST_MODELS:
            raise PeerProtocolError(SERVER, "sent a displacement that cannot be read")
        if self.first == 0 and self.before != self.descent:
            raise PeerProtocolError(SERVER, "sent a chain of models that does not begin with its own name")

    @property
    def end(self) -> int:
        """How many models the whole chain has."""
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
