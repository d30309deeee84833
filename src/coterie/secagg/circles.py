"""The rule for sums with missing clients: only whole circles are summed."""

from collections.abc import Collection, Hashable, Iterable
from itertools import count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Mate = TypeVar("Mate", bound=Hashable)


def whole_circles(circles: Iterable[Collection[Mate]], present: Iterable[Mate]) -> frozenset[Mate]:
    """Return the members, by name or by number, of all circles of which every member is present.

    Only these may be summed. The rest of a broken circle counts as dropped: a sum over the rest would permanently
    separate its members from the missing ones.
    """
    there = frozenset(present)
    return frozenset(member for circle in circles if there.issuperset(circle) for member in circle)


class CircleMap:
    """The same rule in arrays, for the clients of a session: a few operations for any number of clients."""

    def __init__(self, circles: Collection[int]) -> None:
        """Take a circle number for each client."""
        places = dict(zip(dict.fromkeys(circles), count()))  # numbers come from the server and may not fit into words
        self._circle_of = np.fromiter(map(places.__getitem__, circles), np.intp, len(circles))
        self._sizes = np.bincount(self._circle_of)

    def whole(self, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return for each client whether its whole circle is present."""
        there = np.bincount(self._circle_of[present], minlength=self._sizes.size)
        whole: NDArray[np.bool_] = (there == self._sizes)[self._circle_of]
        return whole
