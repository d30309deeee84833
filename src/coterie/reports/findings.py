"""Findings: the results of an attack or an experiment, as plain data.

:class:`Findings` is the one type that every attack and every experiment returns from ``report``. Audits, plans and runs
have an overview of the same type. It is independent of its presentation: :mod:`coterie.cli.findings` prints it on a
terminal, :mod:`coterie.reports.html` makes a page of it, and :mod:`coterie.reports.markdown` writes it as Markdown.
:mod:`coterie.reports.text` and :mod:`coterie.reports.notebook` leave out claims, the card and all figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.reports.words import Level

if TYPE_CHECKING:
    from coterie.reports.charts import Figure

_NUMBER = 20  # characters of a number with its unit, at most
T = TypeVar("T")
"""The subject of a row of a table."""


class Effect(StrEnum):
    """The effect of a defence on an attack, with the level at which a page shows it."""

    level: Level

    def __new__(cls, name: str, level: Level) -> Effect:
        """Make a string of the name, so that it is written to JSON as it is."""
        effect = str.__new__(cls, name)
        effect._value_ = name
        effect.level = level
        return effect

    ELIMINATED = "eliminated", Level.SAFE
    """The attack does no better than guessing, and a theorem says why."""
    REDUCED = "reduced", Level.CAUTION
    """The attack obtains less than without the defence, but more than nothing."""
    NOT_ELIMINATED = "not eliminated", Level.DANGER
    NOT_SHOWN = "not shown", Level.NOTHING
    """The attack does no better than guessing here, but nothing proves that it never will."""


@dataclass(frozen=True)
class CardLine:
    """A line of the privacy card: an attack against one configuration."""

    attack: str
    against: str
    outcome: Effect
    why: str


class Judgement(StrEnum):
    """Whether a claim holds."""

    HOLDS = "holds"
    BY_CONSTRUCTION = "holds by construction"
    """It follows from the construction; a statistic could only show a bug."""
    FAILS = "does not hold"
    OPEN = "cannot be judged at this size"


@dataclass(frozen=True)
class Claim:
    """A claim, the statistic that decides it, and the judgement."""

    says: str
    statistic: str
    judgement: Judgement
    ours: bool = False
    """Whether it is our own check, and not a claim of the paper."""
    doubt: float | None = None
    """The p-value of the statistic; None if the claim is open, or decided without randomness."""
    needs: str = ""
    """What is needed to judge the claim, if it is open."""

    @property
    def headline(self) -> str:
        """The claim in a sentence."""
        return f"{'Our check: ' if self.ours else ''}{self.says}: {self.judgement}, {self.statistic}."

    def summary(self) -> dict[str, str | float]:
        """All fields for JSON."""
        source = "ours" if self.ours else "paper"
        found: dict[str, str | float] = {
            "claim": self.says,
            "statistic": self.statistic,
            "judgement": str(self.judgement),
            "source": source,
        }
        found |= {} if self.doubt is None else {"p": float(f"{self.doubt:.3g}")}
        return found | ({"needs": self.needs} if self.needs else {})


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers as they are shown; the first column names the row.

    ``lead`` stands before the table and ``note`` after it. A table without a title belongs to the one before it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    lead: str = ""

    @classmethod
    def of(
        cls, title: str, items: Iterable[T], columns: Sequence[tuple[str, Callable[[T], str]]], note: str = ""
    ) -> Table:
        """Return a table with a row for each item. A column is its heading, and a function that writes its cell."""
        rows = [[write(item) for _, write in columns] for item in items]
        return cls(title, [heading for heading, _ in columns], rows, note)

    @property
    def word_columns(self) -> list[bool]:
        """For each column, whether it has names or sentences, which are shown on the left, and not numbers."""
        return [
            not number or len(self.columns) == 2 or any(len(row[number]) > _NUMBER for row in self.rows)
            for number in range(len(self.columns))
        ]

    def without_empty_columns(self) -> Table:
        """Return the table without the columns in which no row has anything."""
        kept = [place for place in range(len(self.columns)) if any(row[place] for row in self.rows)]
        columns, *rows = ([row[place] for place in kept] for row in (self.columns, *self.rows))
        return replace(self, columns=columns, rows=rows)


@dataclass(frozen=True, eq=False)
class Plot:
    """An interactive figure for a page, drawn by plotly.js, with its heading and caption."""

    title: str
    figure: Figure
    caption: str = ""


@dataclass(frozen=True, eq=False)
class Drawing:
    """A PNG beside a Markdown report: the name of its file, and a function that draws it with matplotlib."""

    file: str
    draw: Callable[[Path], None]


@dataclass(frozen=True, eq=False)
class Strip:
    """Rows of pictures: the same targets as they were, and as each attack recovered them.

    A row is its label and an array targets x height x width, with x 3 at the end for colours, from 0 to 1.
    """

    title: str
    rows: Sequence[tuple[str, npt.NDArray[np.floating[Any]]]]
    caption: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """The findings, in reading order. Renderers leave out empty fields."""

    headlines: Sequence[str]
    """The verdict: a sentence for an attack, a list of sentences for an experiment."""
    about: str
    """The setting, with every relevant size, and how to read the tables."""
    level: Level | None = None
    """The verdict on the protected configuration; None if the findings have none."""
    claims: Sequence[Claim] = ()
    """Claims of a paper and our own checks, judged."""
    claims_note: str = ""
    """How the claims were judged."""
    claims_last: bool = False
    """Whether the claims are shown after the tables."""
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    pictures: Sequence[Strip] = ()
    drawings: Sequence[Drawing] = ()
    card: Sequence[CardLine] = ()
    remarks: Sequence[str] = ()
    """Remarks that readers need to judge the findings: limits, and what is not shown."""
    remarks_title: str = "Notes"
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Every number, as plain values for JSON."""

    @property
    def headline(self) -> str:
        """The verdict in one text."""
        return " ".join(self.headlines)

    @property
    def claim_tables(self) -> list[Table]:
        """Tables of the paper's claims, of our own checks, and of what is needed to judge the open ones.

        The note stands below the verdicts.
        """
        sources = {False: "What the paper claims", True: "What we checked beside it"}
        tables = [
            Table(
                title,
                ("claim", "statistic", "judgement"),
                [(claim.says, claim.statistic, str(claim.judgement)) for claim in self.claims if claim.ours is ours],
            )
            for ours, title in sources.items()
        ]
        shown = [table for table in tables if table.rows]
        return [*shown[:-1], *(replace(last, note=self.claims_note) for last in shown[-1:]), *self._open_claims()]

    def _open_claims(self) -> Iterator[Table]:
        """Return what is needed to judge the open claims; claims with the same needs share a row."""
        alike: dict[str, list[str]] = {}
        for claim in self.claims:
            if claim.needs:
                alike.setdefault(claim.needs, []).append(claim.says)
        rows = [
            (f"{first}; and {len(others)} more" if others else first, needs)
            for needs, (first, *others) in alike.items()
        ]
        if rows:
            yield Table("What it would take to judge the others", ("claim", "what is missing"), rows)
