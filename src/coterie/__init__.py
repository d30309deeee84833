"""Federated learning whose secure aggregation stays secure, round after round.

``coterie.aggregate`` is the whole protocol in one call; the packages below it are for those who need its parts.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.transports.aggregate import Outcome, aggregate

__version__ = "0.1.0"
__all__ = ["Outcome", "__version__", "aggregate"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    """Import the convenience names when they are first used, so that ``import coterie`` stays light."""
    if name in {"Outcome", "aggregate"}:
        from coterie.transports import aggregate as module

        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
