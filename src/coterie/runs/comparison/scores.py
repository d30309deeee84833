"""Scores: the numbers that runs are compared by, and which direction is better."""

from dataclasses import dataclass

from coterie.reports.words import score_format
from coterie.training.metrics import METRICS, metric_form


@dataclass(frozen=True)
class Score:
    """A number on the test examples: a column of the records of a run, or of a baseline."""

    column: str
    name: str
    share: bool
    """Whether it is a share of the examples, which is written in per cent."""
    larger: bool
    """Whether larger values are better."""

    def write(self, value: float) -> str:
        """Return a value as text."""
        return f"{value:{score_format(share=self.share)}}"

    def best(self, values: list[float]) -> float:
        """Return the best of some values."""
        return max(values) if self.larger else min(values)

    def reaches(self, value: float, target: float) -> bool:
        """Return whether a value is as good as the target, or better."""
        return value >= target if self.larger else value <= target


def metric_score(setting: str) -> Score:
    """Return the score of a metric that ``training.metrics`` names."""
    form = metric_form(setting)
    return Score(form.column, form.title, form.share, form.larger)


SCORES = {
    "accuracy": Score("accuracy", "accuracy", share=True, larger=True),
    "test_loss": Score("test_loss", "test loss", share=False, larger=False),
    "error": Score("error", "absolute error", share=False, larger=False),
    **{name: metric_score(name) for name in METRICS},
}
"""The scores of the tables, by their columns; runs may have recorded metrics of the user as well."""
OTHER_NAMES = {"loss": "test_loss", "test_accuracy": "accuracy", "acc": "accuracy"}
"""Other headings for these scores in a baseline."""


def find_score(heading: str) -> Score | None:
    """Return the score that a heading names; None if it names none."""
    name = heading.strip().lower().replace(" ", "_")
    return SCORES.get(OTHER_NAMES.get(name, name))
