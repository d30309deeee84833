"""Presence of the clients that were selected, step by step of a round."""

from collections.abc import Collection

from coterie.secagg.server import Step
from coterie.transports.faults import FaultKind, Faults


def who_trains(faults: Faults, selected: Collection[str]) -> tuple[str, ...]:
    """Return all who can still be there when updates are asked for; the others would train for nothing.

    Training begins with the round, for it need not wait until keys and shares are exchanged.
    """
    return still_there(faults, Step.SHARE, still_there(faults, Step.ADVERTISE, selected))


def still_there(faults: Faults, step: Step, clients: Collection[str]) -> tuple[str, ...]:
    """Return those who are neither lost in this step nor late."""
    lost = (FaultKind.DROP, FaultKind.DELAY)
    return tuple(name for name in clients if not any(faults.strikes(kind, step, name) for kind in lost))
