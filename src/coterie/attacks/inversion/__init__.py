"""Inversion of an update into the examples behind it."""

from coterie.attacks.inversion.attack import Inversion
from coterie.attacks.inversion.descent import Budget, exact_input, invert

__all__ = ["Budget", "Inversion", "exact_input", "invert"]
