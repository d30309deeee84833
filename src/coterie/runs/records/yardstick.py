"""The yardstick of a run: the number that its models are scored by, its name and its format.

Console, summary, page and figures use it. Whether targets are labels or numbers is decided in one place, where the
federation is built.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from coterie.reports.words import score_format
from coterie.runs.records.record import RoundRecord


@dataclass(frozen=True)
class Yardstick:
    """A number that the record of a round has in ``column``, on the test examples."""

    name: str
    column: Literal["accuracy", "test_loss"]
    scaling: str = ""
    """How targets were scaled, in words, if they were."""
    unit: str = ""
    """The unit of ``error`` in the records; empty if it has none."""
    rules: Mapping[str, float] = field(default_factory=dict)
    """The scores of simple rules that learn nothing, by their names."""

    @property
    def share(self) -> bool:
        """Whether it is a share of the examples. Then larger is better; otherwise smaller is better."""
        return self.column == "accuracy"

    def of(self, record: RoundRecord) -> float | None:
        """Return the value of a round; None if it was not evaluated."""
        value: float | None = getattr(record, self.column)
        return value

    def written(self, value: float) -> str:
        """Return a value as text."""
        return f"{value:{score_format(share=self.share)}}"

    def describe(self, value: float) -> str:
        """Return a value with the name: "93.1% accuracy", "a loss of 0.21"."""
        return f"{self.written(value)} {self.name}" if self.share else f"a {self.name} of {self.written(value)}"


ACCURACY = Yardstick("accuracy", "accuracy")
"""For labels."""
SQUARED_ERROR = Yardstick("mean squared error", "test_loss")
"""For a regression."""
LOSS = Yardstick("loss", "test_loss")
"""For a regression with a loss function of the user."""
