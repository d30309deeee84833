"""The recipe: how a node's reply becomes its contribution. It is permanent for a roster.

T counts columns of the participation matrix, which has entries 0 and 1. If a server could change *how* contributions
are made between sessions, sums over one circle would become independent equations: with ten different caps on the
weights, ten sums over a circle of four reveal all four updates, although the matrix does not show it. So the server
chooses a recipe once, when it founds the roster. The roster's digest covers it, and nodes read it from the roster that
they trust.
"""

import fnmatch
import math
import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec.structs import force_setattr

from coterie.arithmetic.quantize import Quantizer
from coterie.cohorts.roster import Roster
from coterie.deployment.confinement import Confinement
from coterie.deployment.engine import Arrays
from coterie.errors import ConfigError

WIDE = 1e6
_PLAIN = re.compile(r"(?!(?:none|integers)$)[\w.*?/:+-]+")
STATISTICS = (("*running_mean", WIDE), ("*running_var", WIDE), ("*num_batches_tracked", WIDE))
"""Ranges of the running statistics of batch normalisation, which move far in a round."""
VARYING = ("num-server-rounds", "server-round")
"""Configuration keys that may always differ between sessions: the number of the round, and the number of rounds."""
NEW_POPULATION = "found another population: a new COTERIE_HOME for the server and a new coterie-folder for every node"


