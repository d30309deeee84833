"""The report on property inference: numbers, scores of all clients, verdict and card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.attacks.finding import AttackFinding, CardLine, Effect, Plot, WordTable
from coterie.reports.html import Figure
from coterie.reports.words import Level, count

if TYPE_CHECKING:
    from coterie.attacks.property.simulated import PropertyInference, PropertyTrial
    from coterie.attacks.rounds import Side

_HAVING, _OTHERS = 0.16, -0.16  # where points lie beside the line of their side
_SCORES = (
    "A point is a client in a trial. Where red and grey points lie apart, the server knows who has the property; "
    "circle mates have one score, so that a red point has a grey one below it wherever not all of its circle have it."
)


def tell(
    attack: PropertyInference, sides: Sequence[Side], found: Mapping[str, Sequence[PropertyTrial]]
) -> AttackFinding:
    """Tell what came of all trials under every way to choose cohorts."""
    results = {side.name: _numbers(found[side.name]) for side in sides}
    held = {side.name: side.circles and all(one.equal_scores for one in found[side.name]) for side in sides}
    random, circles = results["random"], results["multi-round"]
    apart = "and tells nobody from its circle" if held["multi-round"] else "and circles did not hold"
    return AttackFinding(
        level=Level.DANGER if not held["multi-round"] else Level.CAUTION if _works(circles) else Level.SAFE,
        headline=f"With random selection the server {'finds' if _works(random) else 'does not find'} clients that have "
        f"the property: AUC {random['auc']:.2f}, {_share(random['auc_among_mates'])} within groups of "
        f"{attack.privacy[0]}. With circles of {attack.privacy[0]} it learns which circles have such a member, "
        f"AUC {circles['auc']:.2f}, {apart}: {_share(circles['auc_among_mates'])} within circles.",
        setting=f"{attack.clients} clients with {attack.examples} examples each of {attack.data} train {attack.model} "
        f"for {attack.rounds} rounds of {attack.cohort}, with ordinary steps; a client is lost inside a round with "
        f"{attack.dropouts:.0%}. The property: {attack.share:.0%} of the pictures are upside down; {attack.holders} "
        f"clients have it. In every round the server trains {attack.own_clients} clients of its own to fit a detector. "
        f"{count(attack.trials, 'trial')}. Sums are added up in the clear, since nothing else of a round is used.",
        measures={
            "policies": results,
            "no_information": {
                "auc": 0.5,
                "accuracy": max(attack.holders, attack.clients - attack.holders) / attack.clients,
            },
        },
        tables=[_table(attack, sides, results)],
        plots=[Plot("What the server makes of each client", draw_scores(sides, found), _SCORES)],
        card=[line for side in sides for line in _card(side, results[side.name], held=held[side.name])],
        remarks=[
            "That one of a circle has the property is learnt under circles too: with few members it says much about "
            "each of them. Larger circles say less, and noise is what bounds it.",
        ],
    )


def _works(one: Mapping[str, Any]) -> bool:
    """Tell whether the ranking is better than guessing, by two deviations of the trials."""
    return bool(one["auc"] - 2 * one["auc_spread"] > 0.5)


def _numbers(trials: Sequence[PropertyTrial]) -> dict[str, Any]:
    within = [trial.among_mates for trial in trials if trial.among_mates is not None]
    return {
        "auc": float(np.mean([trial.auc for trial in trials])),
        "auc_spread": float(np.std([trial.auc for trial in trials])),
        "auc_among_mates": float(np.mean(within)) if within else None,
        "auc_by_circle_counts": float(np.mean([trial.best_by_circles for trial in trials])),
        "accuracy": float(np.mean([trial.accuracy for trial in trials])),
    }


def _table(attack: PropertyInference, sides: Sequence[Side], results: Mapping[str, Mapping[str, Any]]) -> WordTable:
    return WordTable(
        "How well clients with the property are found",
        ("selection", "AUC", "± over trials", "among mates", "by circles' counts", "accuracy"),
        [
            (
                side.words,
                f"{one['auc']:.2f}",
                f"{one['auc_spread']:.2f}",
                _share(one["auc_among_mates"]),
                f"{one['auc_by_circle_counts']:.2f}" if side.circles and side.aligned else "",
                f"{one['accuracy']:.0%}",
            )
            for side, one in ((side, results[side.name]) for side in sides)
        ],
        "AUC: how often a client that has the property is ranked above one that has not; 0.5 is guessing. Among mates: "
        "the same over pairs within a circle, or a group drawn like one. By circles' counts: the AUC of knowing how "
        f"many of each circle have it. Accuracy: of calling scores above a half; calling the same of all is right for "
        f"{_majority(attack):.0%}.",
    )


def _card(side: Side, one: Mapping[str, Any], *, held: bool) -> Iterator[CardLine]:
    if not held:
        why = f"AUC {one['auc']:.2f}, and {_share(one['auc_among_mates'])} among mates; guessing: 0.5"
        yield CardLine("find who has a property", side.words, Effect.NOT_ELIMINATED, why)
        return
    yield CardLine(
        "tell a client from its circle by a property",
        side.words,
        Effect.ELIMINATED,
        "circle mates have equal columns in every history, so they get equal scores: 0.5 among mates, as by guessing",
    )
    yield CardLine(
        "find circles that have a property",
        side.words,
        Effect.REDUCED,
        f"AUC {one['auc']:.2f}; knowing how many of each circle have it would give {one['auc_by_circle_counts']:.2f}",
    )


def _majority(attack: PropertyInference) -> float:
    return max(attack.holders, attack.clients - attack.holders) / attack.clients


def _share(value: float | None) -> str:
    return "no pairs" if value is None else f"{value:.2f}"


def draw_scores(sides: Sequence[Side], found: Mapping[str, Sequence[PropertyTrial]]) -> Figure:
    """Draw the score of every client in every trial, those with the property above the line of their side."""
    names = [side.words for side in sides]
    traces = []
    for name, color, kind, beside in (
        ("has the property", "@danger", True, _HAVING),
        ("has not", "@muted", False, _OTHERS),
    ):
        points = [
            (float(score), len(sides) - 1 - row + beside)
            for row, side in enumerate(sides)
            for trial in found[side.name]
            for score in trial.scores[trial.having == kind]
        ]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [score for score, _ in points],
                "y": [place for _, place in points],
                "marker": {"color": color, "size": 8, "opacity": 0.5},
                "hovertemplate": "score %{x:.2f}<extra></extra>",
            }
        )
    layout = {
        "xaxis": {"title": {"text": "score: about 1 for who has the property"}},
        "yaxis": {"tickvals": list(range(len(sides))), "ticktext": names[::-1], "automargin": True},
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    }
    apart = "; ".join(f"{side.words}: AUC {np.mean([trial.auc for trial in found[side.name]]):.2f}" for side in sides)
    return Figure(traces, layout, 120 + 70 * len(sides), f"The score of every client. {apart}.")
