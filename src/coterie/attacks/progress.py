"""The progress of a computation, as the share of it that is done, from 0 to 1."""

from collections.abc import Callable
from typing import TypeAlias

OnShare: TypeAlias = Callable[[float], None]
"""Called with the share that is done."""


def ignore_progress(_share: float) -> None:
    """Do nothing: for callers that do not show progress."""


def within(watch: OnShare, start: float, length: float) -> OnShare:
    """Return a callback for one part of a computation, which begins at ``start`` and takes ``length`` of the whole."""
    return lambda share: watch(start + share * length)
