"""Imprinting: a model crafted by the server, so that the sum of all updates contains single examples."""

from coterie.attacks.imprint.layer import Imprinter, craft, examples_in
from coterie.attacks.imprint.measure import Imprint

__all__ = ["Imprint", "Imprinter", "craft", "examples_in"]
