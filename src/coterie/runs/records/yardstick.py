"""The yardstick of a run: by which number its models are judged, what that is called and how it is written.

Everything that shows how well a model does asks here: whether targets are labels or numbers is decided once, where the
federation is put together, and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from coterie.runs.records.record import RoundRecord


@dataclass(frozen=True)
class Yardstick:
    """A number that the record of a round has in ``column``, on the test examples."""

    name: str
    column: Literal["accuracy", "test_loss"]
    scaling: str = ""
    """How targets were scaled, in words, where they were."""
    unit: str = ""
    """The unit of the records' ``error``; empty where they have none."""
    rules: Mapping[str, float] = field(default_factory=dict)
    """What rules of thumb score that learn nothing, by their names."""

    @property
    def share(self) -> bool:
        """Whether it is a share of the examples, and the more the better; otherwise, the less the better."""
        return self.column == "accuracy"

    def of(self, record: RoundRecord) -> float | None:
        """Return what a round reached; None where it was not evaluated."""
        value: float | None = getattr(record, self.column)
        return value

    def written(self, value: float) -> str:
        """Return a value as it is shown."""
        return f"{value:.1%}" if self.share else f"{value:.4g}"

    def told(self, value: float) -> str:
        """Return a value with the name: "93.1% accuracy", "a loss of 0.21"."""
        return f"{self.written(value)} {self.name}" if self.share else f"a {self.name} of {self.written(value)}"


ACCURACY = Yardstick("accuracy", "accuracy")
"""For labels."""
SQUARED_ERROR = Yardstick("mean squared error", "test_loss")
"""For a regression."""
LOSS = Yardstick("loss", "test_loss")
"""For a regression by a loss of the user's own."""
