"""The presence of the selected clients, step by step."""

from collections.abc import Collection

from coterie.secagg.server import Step
from coterie.transports.faults import FaultKind, Faults


def training_clients(faults: Faults, selected: Collection[str]) -> tuple[str, ...]:
    """Return the clients that may still be present when updates are due; only these need to train.

    Training begins with the round, before keys and shares are exchanged.
    """
    return still_present(faults, Step.SHARE, still_present(faults, Step.ADVERTISE, selected))


def late_clients(faults: Faults, selected: Collection[str]) -> tuple[str, ...]:
    """Return the clients that stay in the round and whose update arrives too late."""
    steps = (Step.ADVERTISE, Step.SHARE, Step.MASK)
    staying = (name for name in selected if not any(faults.strikes(FaultKind.DROP, step, name) for step in steps))
    return tuple(name for name in staying if faults.strikes(FaultKind.DELAY, Step.MASK, name))


def still_present(faults: Faults, step: Step, clients: Collection[str]) -> tuple[str, ...]:
    """Return the clients that neither drop out in this step nor are late."""
    lost = (FaultKind.DROP, FaultKind.DELAY)
    return tuple(name for name in clients if not any(faults.strikes(kind, step, name) for kind in lost))
