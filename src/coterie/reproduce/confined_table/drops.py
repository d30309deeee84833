"""Packet drops: how often a participant misses many iterations in a row, by CGD's eq. (44) and as counted.

In the paper's model a victim misses an iteration if its subset has a malicious member, who drops the victim's packets.
Eq. (44) is the probability that this happens ``bound`` times in a row with independent random subsets. Here subsets are
drawn and such rows are counted, for random subsets and for unions of fixed circles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coterie.confined.staleness import exceeds_bound_probability
from coterie.reports.findings import Table
from coterie.training.streams import stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.cohorts.circles import Mask

_ASSIGNMENTS = 200  # random assignments of malicious participants to circles


class DropCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One set of parameters of eq. (44)."""

    participants: int
    malicious: float
    """P_A, the share of malicious participants."""
    subset: float
    """C, the share of the participants that is drawn in an iteration."""
    bound: int
    """tau."""
    printed: float | None = None
    """What the paper printed."""
    circle: int = 1
    """The subset is a union of fixed circles of this size; 1 is a random subset, as in the paper."""
    draws: int = 1_000_000
    """The number of iterations that are drawn."""

    def __post_init__(self) -> None:
        if self.participants % self.circle or self.drawn % self.circle or self.draws < _ASSIGNMENTS * (self.bound + 1):
            raise ValueError("participants and subsets must be whole circles, and many more drawn than the bound")

    @property
    def drawn(self) -> int:
        """The number of participants in a subset."""
        return round(self.subset * self.participants)

    @property
    def eq_44(self) -> float:
        """The value of eq. (44)."""
        return exceeds_bound_probability(self.participants, self.malicious, self.subset, self.bound)


def count_misses(case: DropCase, seed: int) -> float:
    """Return the share of all windows of ``bound`` iterations in which every subset has a malicious member."""
    rng = stream(seed, "packet drops", case.participants, case.circle)
    malicious = round(case.malicious * case.participants)
    circles, each = case.participants // case.circle, case.draws // _ASSIGNMENTS
    windows = found = 0
    for _ in range(_ASSIGNMENTS):
        placed = rng.choice(case.participants, malicious, replace=False) // case.circle
        bad = np.unique(placed).size
        missed = rng.hypergeometric(bad, circles - bad, case.drawn // case.circle, each) > 0
        found += count_windows(missed, case.bound)
        windows += each - case.bound + 1
    return found / windows


def count_windows(missed: Mask, length: int) -> int:
    """Return the number of windows of this length in which every entry is true."""
    sums = np.cumsum(np.concatenate([[0], missed]))
    return int(np.count_nonzero(sums[length:] - sums[:-length] == length)) if length else missed.size + 1


def drop_table(cases: Sequence[DropCase], seed: int) -> Table:
    """Return eq. (44) beside what the paper printed and what is counted."""
    return Table.of(
        "Missing many iterations in a row",
        cases,
        [
            (
                "participants",
                lambda case: (
                    f"{case.participants}, {case.malicious:.0%} malicious, {case.drawn} drawn, tau = {case.bound}"
                ),
            ),
            ("subset", lambda case: "random" if case.circle == 1 else f"circles of {case.circle}"),
            ("eq. (44), printed", lambda case: "" if case.printed is None else f"{case.printed:.3g}"),
            ("eq. (44)", lambda case: f"{case.eq_44:.4g}"),
            ("counted", lambda case: f"{count_misses(case, seed):.3g}"),
            ("iterations drawn", lambda case: f"{case.draws:,}"),
        ],
        "Eq. (44) is the probability that each of tau subsets in a row has a malicious member, who can drop a victim's "
        "packets. Counted: the share of all windows of tau iterations in which each subset has one.",
    )
