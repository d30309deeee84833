"""A model crafted by the server, which leaves examples as they are in the sum of all updates."""

from coterie.attacks.imprint.layer import Imprinter, craft, examples_in
from coterie.attacks.imprint.measure import Imprint

__all__ = ["Imprint", "Imprinter", "craft", "examples_in"]
