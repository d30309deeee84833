"""The sensitivity of a sum: a certain bound on what one client can change in it, rounding included."""

import math
from dataclasses import dataclass
from numbers import Real

from coterie.arithmetic.quantize import Quantizer
from coterie.errors import ConfigError

REJECTION_BITS = 20
"""Rounding is repeated with a probability of at most 2^-20: too rarely to bias it, and cheap in sensitivity."""


@dataclass(frozen=True)
class Sensitivity:
    """What one client can change in the sum at most, in units of the ring: ||x||_2^2 and ||x||_1 of its integers."""

    l2_squared: int
    l1: int
    size: int

    def __post_init__(self) -> None:
        if not 1 <= self.l1 <= self.l2_squared or self.size < 1:
            raise ConfigError(f"impossible for vectors of integers: {self!r}")

    @property
    def replaced(self) -> "Sensitivity":
        """What one client can change if its vector is replaced by another one, not by zeros: twice the norms."""
        return Sensitivity(4 * self.l2_squared, 2 * self.l1, self.size)

    @classmethod
    def of(cls, quantizer: Quantizer, norm: float, size: int) -> "Sensitivity":
        """Return the bound for vectors of ``size`` entries and L2 norm at most ``norm``, after rounding.

        Let c be the norm in units of the ring and d the size. Rounding moves an entry by less than 1, so the
        integers' norm is below c + sqrt(d) for certain. It rarely comes near that: the squared norm of the integers
        has an expectation of at most c^2 + d / 4 and, the entries being independent, each within an interval of
        length 2|v| + 1 or less, exceeds it by sqrt(2 log(1 / b)) (c + sqrt(d) / 2) with probability at most b
        (Hoeffding). The smaller of the two is the bound, with b = 2^-20. It is enforced, not hoped for.

        For integers |x| <= x^2, hence ||x||_1 <= min(||x||_2^2, sqrt(d) ||x||_2).
        """
        if size < 1:
            raise ConfigError(f"a vector to add noise to has at least one entry, not {size}")
        c, root = checked_norm(norm) / quantizer.step, math.sqrt(size)
        certain = (c + root) ** 2
        if not certain < 2.0**62:
            raise ConfigError(f"a norm of {c:.3g} units of the ring is too large; lower the precision")
        likely = c**2 + size / 4 + math.sqrt(2 * REJECTION_BITS * math.log(2)) * (c + root / 2)
        l2_squared = max(1, math.floor(min(certain, likely)))
        return cls(l2_squared, min(l2_squared, math.isqrt(size * l2_squared)), size)


def checked_norm(norm: float) -> float:
    """Return the norm as a float; a number out of range is a :class:`ConfigError`."""
    if not isinstance(norm, Real) or not 1e-30 <= norm <= 1e30:
        raise ConfigError(f"the norm to clip to must be a number from 1e-30 to 1e30, not {norm!r}")
    return float(norm)
