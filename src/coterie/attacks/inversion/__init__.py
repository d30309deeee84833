"""Inversion of an update into the examples behind it."""

from coterie.attacks.inversion.descent import Budget, exact_input, invert
from coterie.attacks.inversion.measure import Inversion

__all__ = ["Budget", "Inversion", "exact_input", "invert"]
