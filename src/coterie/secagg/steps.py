"""The steps of a session as data: their messages, their order, and the step that is only for active servers.

Server, documentation and tests read this table; :func:`draw` shows it.
"""

import enum
from dataclasses import dataclass

from coterie.secagg import messages


class Step(enum.StrEnum):
    """The steps of a session, each named after what clients do in it."""

    ADVERTISE = "advertise"
    SHARE = "share"
    MASK = "mask"
    CONFIRM = "confirm"
    REVEAL = "reveal"
    DONE = "done"
    CONTRIBUTE = "contribute"
    """With prekeys: the first three steps in one (:mod:`coterie.secagg.prekeys`)."""


@dataclass(frozen=True)
class StepRow:
    """One step: the message that clients send in it, and the one by which the server closes it."""

    step: Step
    upload: type[messages.ClientMessage]
    download: type[messages.Message] | None
    """``None`` in the last step, after which the server sends nothing."""
    active_only: bool = False
    """Whether the step is left out against an honest-but-curious server."""


TABLE = (
    StepRow(Step.ADVERTISE, messages.Advertisement, messages.KeyBook),
    StepRow(Step.SHARE, messages.SharedKeys, messages.Deliveries),
    StepRow(Step.MASK, messages.MaskedInput, messages.Announcement),
    StepRow(Step.CONFIRM, messages.Confirmation, messages.Testimony, active_only=True),
    StepRow(Step.REVEAL, messages.Revelation, None),
)
ROWS = {row.step: row for row in TABLE}


def following(step: Step, *, active: bool) -> Step:
    """Return the step after ``step``."""
    later = TABLE[TABLE.index(ROWS[step]) + 1 :]
    return next((row.step for row in later if active or not row.active_only), Step.DONE)


def draw() -> str:
    """Draw the table, as the documentation shows it."""
    lines = ["step       clients send    the server answers"]
    for row in TABLE:
        answer = row.download.__name__ if row.download else "(it has the sum)"
        note = "    only against an active server" if row.active_only else ""
        lines.append(f"{row.step:<11}{row.upload.__name__:<16}{answer}{note}")
    return "\n".join(lines)
