"""One look for one method: the colour and the line of every row, the same in all reports of a paper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from coterie.reports.plots import BLUE, GREEN, MOSS, OCHRE, PLUM, RUST, SKY, SLATE, TEXT

_COLORS = (RUST, BLUE, OCHRE, SLATE, GREEN, SKY, PLUM, MOSS, TEXT)
_LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
_MULTI_ROUND = {
    "random": RUST,
    "weighted random": OCHRE,
    "partition": SLATE,
    "T=6": BLUE,
    "T=4": SKY,
    "T=3": GREEN,
    "T=2": PLUM,
}
_SPARSE_GRAPHS = {
    "SA": BLUE,
    "CCESA": GREEN,
    "CCESA p*=0.3106": GREEN,
    "CCESA p*=0.7953": GREEN,
    "CCESA p=0.7": GREEN,
    "CCESA p=0.65": OCHRE,
    "CCESA p=0.25": OCHRE,
    "CCESA p=0.6": RUST,
    "CCESA p=0.5": RUST,
    "Bell": PLUM,
}
_CONFINED = {
    "CGD": BLUE,
    "CGD, Algorithm 1": BLUE,
    "CGD, clip and check": GREEN,
    "CGD, loss check": GREEN,
    "FedAvg": RUST,
    "Ditto": SLATE,
    "local, own features": SKY,
    "local, all features": PLUM,
    "centralised": TEXT,
    "sdp": MOSS,
}
_STEPS = {"constant": GREEN, "mu = 0": RUST, "mu = 0.01": BLUE, "mu = 0.1": OCHRE}
METHODS = {**_MULTI_ROUND, **_SPARSE_GRAPHS, **_CONFINED, **_STEPS}
"""The colours of the methods that several reports have."""
ATTACKED = {
    "fedavg": METHODS["FedAvg"],
    "ditto": METHODS["Ditto"],
    "confined": METHODS["CGD"],
    "confined-checked": METHODS["CGD, loss check"],
    "confined-anchored": OCHRE,
}
"""The same by the names that attacks have for them."""


class Look(NamedTuple):
    """How a row is drawn. Lines become thinner from row to row, so that coinciding lines are seen as such."""

    color: str
    linestyle: Any
    linewidth: float

    @property
    def line(self) -> dict[str, Any]:
        """How the line is drawn, but for its colour."""
        return {"linestyle": self.linestyle, "linewidth": self.linewidth}


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return a look for each row: known methods have theirs, others the next colour, and no two rows look alike."""
    found: dict[str, Look] = {}
    rows = list(dict.fromkeys(names))
    taken = {METHODS[name] for name in rows if name in METHODS}
    free = [color for color in _COLORS if color not in taken] or list(_COLORS)
    used: dict[str, int] = {}
    others = 0
    for order, name in enumerate(rows):
        if name in METHODS:
            color = METHODS[name]
        else:
            color, others = free[others % len(free)], others + 1
        style = _LINES[used.get(color, 0) % len(_LINES)]
        used[color] = used.get(color, 0) + 1
        found[name] = Look(color, style, max(1.2, 3.4 - 0.45 * order))
    return found
