"""A log as if circles had been used: which sums there would have been, and what they would reveal.

Clients are put into circles of a fixed size. In each round of the log, a circle is summed if all its members took part,
and not at all if one of them did not. No client is added to a round. So the result shows how many participations
circles cost. It is pessimistic, because a system with circles selects whole circles instead of waiting until one is
complete by chance.

Which clients share a circle matters. Two ways are computed:

* *by hindsight*: each circle starts with the most frequent remaining client, and adds those that shared the most rounds
  with all its members so far. A system that knows when clients are available can come close to it.
* *at random*: the mean over several draws. A system without such knowledge can expect this.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coterie.auditing.auditor import audit
from coterie.cohorts.participation import Participation
from coterie.errors import ConfigError
from coterie.reports.words import count

_DRAWS = 20
_CELLS, _CLIENTS = 50_000_000, 3_000  # entries of the matrix and clients up to which circles are chosen by hindsight

Circle = NDArray[np.int64]


@dataclass(frozen=True)
class WholeCircles:
    """The result for a log of which only whole circles are summed."""

    size: int
    """The size of a circle. If it does not divide the number of clients, some circles have more members."""
    by_hindsight: bool
    """Whether the circles were chosen by hindsight; for a very large log, they are chosen at random."""
    circles: tuple[tuple[str, ...], ...]
    strong_privacy: int | None
    """Strong T of the remaining sums; None if there would be none."""
    exposed: tuple[str, ...]
    """The clients that would be exposed by the remaining sums."""
    rounds: int
    """The number of rounds with a sum."""
    rounds_before: int
    participations: int
    """The number of participations in the remaining sums, over all rounds."""
    participations_before: int
    random_share: float
    """The mean share of participations that would be left with random circles."""
    seed: int

    @property
    def share(self) -> float:
        """The share of participations that would be left."""
        return self.participations / self.participations_before if self.participations_before else 0.0

    def words(self) -> str:
        """Return the result as text."""
        how = "chosen by who took part together" if self.by_hindsight else "drawn at random"
        circles = f"With whole circles of {self.size} ({how})"
        cost = (
            f"{self.rounds:,} of {count(self.rounds_before, 'round')} would have had a sum, and {self.share:.0%} of "
            f"all participations would be left ({self.random_share:.0%} with circles drawn at random)"
        )
        if self.strong_privacy is None:
            return f"{circles}, nothing would have been revealed: no circle was ever complete."
        exposed = count(len(self.exposed), "client") if self.exposed else "nobody"
        hides = f"strong T would be {self.strong_privacy:,}, and {exposed} would be exposed"
        return f"{circles}, {hides}. {cost}. A system with circles selects whole ones, and loses less."


def check_circles(participation: Participation, size: int) -> None:
    """Refuse a size of circles that is impossible among the clients of a log."""
    clients = len(participation.clients)
    if size < 2 or size > clients:
        raise ConfigError(f"circles of this log may have 2 to {clients:,} members, not {size}")


def with_circles(participation: Participation, size: int, *, seed: int = 0) -> WholeCircles:
    """Return what the log would reveal if only whole circles of ``size`` clients had been summed."""
    check_circles(participation, size)
    clients = len(participation.clients)
    rng = np.random.default_rng(seed)
    before = [np.asarray(row, dtype=np.int64) for row in participation.members]
    total = sum(map(len, before))
    draws = [_deal(rng.permutation(clients), size) for _ in range(_DRAWS)]
    left = [sum(map(len, _keep(before, circles, clients))) for circles in draws]
    small = clients <= _CLIENTS and clients * len(before) <= _CELLS
    circles = _match(participation.matrix, size) if small else draws[0]
    rows = _keep(before, circles, clients)
    report = audit(replace(participation, members=tuple([row.tolist() for row in rows])), weak_budget_seconds=0.0)
    return WholeCircles(
        size=size,
        by_hindsight=small,
        circles=tuple([tuple([participation.clients[at] for at in circle]) for circle in circles]),
        strong_privacy=report.strong_privacy,
        exposed=tuple([found.client for found in report.exposed]),
        rounds=sum(len(row) > 0 for row in rows),
        rounds_before=sum(len(row) > 0 for row in before),
        participations=sum(map(len, rows)),
        participations_before=total,
        random_share=sum(left) / len(left) / total if total else 0.0,
        seed=seed,
    )


def _deal(order: Circle, size: int) -> list[Circle]:
    """Cut a sequence of clients into circles; the remaining clients join the last circles, one each."""
    number = len(order) // size
    circles = [[*order[at * size : (at + 1) * size].tolist()] for at in range(number)]
    for at, client in enumerate(order[number * size :].tolist()):
        circles[-1 - at % number].append(client)
    return [np.array(circle, dtype=np.int64) for circle in circles]


def _match(matrix: NDArray[np.uint8], size: int) -> list[Circle]:
    """Choose circles whose members took part together, one circle after another."""
    present = matrix.T.astype(np.float32)  # a row for each client
    left = np.ones(len(present), dtype=np.bool_)
    order: list[int] = []
    while left.any():
        together = np.ones(matrix.shape[0], dtype=np.float32)
        for _ in range(min(size, int(left.sum()))):
            shared = np.where(left, present @ together, -1.0)
            chosen = int(shared.argmax())
            left[chosen] = False
            together *= present[chosen]
            order.append(chosen)
    return _deal(np.array(order, dtype=np.int64), size)


def _keep(rows: Sequence[Circle], circles: Sequence[Circle], clients: int) -> list[Circle]:
    """Return, for each row, the clients whose whole circle is in it."""
    circle_of = np.zeros(clients, dtype=np.int64)
    for number, circle in enumerate(circles):
        circle_of[circle] = number
    sizes = np.array([len(circle) for circle in circles])
    kept = []
    for row in rows:
        there = circle_of[row]
        whole = np.bincount(there, minlength=len(sizes)) == sizes
        kept.append(row[whole[there]])
    return kept
