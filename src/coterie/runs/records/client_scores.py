"""The scores of single clients: the quality of models on each client's own test examples.

A run saves them in ``clients.csv`` and draws them on its page. Personal models are scored on the examples of their
client first; :class:`Basis` says which examples these are.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from coterie.runs.records.yardstick import Yardstick

OWN_MODEL = "own"
"""The name of the personal model among the models of a client."""


class Basis(Enum):
    """Which test examples belong to a client, with a sentence for each."""

    TESTS = "each client's own test examples"
    HELD_OUT = "examples of each client that it keeps for testing (clients.holdout)"
    PROPORTIONS = (
        "the common test examples, with labels in the proportions of the client's own training examples: clients have "
        "no test examples of their own"
    )
    COMMON = "the common test examples: clients have no test examples of their own"


@dataclass(frozen=True)
class ClientScore:
    """The scores of one client."""

    client: str
    train_examples: int
    test_examples: int
    values: Mapping[str, Mapping[str, float | None]]
    """For each model, its loss, its accuracy (None where targets are numbers) and its metrics."""


@dataclass(frozen=True)
class ClientScores:
    """The scores of all clients, or of a sample if there are many."""

    basis: Basis
    model: str
    """The model that clients are compared by: :data:`OWN_MODEL`, or the common one."""
    rows: Sequence[ClientScore] = field(repr=False)
    clients: int = 0
    """The number of all clients; if there are fewer rows, these are a sample."""

    @property
    def personal(self) -> bool:
        """Whether clients have their own models."""
        return self.model == OWN_MODEL

    def ranked(self, yardstick: Yardstick) -> list[tuple[str, float]]:
        """Return the clients with their quality by the yardstick, the worst first."""
        column = "accuracy" if yardstick.share else "loss"
        known = [(row.client, row.values.get(self.model, {}).get(column)) for row in self.rows]
        found = [(client, value) for client, value in known if value is not None]
        return sorted(found, key=lambda pair: (pair[1] if yardstick.share else -pair[1], pair[0]))

    def mean(self, yardstick: Yardstick) -> float | None:
        """Return the mean quality over clients."""
        values = [value for _, value in self.ranked(yardstick)]
        return math.fsum(values) / len(values) if values else None

    def table(self) -> str:
        """Return the table as CSV: a row for each client, and for each model its loss, accuracy and metrics."""
        models = dict.fromkeys(model for row in self.rows for model in row.values)
        names = dict.fromkeys(name for row in self.rows for values in row.values.values() for name in values)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        columns = [(model, name) for model in models for name in names]
        writer.writerow(["client", "train_examples", "test_examples", *(f"{model}_{name}" for model, name in columns)])
        for row in self.rows:
            values = [row.values.get(model, {}).get(name) for model, name in columns]
            cells = ["" if value is None else value for value in values]
            writer.writerow([row.client, row.train_examples, row.test_examples, *cells])
        return text.getvalue()


def mean_in_table(text: str, name: str) -> float | None:
    """Return the mean over clients of a score in a table by :meth:`ClientScores.table`; None if it is not there.

    Its first model is the one that clients are compared by, and the first score of a model is its loss.
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    headings = list(rows[0]) if rows else []
    model = next((heading.removesuffix("_loss") for heading in headings if heading and heading.endswith("_loss")), None)
    values = [float(cell) for row in rows if (cell := row.get(f"{model}_{name}"))]
    return math.fsum(values) / len(values) if values else None
