"""Defences of a client: checks of the model that it was sent, before it trains it."""

from torch import nn

from coterie.errors import PeerProtocolError
from coterie.rounds.floor import Floor
from coterie.secagg.terms import Terms
from coterie.training import flatten
from coterie.training.architecture import architecture, check_architecture


def refused_for_length(sent: nn.Module, agreed: nn.Module) -> bool:
    """Return whether a client refuses the session because the model is longer than its floor allows."""
    floor = Floor(most_length=1 + _numbers(agreed))
    terms = Terms(session=bytes(16), clients=("client", "another"), bits=32, length=1 + _numbers(sent))
    try:
        floor.check(terms, "client")
    except PeerProtocolError:
        return True
    return False


def refused_for_architecture(sent: nn.Module, agreed: nn.Module) -> bool:
    """Return whether a client refuses the model because it pinned the agreed architecture."""
    try:
        check_architecture(sent, architecture(agreed))
    except PeerProtocolError:
        return True
    return False


def _numbers(model: nn.Module) -> int:
    return sum(array.size for array in flatten.read(model))
