"""The vertical sum of a group, z = sum_j X_j W_j: its members have different columns of the same rows.

Member j computes X_j W_j from its own columns and its own weights. The members add these parts by additive sharing
(:mod:`coterie.confined.sharing`), in one sum for many rows and all hidden units. Parts are rounded to multiples of a
power of two, and the sum of the rounded parts is exact.

**Protection and its limits.** The sharing hides each part from the other members and from the carrier of the messages.
The members see the sum z, for every example and in every iteration, and the errors that go back. In a group of two,
each member computes the other's part by subtracting its own. Sums of several iterations reveal more: the weights of all
members move by public steps, so the difference of two sums is X times a known matrix. Anyone who sees z often enough,
about (columns / hidden units) times, can solve for the columns of all members. So members of a group must trust each
other with their data. The sum hides it from everyone else.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.arithmetic.ring import Ring, RingVector
from coterie.confined.sharing import SharingTerms, add_in_process
from coterie.confined.subset import check_honest
from coterie.crypto.entropy import Entropy, SystemEntropy
from coterie.crypto.keystream import SEED_BYTES
from coterie.errors import ConfigError, InputError, OverflowRisk

BOUND = 100.0
"""The default bound on the entries of a member's part."""
_FEW = 16  # up to this number of members, a ring of 32 bits is precise enough; it takes half the time of 64 bits
_EXACT = 2**52  # integers up to this one are exact in float64


@dataclass(frozen=True)
class VerticalSum:
    """The way the members of a group add their parts."""

    members: int
    secure: bool = True
    """False adds in the clear, to measure the cost of the secure sum: every member then sees every part."""
    bound: float = BOUND
    """The bound on entries of a part; a smaller bound makes the sum more precise."""
    colluders: int = 0
    """The number of members of a group that may collude; with fewer than two honest ones, the sum hides nothing."""

    def __post_init__(self) -> None:
        if not 0 < self.bound < math.inf:
            raise ConfigError(f"the bound on the parts of a vertical sum is a positive number, not {self.bound}")
        if self.secure:
            check_honest(self.members, self.colluders)

    @property
    def ring(self) -> Ring:
        """The ring in which parts are shared."""
        return Ring(32 if self.members <= _FEW else 64)

    @property
    def scale(self) -> float:
        """The power of two that parts are multiplied by before they are rounded, so that no sum overflows."""
        most = min((self.ring.modulus // 2 - 1) // self.members, _EXACT)
        return 2.0 ** math.floor(math.log2(most / self.bound))

    def add(self, parts: Sequence[FloatArray], entropy: Callable[[str], Entropy] | None = None) -> FloatArray:
        """Return the sum of the members' parts, in their type; :class:`OverflowRisk` if an entry is too large.

        The shares' randomness is the operating system's unless ``entropy`` gives each member another source, for tests.
        """
        shapes = {part.shape for part in parts}
        if len(parts) != self.members or len(shapes) != 1:
            raise InputError(
                f"a vertical sum is over {self.members} parts of one shape, not {sorted(map(str, shapes))}"
            )
        if not self.secure:
            total = parts[0].copy()
            for part in parts[1:]:
                total += part
            return total
        names = tuple(f"member-{number}" for number in range(1, self.members + 1))
        session = SystemEntropy().draw("session", SEED_BYTES)
        terms = SharingTerms(session, names, self.ring.bits, parts[0].size, self.colluders)
        vectors = {name: self._encode(name, part) for name, part in zip(names, parts, strict=True)}
        found = add_in_process(terms, vectors, entropy).total
        signed = found.view(self.ring.signed).reshape(parts[0].shape)
        return np.multiply(signed, 1 / self.scale, dtype=parts[0].dtype, casting="same_kind")

    def _encode(self, name: str, part: FloatArray) -> RingVector:
        """Round a part to whole numbers of the ring."""
        largest = max(float(part.max()), -float(part.min()))
        if not largest <= self.bound:  # also if it is not a number
            raise OverflowRisk(
                f"{name}'s part of the first layer has an entry of size {largest:.3g}, and the bound is "
                f"{self.bound:g}: scale the inputs down, take a smaller step, or raise confined.grid.bound"
            )
        scaled = np.multiply(part, self.scale).ravel()
        np.rint(scaled, out=scaled)
        return scaled.astype(self.ring.signed).view(self.ring.dtype)
