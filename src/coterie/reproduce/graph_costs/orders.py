"""How operations grow with the clients, and the orders of growth in Table 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log, sqrt
from typing import NamedTuple

import numpy as np

from coterie.cohorts.circles import Reals
from coterie.reproduce.graph_costs.settings import BELL, CCESA, SA, OperationCount


class Order(NamedTuple):
    """An order of growth."""

    words: str
    at: Callable[[float], float]
    """Its value for a number of clients, without the length of the vector: only ratios mean something."""

    def factor(self, few: float, many: float) -> float:
        """Return the growth that it predicts."""
        return self.at(many) / self.at(few)


class Quantity(NamedTuple):
    """A kind of operation, and the part of Table 1 that is about it, by scheme."""

    field: str
    """Its name in :class:`~coterie.reproduce.graph_costs.operations.Operations`."""
    name: str
    orders: Mapping[str, Order]


def _near(n: float) -> float:
    """Return what the number of neighbours in CCESA is in proportion to."""
    return sqrt(n * log(n))


QUANTITIES = (
    Quantity(
        "client_bytes",
        "client's bytes of keys and shares",
        {SA: Order("n", float), CCESA: Order("√(n log n)", _near), BELL: Order("log n", log)},
    ),
    Quantity(
        "server_bytes",
        "server's bytes of keys and shares",
        {
            SA: Order("n²", lambda n: n**2),
            CCESA: Order("n √(n log n)", lambda n: n * _near(n)),
            BELL: Order("n log n", lambda n: n * log(n)),
        },
    ),
    Quantity(
        "client_products",
        "client's products for shares",
        {
            SA: Order("n²", lambda n: n**2),
            CCESA: Order("n log n", lambda n: n * log(n)),
            BELL: Order("log² n", lambda n: log(n) ** 2),
        },
    ),
    Quantity(
        "client_stream",
        "client's numbers from key streams",
        {SA: Order("mn", float), CCESA: Order("m √(n log n)", _near), BELL: Order("m log n", log)},
    ),
    Quantity(
        "server_products",
        "server's products for shares",
        {
            SA: Order("mn²", lambda n: n**3),
            CCESA: Order("n² log n", lambda n: n**2 * log(n)),
            BELL: Order("n log² n", lambda n: n * log(n) ** 2),
        },
    ),
    Quantity(
        "server_stream",
        "server's numbers from key streams",
        {
            SA: Order("mn²", lambda n: n**2),
            CCESA: Order("mn log n", lambda n: n * log(n)),
            BELL: Order("mn log n", lambda n: n * log(n)),
        },
    ),
)
"""Where Table 1 has one term for two kinds, as for SA's server, m is taken as n for the products."""
CCESA_CLAIMED = {"client_bytes", "client_products", "client_stream", "server_products", "server_stream"}
"""The kinds whose growth in CCESA is judged. The server's bytes are those of all clients, and need no claim."""


class Course(NamedTuple):
    """The operations of one scheme, over the number of clients."""

    scheme: str
    clients: tuple[int, ...]
    trials: Mapping[int, Sequence[OperationCount]]
    """By number of clients."""

    @classmethod
    def of(cls, scheme: str, counted: Sequence[OperationCount]) -> Course:
        """Sort the sessions of a scheme."""
        sizes = sorted({one.clients for one in counted})
        return cls(scheme, tuple(sizes), {size: [one for one in counted if one.clients == size] for size in sizes})

    @property
    def doubling(self) -> tuple[int, int] | None:
        """The largest number of clients whose half was counted too, after its half; None if there is none."""
        many = max((size for size in self.clients if size % 2 == 0 and size // 2 in self.clients), default=0)
        return (many // 2, many) if many else None

    def means(self, quantity: Quantity) -> Reals:
        """Return the mean over trials for each number of clients."""
        return np.array([np.mean(list(self._values(quantity, size).values())) for size in self.clients])

    def factors(self, quantity: Quantity, few: int, many: int) -> Reals:
        """Return the growth in each trial that has both."""
        low, high = self._values(quantity, few), self._values(quantity, many)
        return np.array([high[trial] / low[trial] for trial in sorted(low) if trial in high])

    def _values(self, quantity: Quantity, clients: int) -> dict[int, float]:
        return {one.trial: float(getattr(one.operations, quantity.field)) for one in self.trials[clients]}
