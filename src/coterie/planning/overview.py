"""Plans in short, for ``print`` and for a notebook: a headline, its meaning, and a table."""

import math
from collections.abc import Sequence

from coterie.reports.findings import Findings, Table
from coterie.reports.notebook import notebook_html
from coterie.reports.text import findings_text
from coterie.reports.words import Level


class ShortPlan:
    """A plan that is printed in short, and looks the same in a notebook."""

    @property
    def overview(self) -> Findings:
        """The plan in short."""
        raise NotImplementedError

    def __str__(self) -> str:
        return findings_text(self.overview)

    def _repr_html_(self) -> str:
        return notebook_html(self.overview)


def plan_overview(
    headline: str, about: str, tables: Sequence[Table], notes: Sequence[str], *, holds: bool | None
) -> Findings:
    """Return a plan in short; ``holds`` is whether its T holds over many rounds, None if it promises no T."""
    level = None if holds is None else Level.SAFE if holds else Level.CAUTION
    return Findings(headlines=[headline], about=about, level=level, tables=tables, remarks=notes)


def bound_words(log2: float) -> str:
    """Return a bound on a probability in words, rounded up, so that the printed number is a bound too."""
    if log2 == -math.inf:
        return "cannot happen with so few colluders and so many clients in the sum"
    return "no bound" if log2 == 0 else f"with probability at most 2^{math.ceil(10 * log2) / 10:.1f}"
