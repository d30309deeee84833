"""The report on property inference: how well the server finds the clients that have a property."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.reports.charts import Figure, make_layout
from coterie.reports.findings import CardLine, Effect, Findings, Plot, Table
from coterie.reports.intervals import spread, spread_cell
from coterie.reports.words import Level, count

if TYPE_CHECKING:
    from coterie.attacks.federation import Side
    from coterie.attacks.property.measure import PropertyInference, PropertyTrial

_DOUBT = 0.05  # of calling a ranking better than guessing that is not
_HAVING, _OTHERS = 0.16, -0.16  # where points lie beside the line of their side
_SCORES = (
    "A point is a client in a trial. Where red and grey points lie apart, the server knows who has the property; "
    "circle mates have one score, so that a red point has a grey one below it wherever not all of its circle have it."
)


def report(attack: PropertyInference, found: Mapping[str, Sequence[PropertyTrial]]) -> Findings:
    """Report on the trials of every way to choose cohorts."""
    sides = attack.sides(0)
    results = {side.name: _numbers(found[side.name]) for side in sides}
    held = {
        side.name: side.circles and side.aligned and all(one.equal_scores for one in found[side.name]) for side in sides
    }
    random, circles = results["random"], results["multi-round"]
    works = _works(random) or _works(circles)
    return Findings(
        level=Level.DANGER if not held["multi-round"] else Level.CAUTION if works else Level.NOTHING,
        headlines=[_headline(attack.privacy[0], random, circles, held=held["multi-round"])],
        about=f"{attack.clients} clients with {attack.examples} examples each of {attack.data} train {attack.model} "
        f"for {count(attack.rounds, 'round')} of {attack.cohort}, with ordinary steps; a client is lost inside a round "
        f"with {attack.dropouts:.0%}. The property: {attack.share:.0%} of the pictures are upside down; "
        f"{attack.holders} clients have it. In every round the server trains {attack.own_clients} clients of its own "
        "to fit a detector. "
        f"{count(attack.trials, 'trial')}. Sums are added up in the clear, since nothing else of a round is used.",
        numbers={
            "policies": results,
            "no_information": {"auc": 0.5, "accuracy": _majority(attack)},
        },
        tables=[_table(attack, sides, results)],
        plots=[Plot("Score of each client", draw_scores(sides, found), _SCORES)],
        card=[line for side in sides for line in _card(side, results[side.name], held=held[side.name])],
        remarks=[
            "Circles do not hide that one of their members has the property: with few members it says much about each "
            "of them. Larger circles say less, and noise is what bounds it.",
        ],
    )


def chance_of_ranking(trials: Sequence[PropertyTrial]) -> float:
    """Return how likely guessing ranks clients with the property so high, over all trials.

    Mann and Whitney's test, one-sided, by the normal law, with ranks taken within each trial. Who has the property is
    drawn by lot in each trial, whatever the circles: for who learns nothing, every set of so many clients is as likely
    as any other, given the scores. So it does not matter how scores depend on each other, as those of circle mates do,
    which are equal: they are ties, and the variance is that of a sum of so many ranks, drawn without replacement.
    """
    from scipy.stats import norm, rankdata

    excess = variance = 0.0
    for trial in trials:
        ranks, holders, clients = rankdata(trial.scores), np.count_nonzero(trial.having), trial.having.size
        excess += ranks[trial.having].sum() - holders * ranks.mean()
        variance += holders * (clients - holders) / clients * ranks.var(ddof=1)
    return float(norm.sf(excess / np.sqrt(variance))) if variance else 1.0


def _works(one: Mapping[str, Any]) -> bool:
    """Tell whether the ranking is better than guessing."""
    return bool(one["chance_of_such_ranking"] < _DOUBT)


def _headline(privacy: int, random: Mapping[str, Any], circles: Mapping[str, Any], *, held: bool) -> str:
    finds = "finds clients that have the property"
    if not _works(random):
        finds = "is not shown to find clients that have the property any better than by guessing"
    said = (
        f"With random selection the server {finds}: AUC {random['auc']:.2f}, {_share(random['auc_among_mates'])} "
        f"within groups of {privacy}."
    )
    found, within = f"AUC {circles['auc']:.2f}", f"{_share(circles['auc_among_mates'])} within circles"
    if not held:
        return f"{said} Circles of {privacy} did not hold: {found}, {within}."
    if not _works(random) and not _works(circles):
        return f"{said} So this run says nothing of circles."
    learns = "learns" if _works(circles) else "is not shown to learn"
    return (
        f"{said} With circles of {privacy} it {learns} which circles have such a member, {found}, and distinguishes no "
        f"client from its circle: {within}."
    )


def _numbers(trials: Sequence[PropertyTrial]) -> dict[str, Any]:
    within = [trial.among_mates for trial in trials if trial.among_mates is not None]
    return {
        "auc": float(np.mean([trial.auc for trial in trials])),
        "auc_spread": spread([trial.auc for trial in trials]),
        "chance_of_such_ranking": chance_of_ranking(trials),
        "auc_among_mates": float(np.mean(within)) if within else None,
        "auc_by_circle_counts": float(np.mean([trial.best_by_circles for trial in trials])),
        "accuracy": float(np.mean([trial.accuracy for trial in trials])),
    }


def _table(attack: PropertyInference, sides: Sequence[Side], results: Mapping[str, Mapping[str, Any]]) -> Table:
    return Table(
        "How well clients with the property are found",
        ("selection", "AUC", "± over trials", "by chance", "among mates", "by circles' counts", "accuracy"),
        [
            (
                side.words,
                f"{one['auc']:.2f}",
                spread_cell(one["auc_spread"], ".2f"),
                f"{one['chance_of_such_ranking']:.1g}",
                _share(one["auc_among_mates"]),
                f"{one['auc_by_circle_counts']:.2f}" if side.circles and side.aligned else "",
                f"{one['accuracy']:.0%}",
            )
            for side, one in ((side, results[side.name]) for side in sides)
        ],
        "AUC: how often a client that has the property is ranked above one that has not; 0.5 is guessing. By chance: "
        "how likely guessing ranks so well (Mann and Whitney, over all trials). Among mates: the AUC over pairs within "
        "a circle, or a group drawn like one. By circles' counts: the AUC of knowing how many of each circle have it. "
        f"Accuracy: of calling scores above a half; calling the same of all is right for {_majority(attack):.0%}.",
    )


def _card(side: Side, one: Mapping[str, Any], *, held: bool) -> Iterator[CardLine]:
    if not held:
        why = f"AUC {one['auc']:.2f}, and {_share(one['auc_among_mates'])} among mates; guessing: 0.5"
        outcome = Effect.NOT_ELIMINATED if _works(one) else Effect.NOT_SHOWN
        yield CardLine("find who has a property", side.words, outcome, why)
        return
    yield CardLine(
        "tell a client from its circle by a property",
        side.words,
        Effect.ELIMINATED,
        "circle mates have equal columns in every history, so they get equal scores: distinguished as by guessing",
    )
    yield CardLine(
        "find circles that have a property",
        side.words,
        Effect.REDUCED if _works(one) else Effect.NOT_SHOWN,
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
    ticks = {"tickvals": list(range(len(sides))), "ticktext": names[::-1], "automargin": True}
    layout = make_layout("score: about 1 for clients with the property", "", yaxis=ticks)
    apart = "; ".join(f"{side.words}: AUC {np.mean([trial.auc for trial in found[side.name]]):.2f}" for side in sides)
    return Figure(traces, layout, 120 + 70 * len(sides), f"The score of every client. {apart}.")
