"""Personal models: how much their quality differs between clients, and how good the worst one is."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from coterie.runs.records.client_scores import Basis
from coterie.runs.records.summary import Summary

if TYPE_CHECKING:
    from coterie.training.evaluate import Score

COLUMNS = ("spread", "worst", "loss_spread")
"""Of the personal models: the standard deviation of their quality, the worst quality, and the deviation of their loss.

Quality is accuracy, or the loss if targets are not labels. All are on the test examples.
"""

WITHHELD = "is not recorded: it would show their data without the noise"
"""The text in place of these numbers in a run whose sums have noise."""


def quality(score: "Score") -> float:
    """Return the accuracy or, if targets are not labels, the loss."""
    return score.loss if score.accuracy is None else score.accuracy


def compare(scores: "Mapping[str, Score]", aside: Mapping[str, str]) -> dict[str, float]:
    """Return the values of :data:`COLUMNS`, and the scores of the models in ``aside``, by the columns that it gives.

    CGD, Definition 2, calls models gamma-fair if the standard deviation of their test *loss* is at most gamma; its
    tables have the deviation of the accuracy. The result is empty if nothing was scored.
    """
    found = {column: quality(scores[name]) for name, column in aside.items() if name in scores}
    own = [score for name, score in scores.items() if name not in aside]
    if not own:  # with noise, clients' own models are not scored
        return found
    values = [quality(score) for score in own]
    worst = max(values) if own[0].accuracy is None else min(values)
    loss_spread = float(np.std([score.loss for score in own]))
    return {"spread": float(np.std(values)), "worst": worst, "loss_spread": loss_spread} | found


def in_a_sentence(summary: Summary) -> str:
    """Return a sentence on how equal the models are in quality."""
    spread, worst, loss_spread = (summary.extras.get(column) for column in COLUMNS)
    if summary.epsilon is not None:
        return f"The score of the clients' own models {WITHHELD}."
    if spread is None or worst is None:
        return "The clients' own models were not compared yet."
    everybody = summary.client_scores is not None and summary.client_scores.basis is Basis.PROPORTIONS
    beginning = "On the test examples of everybody, from" if everybody else "From"
    if summary.yardstick.share:
        losses = "" if loss_spread is None else f", and the loss one of {loss_spread:.3g} (gamma-fairness)"
        return (
            f"{beginning} client to client the accuracy has a standard deviation of {100 * spread:.1f} points{losses}; "
            f"the worst client's model classifies {worst:.1%} correctly."
        )
    return (
        f"{beginning} client to client the {summary.yardstick.name} has a standard deviation of {spread:.4g}; "
        f"the worst is {worst:.4g}."
    )