class Metric(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A metric that is averaged: its name in the replies, and the range that its values are clipped to."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        force_setattr(self, "name", str(self.name))
        force_setattr(self, "low", float(self.low))
        force_setattr(self, "high", float(self.high))

    def __str__(self) -> str:
        return f"{_word(self.name)} from {self.low!r} to {self.high!r}"

    @property
    def middle(self) -> float:
        """The middle of the range; one of its ends if there is no float between them."""
        return self.low / 2 + self.high / 2

    @property
    def usable(self) -> bool:
        """Whether the range is finite and has numbers between its ends."""
        return self.low < self.middle < self.high and self.high - self.low < math.inf


class RosterRecipe(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag=1):
    """How nodes make their contributions; the same for all nodes of a roster, in every session."""

    weight: str = "num-examples"
    """The metric that replies are weighted by."""
    most_weight: int = 10_000
    """The largest weight of a node."""
    precision: int = 24
    """Bits of an entry at full weight."""
    clip: float = 1.0
    """The largest change of an entry of a model in a round."""
    counter_clip: float = WIDE
    """The largest change in arrays of integers, such as batch counters."""
    clips: tuple[tuple[str, float], ...] = STATISTICS
    """Ranges of some arrays, by patterns of their names; the first that matches counts."""
    train_metrics: tuple[Metric, ...] = ()
    evaluate_metrics: tuple[Metric, ...] = ()
    varying: tuple[str, ...] = VARYING
    """Keys of configurations that may differ from session to session."""

    def __post_init__(self) -> None:
        # A clip of 2 and one of 2.0 are equal but have different bytes, which would change the roster's digest.
        force_setattr(self, "weight", str(self.weight))
        force_setattr(self, "clip", float(self.clip))
        force_setattr(self, "counter_clip", float(self.counter_clip))
        force_setattr(self, "clips", tuple((str(name), float(clip)) for name, clip in self.clips))
        force_setattr(self, "varying", tuple(sorted({str(name) for name in self.varying})))
        if not all(metric.usable for metric in self.train_metrics + self.evaluate_metrics):
            raise ConfigError("a metric is declared by a name and a range (low, high), with numbers in between")
        for metrics in self.train_metrics, self.evaluate_metrics:
            # One metric in many ranges would reveal the values of the nodes of a circle.
            names = [self.weight, *(metric.name for metric in metrics)]
            if len(set(names)) < len(names):
                raise ConfigError("a metric is declared once, and is not the weight")
        ranges = [self.clip, self.counter_clip, *(clip for _, clip in self.clips)]
        if not all(1e-30 <= value <= 1e30 for value in ranges):
            raise ConfigError("the ranges of arrays are positive numbers")
        self.quantizer(2)

    def quantizer(self, clients: int) -> Quantizer:
        """Return the quantizer of numbers from -1 to 1; a :class:`ConfigError` if there is none.

        The number of clients changes only the number of bits of an element.
        """
        return Quantizer(1.0, self.precision, clients, self.most_weight, min_weight=0, dither=True)

    @staticmethod
    @lru_cache(maxsize=16)
    def from_bytes(data: bytes) -> "RosterRecipe":
        """Read what :meth:`to_bytes` wrote, and check it. The last few are remembered: every message needs one."""
        try:
            recipe = msgspec.msgpack.decode(data, type=RosterRecipe | ConfinedRecipe)
        except ValueError as error:
            raise ConfigError(f"not a recipe: {error}") from error
        if recipe.to_bytes() != data:
            raise ConfigError("not a recipe: this version would write it differently")
        return recipe

    @staticmethod
    def of(roster: Roster) -> "RosterRecipe":
        """Return the recipe of a roster; a :class:`ConfigError` if an older version founded it without one."""
        if not roster.recipe:
            raise ConfigError(
                "an older version of Coterie founded this roster and did not fix how contributions are made; "
                + NEW_POPULATION
            )
        return RosterRecipe.from_bytes(roster.recipe)

    def to_bytes(self) -> bytes:
        """Encode the recipe; equal recipes have equal bytes."""
        return msgspec.msgpack.encode(self)

    def settings(self) -> dict[str, str]:
        """Return each setting by its name in a strategy, as text that is different for different settings."""
        return {
            "weighted_by_key": _word(self.weight),
            "most_examples": f"{self.most_weight:,}",
            "precision": f"{self.precision} bits",
            "clip": repr(self.clip),
            "clips": ", ".join(
                [*(f"{_word(name)} {clip!r}" for name, clip in self.clips), f"integers {self.counter_clip!r}"]
            ),
            "train_metrics": ", ".join(map(str, self.train_metrics)) or "none",
            "evaluate_metrics": ", ".join(map(str, self.evaluate_metrics)) or "none",
            "varying": ", ".join(map(_word, self.varying)) or "none",
        }

    def check_kept(self, asked: "RosterRecipe") -> None:
        """Refuse a strategy's settings if they differ from those of the roster."""
        ours, theirs = self.settings(), asked.settings()
        for name in {**ours, **theirs}:
            founded, now = ours.get(name, "none"), theirs.get(name, "none")
            if now != founded:
                raise ConfigError(
                    f"{name} is {now!r}, and the roster was founded with {founded!r}. How contributions are "
                    f"made is fixed for a roster: set {name} back, or {NEW_POPULATION}"
                )


class ConfinedRecipe(RosterRecipe, frozen=True, kw_only=True, tag=2):
    """The recipe of a roster whose nodes train their own models."""

    confinement: Confinement

    def settings(self) -> dict[str, str]:
        """Return each setting; confined descent comes last."""
        return {**super().settings(), "confined": str(self.confinement)}


def check_confinable(arrays: Arrays) -> None:
    """Refuse a model with arrays that are not parameters, because a random start would make them meaningless."""
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            raise ConfigError(f"confined descent moves floating-point numbers, and array {name!r} is of {array.dtype}")
        if any(fnmatch.fnmatchcase(name, pattern) for pattern, _ in STATISTICS):
            raise ConfigError(
                f"array {name!r} is a running statistic, which confined descent cannot move: replace batch "
                "normalisation by layer or group normalisation"
            )


def _word(name: str) -> str:
    """Return a name, in quotes if it could be mistaken for several names or for other words."""
    return name if _PLAIN.fullmatch(name) and name.isascii() else repr(name)


def to_metrics(ranges: Mapping[str, tuple[float, float]]) -> tuple[Metric, ...]:
    """Return metrics in the order of their names."""
    return tuple(Metric(name, low, high) for name, (low, high) in sorted(ranges.items()))
