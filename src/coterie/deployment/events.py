"""Events of a deployment, for monitoring: one for each step and one for each round, given to an observer.

They hold what the server knows and logs anyway: names, counts, bytes, seconds and reasons. None holds a model, a metric
or a key. An observer that fails is logged and does not disturb the round.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from coterie.deployment.logs import LOGGER, traced


@dataclass(frozen=True)
class StepEvent:
    """A step of a round is over: one trip to its nodes."""

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
    """A round is over."""

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
    """Why there is no result; empty where there is one."""
    seconds: float
    blamed: tuple[str, ...] = ()
    """Nodes that are proven to have dealt or sent wrong shares."""


Observer: TypeAlias = Callable[[StepEvent | RoundEvent], None]
"""Is called after each step and each round."""


def notify(observer: Observer | None, event: StepEvent | RoundEvent) -> None:
    """Call an observer, if there is one."""
    if observer is None:
        return
    try:
        observer(event)
    except Exception as error:  # monitoring must not end a round in which secrets are under way
        LOGGER.warning("the observer failed:\n%s", traced(error))
