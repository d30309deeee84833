"""Sets of clients as bitmaps: one bit for each client of a session.

An announcement names the survivors among thousands of clients, and a client looks up only a few of them: its
neighbours. A bitmap needs no object for each survivor. Operations on the whole set, such as counting or hashing, are
single operations on its bytes.
"""

from collections.abc import Iterable, Iterator, Set

import numpy as np
from numpy.typing import NDArray


class Members(Set[int]):
    """An immutable set of clients, by number; the first is in the lowest bit of the first byte."""

    __slots__ = ("bits", "size")

    def __init__(self, bits: bytes, size: int) -> None:
        """Read a bitmap of ``size`` clients; the bits after the last client are zero."""
        self.bits = bits
        self.size = size

    @classmethod
    def of(cls, members: Iterable[int], size: int) -> "Members":
        """Return the set of these clients, of ``size`` in all."""
        if isinstance(members, Members) and members.size == size:
            return members
        flags = np.zeros(size, np.bool_)
        flags[list(members)] = True
        return cls.flagged(flags)

    @classmethod
    def flagged(cls, flags: NDArray[np.bool_]) -> "Members":
        """Return the set of clients whose flag is true."""
        return cls(np.packbits(flags, bitorder="little").tobytes(), flags.size)

    @property
    def flags(self) -> NDArray[np.bool_]:
        """For each client, whether it is in the set."""
        return np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.size, bitorder="little").view(np.bool_)

    def among(self, clients: Iterable[int]) -> frozenset[int]:
        """Return those of the given clients that are in the set; the time is proportional to their number."""
        return frozenset(client for client in clients if client in self)

    def covers(self, other: "Members") -> bool:
        """Return whether every client of the other set is in this one."""
        mine, theirs = (int.from_bytes(members.bits, "little") for members in (self, other))
        return mine & theirs == theirs

    def __contains__(self, client: object) -> bool:
        return isinstance(client, int) and 0 <= client < self.size and bool(self.bits[client >> 3] >> (client & 7) & 1)

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.flags).tolist())

    def __len__(self) -> int:
        return int.from_bytes(self.bits, "little").bit_count()

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.size} clients>"

    @classmethod
    def _from_iterable(cls, it: Iterable[int]) -> frozenset[int]:  # type: ignore[override]  # results are plain sets
        return frozenset(it)
