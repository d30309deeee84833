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
    from coterie.attacks.federation import Selection
    from coterie.attacks.property.measure import PropertyInference, PropertyTrial

_DOUBT = 0.05  # significance level for calling a ranking better than guessing
_HAVING, _OTHERS = 0.16, -0.16  # offset of points from the line of their selection
_SCORES = (
    "A point is a client in a trial. Where red and grey points are separated, the server knows which clients have the "
    "property. Circle mates have equal scores, so a red point has a grey one below it unless its whole circle has the "
    "property."
)


def report(attack: PropertyInference, found: Mapping[str, Sequence[PropertyTrial]]) -> Findings:
    """Report on the trials of every way to choose cohorts."""
    selections = attack.selections(0)
    results = {selection.name: _numbers(found[selection.name]) for selection in selections}
    held = {
        selection.name: selection.circles
        and selection.aligned
        and all(one.equal_scores for one in found[selection.name])
        for selection in selections
    }
    random, circles = results["random"], results["multi-round"]
    works = _works(random) or _works(circles)
    return Findings(
        level=Level.DANGER if not held["multi-round"] else Level.CAUTION if works else Level.NOTHING,
        headlines=[_headline(attack.privacy[0], random, circles, held=held["multi-round"])],
        about=f"{attack.clients} clients, each with {attack.examples} examples of {attack.data}, train {attack.model} "
        f"for {count(attack.rounds, 'round')} with {attack.cohort} clients each, in ordinary steps; a client drops out "
        f"of a round with a probability of {attack.dropouts:.0%}. The property: {attack.share:.0%} of the pictures are "
        f"upside down; {attack.holders} clients have it. In every round the server trains "
        f"{attack.own_clients} simulated clients to fit a detector. {count(attack.trials, 'trial')}. Sums are "
        "computed in the clear, because nothing else of a round is used.",
        numbers={
            "policies": results,
            "no_information": {"auc": 0.5, "accuracy": _majority(attack)},
        },
        tables=[_table(attack, selections, results)],
        plots=[Plot("Score of each client", draw_scores(selections, found), _SCORES)],
        card=[
            line
            for selection in selections
            for line in _card(selection, results[selection.name], held=held[selection.name])
        ],
        remarks=[
            "Circles do not hide that one of their members has the property. In a small circle that says much about "
            "each member, in a larger one less. Only noise bounds it.",
        ],
    )


def chance_of_ranking(trials: Sequence[PropertyTrial]) -> float:
    """Return the p-value of the ranking over all trials: how often guessing ranks clients with the property as high.

    Mann and Whitney's test, one-sided, by the normal approximation, with ranks taken within each trial. The clients
    with the property are drawn at random in each trial, independently of circles. So for an attacker who learns
    nothing, every set of that many clients is equally likely, given the scores, even if scores depend on each other.
    Circle mates have equal scores, which are ties; the variance is that of a sum of ranks drawn without replacement.
    """
    from scipy.stats import norm, rankdata

    excess = variance = 0.0
    for trial in trials:
        ranks, holders, clients = rankdata(trial.scores), np.count_nonzero(trial.having), trial.having.size
        excess += ranks[trial.having].sum() - holders * ranks.mean()
        variance += holders * (clients - holders) / clients * ranks.var(ddof=1)
    return float(norm.sf(excess / np.sqrt(variance))) if variance else 1.0


def _works(one: Mapping[str, Any]) -> bool:
    """Return whether the ranking is significantly better than guessing."""
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
        return f"{said} So this run says nothing about circles."
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


def _table(
    attack: PropertyInference, selections: Sequence[Selection], results: Mapping[str, Mapping[str, Any]]
) -> Table:
    return Table.of(
        "How well clients with the property are found",
        [(selection, results[selection.name]) for selection in selections],
        [
            ("selection", lambda row: row[0].words),
            ("AUC", lambda row: f"{row[1]['auc']:.2f}"),
            ("± over trials", lambda row: spread_cell(row[1]["auc_spread"], ".2f")),
            ("by chance", lambda row: f"{row[1]['chance_of_such_ranking']:.1g}"),
            ("among mates", lambda row: _share(row[1]["auc_among_mates"])),
            (
                "by circles' counts",
                lambda row: f"{row[1]['auc_by_circle_counts']:.2f}" if row[0].circles and row[0].aligned else "",
            ),
            ("accuracy", lambda row: f"{row[1]['accuracy']:.0%}"),
        ],
        "AUC: how often a client that has the property is ranked above one that has not; 0.5 is guessing. By chance: "
        "how likely guessing ranks this well (Mann and Whitney, over all trials). Among mates: the AUC over pairs "
        "within a circle, or a group drawn like one. By circles' counts: the AUC of an attacker that knows how many "
        "members of each circle have it. Accuracy: if clients with a score above a half are said to have it; the same "
        f"answer for all clients is right for {_majority(attack):.0%}.",
    )


def _card(selection: Selection, one: Mapping[str, Any], *, held: bool) -> Iterator[CardLine]:
    if not held:
        why = f"AUC {one['auc']:.2f}, and {_share(one['auc_among_mates'])} among mates; guessing: 0.5"
        outcome = Effect.NOT_ELIMINATED if _works(one) else Effect.NOT_SHOWN
        yield CardLine("find who has a property", selection.words, outcome, why)
        return
    yield CardLine(
        "distinguish a client from its circle by a property",
        selection.words,
        Effect.ELIMINATED,
        "circle mates have equal columns in every history, so they get equal scores: distinguished as by guessing",
    )
    yield CardLine(
        "find circles that have a property",
        selection.words,
        Effect.REDUCED if _works(one) else Effect.NOT_SHOWN,
        f"AUC {one['auc']:.2f}; an attacker that knows how many of each circle have it gets "
        f"{one['auc_by_circle_counts']:.2f}",
    )


def _majority(attack: PropertyInference) -> float:
    return max(attack.holders, attack.clients - attack.holders) / attack.clients


def _share(value: float | None) -> str:
    return "no pairs" if value is None else f"{value:.2f}"


def draw_scores(selections: Sequence[Selection], found: Mapping[str, Sequence[PropertyTrial]]) -> Figure:
    """Draw the score of every client in every trial; those with the property are above the line of their selection."""
    names = [selection.words for selection in selections]
    traces = []
    for name, color, kind, beside in (
        ("has the property", "@danger", True, _HAVING),
        ("has not", "@muted", False, _OTHERS),
    ):
        points = [
            (float(score), len(selections) - 1 - row + beside)
            for row, selection in enumerate(selections)
            for trial in found[selection.name]
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
    ticks = {"tickvals": list(range(len(selections))), "ticktext": names[::-1], "automargin": True}
    layout = make_layout("score: about 1 for clients with the property", "", yaxis=ticks)
    apart = "; ".join(
        f"{selection.words}: AUC {np.mean([trial.auc for trial in found[selection.name]]):.2f}"
        for selection in selections
    )
    return Figure(traces, layout, 120 + 70 * len(selections), f"The score of every client. {apart}.")
