"""Confinement: the part of a roster's recipe that is about confined descent.

Every node trains its own model, which starts at a private random point around the server's first model. The server
learns sums of changes and sends the models that follow from them. A node moves by the difference of two such models, or
refuses the move because its own loss would increase. See :mod:`~coterie.deployment.confined`.
"""

import math
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import force_setattr

from coterie.deployment.engine import Arrays
from coterie.errors import ConfigError, InputError

_SPREAD = 0.1


class Confinement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """How a node's own model starts, moves and contributes; the same for all nodes of a roster in every session."""

    loss: str = "train_loss"
    """The metric in the reply of the app's train function that is the loss of the model *as it was received*."""
    spread: float = _SPREAD
    """lambda: the standard deviation of a private start around the server's first model."""
    norm: float = 1.0
    """The L2 norm, over all arrays, that a node's change is scaled down to."""
    threshold: float | None = 0.0
    """By how much a move may increase the node's own loss; None takes every move."""
    tau: int | None = 30
    """A node that refused this many consecutive moves contributes no change until it accepts one; None is no bound."""

    def __post_init__(self) -> None:
        # A spread of 0 and one of 0.0 are equal but have different bytes, which would change the roster's digest.
        if not isinstance(self.loss, str) or not self.loss:
            raise ConfigError(f"confined: loss is the name of a metric, not {self.loss!r}")
        _check("spread", self.spread, above=False)
        _check("norm", self.norm, above=True)
        force_setattr(self, "loss", str(self.loss))
        force_setattr(self, "spread", float(self.spread))
        force_setattr(self, "norm", float(self.norm))
        if self.threshold is not None:
            _check("threshold", self.threshold, above=False)
            force_setattr(self, "threshold", float(self.threshold))
        if self.tau is not None and (isinstance(self.tau, bool) or not isinstance(self.tau, int) or self.tau < 1):
            raise ConfigError(f"confined: tau is a whole number of at least 1, or None, not {self.tau!r}")

    def largest(self, kind: np.dtype[Any]) -> float:
        """Return the largest entry that a public model of this type may have.

        Beside a larger entry, rounding would leave less than five bits of a start, and soon none: a node's own model
        would equal the server's. A wider type than float32 does not help, because apps compute in float32. The limit
        follows from the roster's spread, which is public, or from the default if that is 0, since nodes may have their
        own.
        """
        spread = self.spread or _SPREAD
        return spread * 2.0 ** (min(np.finfo(kind).nmant, np.finfo(np.float32).nmant) - 5)

    def check_bound(self, model: Arrays) -> None:
        """Raise :class:`~coterie.errors.InputError` if a public model has entries beside which starts are lost."""
        for name, array in model.items():
            found, largest = float(np.abs(array).max(initial=0.0)), self.largest(array.dtype)
            if found > largest:
                raise InputError(
                    f"array {name!r} has an entry of size {found:.3g}, and nodes refuse models with entries above "
                    f"{largest:.3g}, beside which their private starts would be lost"
                )

    def __str__(self) -> str:
        check = "no loss check" if self.threshold is None else f"threshold {self.threshold!r} of {self.loss!r}"
        return f"spread {self.spread!r}, norm {self.norm!r}, {check}, tau {self.tau or 'none'}"


def _check(name: str, value: object, *, above: bool) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not isinstance(value, int | float) or value < 0 or (above and value == 0):
        raise ConfigError(f"confined: {name} is a finite number {'above' if above else 'of at least'} 0, not {value!r}")
