"""Targets: costs that a benchmark holds its measurements against."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A cost, and the most that it should be."""

    what: str
    measured: float
    most: float

    @property
    def ratio(self) -> float:
        """The measured cost, relative to the target; at most 1 if it is met."""
        return self.measured / self.most
