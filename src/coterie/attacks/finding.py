"""Findings of an attack: who attacks and what with, then what came of it, then a card that sums up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.reports.html import Figure
from coterie.reports.words import Level

OnProgress: TypeAlias = Callable[[str, float], None]
"""Told what is being done and what share of it is done, from 0 to 1."""


@dataclass(frozen=True)
class Adversary:
    """Who attacks, with what; an attack touches nothing beyond it."""

    who: str
    sees: str
    knows: str
    may: str


class Effect(StrEnum):
    """What a defence does to an attack, with the verdict that a page shows it as."""

    level: Level

    def __new__(cls, name: str, level: Level) -> "Effect":
        """Make a string of the name, so that it is written to JSON as it is."""
        outcome = str.__new__(cls, name)
        outcome._value_ = name
        outcome.level = level
        return outcome

    ELIMINATED = "eliminated", Level.SAFE
    """It does no better than somebody who saw nothing, and theory says why."""
    REDUCED = "reduced", Level.CAUTION
    """It obtains less than without the defence, and still more than nothing."""
    NOT_ELIMINATED = "not eliminated", Level.DANGER
    NOT_SHOWN = "not shown", Level.NOTHING
    """It does no better than guessing here, and nothing proves that it never will."""


@dataclass(frozen=True)
class CardLine:
    """A line of the privacy card: an attack against one configuration."""

    attack: str
    against: str
    outcome: Effect
    why: str


@dataclass(frozen=True)
class WordTable:
    """Rows of words and numbers as they are shown, under a heading; the first column names the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, eq=False)
class Strip:
    """Rows of pictures: the same targets as they were, and as each attack saw them.

    A row is its label and an array targets x height x width, or with three colours x 3 at the end, from 0 to 1.
    """

    title: str
    rows: Sequence[tuple[str, npt.NDArray[np.floating[Any]]]]
    caption: str = ""


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure of the page, with its heading and caption."""

    title: str
    figure: Figure
    caption: str = ""


@dataclass(frozen=True, eq=False)
class AttackFinding:
    """What came of an attack."""

    level: Level
    """Of the protected configuration: what the page's verdict is coloured by."""
    headline: str
    """The verdict in one plain sentence."""
    setting: str
    """What was played, with every size that matters, in plain sentences."""
    measures: Mapping[str, Any]
    """Every number of it, as plain values for JSON."""
    tables: Sequence[WordTable]
    card: Sequence[CardLine]
    plots: Sequence[Plot] = ()
    strips: Sequence[Strip] = ()
    remarks: Sequence[str] = field(default=())
    """What a reader must know to judge it: limits, and what is not shown."""


class Attack(Protocol):
    """A frozen dataclass of an attack's settings."""

    name: ClassVar[str]
    """As on the command line."""
    title: ClassVar[str]

    @property
    def threat(self) -> Adversary:
        """Who attacks, with what."""
        ...

    def play(self, watch: OnProgress) -> AttackFinding:
        """Run it on both sides; what is found depends on the settings alone."""
        ...


def record(attack: Attack, finding: AttackFinding) -> dict[str, Any]:
    """Return all that a program may want to know, in the order in which a person reads it."""
    return {
        "attack": attack.name,
        "threat_model": asdict(attack.threat),
        "settings": {name: value for name, value in vars(attack).items() if not name.startswith("_")},
        "setting": finding.setting,
        **finding.measures,
        "verdict": finding.headline,
        "remarks": list(finding.remarks),
        "card": [asdict(line) for line in finding.card],
    }
