"""Federated learning whose secure aggregation stays secure, round after round.

``coterie.train`` trains a torch model under secure aggregation with multi-round privacy, ``coterie.aggregate`` is the
whole protocol in one call; the packages below are for those who need their parts.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coterie.version import __version__

if TYPE_CHECKING:
    from coterie.api import Outcome, aggregate, train
    from coterie.runs.run import RunResult

__all__ = ["Outcome", "RunResult", "__version__", "aggregate", "train"]

_HOMES = {
    "Outcome": "coterie.api",
    "RunResult": "coterie.runs.run",
    "aggregate": "coterie.api",
    "train": "coterie.api",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    """Import the convenience names when they are first used, so that ``import coterie`` stays light."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
