"""Events of a deployment, for monitoring: one for each step and one for each round, given to an observer.

They contain only what the server knows and logs anyway: names, counts, bytes, seconds and reasons, but no model, metric
or key. If an observer fails, the error is logged and the round continues.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from coterie.deployment.logs import LOGGER, format_traceback


@dataclass(frozen=True)
class StepEvent:
    """The end of a step of a round, which is one trip to its nodes."""

    round: int | None
    """The engine's number of the round; None if it has none."""
    number: int
    """The number of the sum in the ledger."""
    function: str
    """The app's function, such as ``train``."""
    step: str
    asked: int
    """Nodes that a message was sent to."""
    left: Mapping[str, str]
    """Nodes that left the round in this step, with the reason."""
    seconds: float
    sent: int
    received: int
    """Bytes of the protocol's messages."""


@dataclass(frozen=True)
class RoundEvent:
    """The end of a round."""

    round: int | None
    number: int
    function: str
    outcome: str
    """``completed``, ``skipped``, ``aborted before reveal`` or ``aborted after reveal``."""
    selected: int
    aggregated: int
    left: Mapping[str, str]
    """Nodes that are not in the sum, with the reason, and nodes that could not be enrolled."""
    reason: str
    """Why there is no result; empty if there is one."""
    seconds: float
    blamed: tuple[str, ...] = ()
    """Nodes that are proven to have dealt or sent wrong shares."""


Observer: TypeAlias = Callable[[StepEvent | RoundEvent], None]
"""Called after each step and each round."""


def notify(observer: Observer | None, event: StepEvent | RoundEvent) -> None:
    """Call an observer, if there is one."""
    if observer is None:
        return
    try:
        observer(event)
    except Exception as error:  # an error in monitoring must not end a round
        LOGGER.warning("the observer failed:\n%s", format_traceback(error))
