"""A model's architecture as one name, for a client that takes no other.

A server that may send any model can send one that was built to give examples away, whatever sum it is shown
(``coterie attack imprint``). A client, or its operator, keeps the digest of the architecture that was agreed on, and
looks at every model before training it. What that does not see is numbers: a model of the agreed shape, with numbers
that the server made up, passes.
"""

from torch import nn

from coterie.crypto.context import bind, digest
from coterie.errors import PeerProtocolError
from coterie.secagg.messages import SERVER


def architecture(model: nn.Module) -> str:
    """Return a digest, in hexadecimal, of a model's layers as they print themselves and its arrays' names and shapes.

    The code of a module's ``forward`` is not part of it: it must come from somebody the client trusts.
    """
    arrays = [f"{name} {tuple(array.shape)} {array.dtype}" for name, array in model.state_dict(keep_vars=True).items()]
    return digest(bind("architecture", repr(model).encode(), *(array.encode() for array in arrays))).hex()


def check_architecture(model: nn.Module, pinned: str) -> None:
    """Refuse a model of another architecture than the one pinned, before anything is computed with it."""
    if architecture(model) != pinned:
        raise PeerProtocolError(SERVER, "sent a model of another architecture than the one agreed on")
