"""Participants with models of their own: how much these differ, and what the worst of them is worth."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from coterie.runs.summary import Summary
    from coterie.training.evaluate import Score

COLUMNS = ("spread", "worst")
"""Their standard deviation and the worst of them: in accuracy, or in loss where targets are no labels."""


def compare(own: "Mapping[str, Score]") -> dict[str, float]:
    """Return the values of :data:`COLUMNS` for the scores of everybody's own model; nothing where there are none.

    A spread of at most gamma is what Li et al. 2021 (and CGD after them) call gamma-fair.
    """
    scores = list(own.values())
    if not scores:
        return {}
    accuracies = [score.accuracy for score in scores if score.accuracy is not None]
    values = accuracies or [score.loss for score in scores]
    return {"spread": float(np.std(values)), "worst": min(values) if accuracies else max(values)}


def in_a_sentence(summary: "Summary") -> str:
    """Say how equally good the participants' models are."""
    spread, worst = (summary.extras.get(column) for column in COLUMNS)
    if spread is None or worst is None:
        return "The clients' own models were not compared yet."
    if summary.accuracy is None:
        return f"Their losses have a standard deviation of {spread:.4g}; the worst is {worst:.4g}."
    return (
        f"From client to client the accuracy has a standard deviation of {100 * spread:.1f} points; "
        f"the worst client's model is right on {worst:.1%}."
    )
