"""The report on disaggregation: how much of the hidden log is recovered, and what that reveals about updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.attacks.differencing.report import DISTINGUISHED, RECOVERED
from coterie.reports.charts import Figure, packed
from coterie.reports.findings import CardLine, Effect, Findings, Plot, Table
from coterie.reports.intervals import share_interval, spread, spread_cell
from coterie.reports.words import Level, count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coterie.attacks.disaggregation.measure import Disaggregation, HiddenLogTrial
    from coterie.attacks.federation import Selection

_CAPTION = (
    "The participation matrix of the first trial: rounds in rows, clients in columns, members of a circle (or of a "
    "group drawn like one) beside each other. Filled: took part. Red: wrong."
)


def report(attack: Disaggregation, found: Mapping[str, Sequence[HiddenLogTrial]]) -> Findings:
    """Report on the trials of each selection."""
    selections = attack.selections
    results = {selection.name: _numbers(found[selection.name]) for selection in selections}
    held = all(trial.told_apart == 0.5 for trial in found["multi-round"])
    random, circles = results["random"], results["multi-round"]
    steps = "hardly change" if attack.steps == "small" else "change as in ordinary training"
    return Findings(
        level=Level.SAFE if held else Level.DANGER,
        headlines=[
            f"With circles of {attack.privacy} {circles['columns_recovered']:.0%} of the hidden log are recovered from "
            f"the sums, and {'no client is distinguished from its circle' if held else 'circles did not hold'}. "
            f"{_helps(random)} with random selection: {random['columns_recovered']:.0%} of it are recovered, and "
            f"updates with a median error of {random['median_error']:.2g} ({random['median_error_with_log']:.2g} with "
            f"the log); {_told_apart(random)}."
        ],
        about=f"{attack.clients} clients with few labels each of {attack.data} train {attack.model}, {attack.cohort} "
        f"in a round; then the attacker sees the sums of {attack.rounds} rounds, in which updates {steps}. The "
        "attacker knows how many clients are in a sum, and each client's number of rounds out of every "
        f"{attack.period}. {count(attack.trials, 'trial')}. Sums are computed in the clear, because nothing "
        "else of a round is used.",
        numbers={"policies": results},
        tables=[_table(selections, results)],
        card=list(_card(attack, results, held=held)),
        plots=[
            Plot(f"Participation matrix: {selection.words}", draw_log(selection, found[selection.name][0]), _CAPTION)
            for selection in selections
        ],
        remarks=[
            "Without counts, the columns of P can still be found: they are the vectors of zeros and ones in the "
            "column space. Which client has which column is then not known.",
            "Hiding the log makes audits impossible. Circles protect even if the log is public.",
        ],
    )


def _helps(random: Mapping[str, Any]) -> str:
    """Return what hiding the log changes for clients that are selected at random."""
    if random["median_error"] < RECOVERED:
        return "Hiding the log does not help"
    pairs = random["pairs"]
    if share_interval(int(random["circle_mates_told_apart"] * pairs + 1e-6), pairs)[0] > 0.5:
        return "Hiding the log makes estimates less exact, but is no protection"
    few = count(pairs, "pair")
    return f"Hiding the log makes estimates less exact, and {few} cannot show whether that protects any client,"


def _told_apart(one: Mapping[str, Any]) -> str:
    return f"two clients are distinguished in {one['circle_mates_told_apart']:.0%} of {count(one['pairs'], 'pair')}"


def _numbers(trials: Sequence[HiddenLogTrial]) -> dict[str, Any]:
    return {
        "columns_recovered": float(np.mean([trial.columns for trial in trials])),
        "columns_recovered_spread": spread([trial.columns for trial in trials]),
        "entries_right": float(np.mean([trial.entries for trial in trials])),
        "entries_right_by_counts_alone": float(np.mean([trial.guess for trial in trials])),
        "median_error": float(np.median(np.concatenate([trial.errors for trial in trials]))),
        "median_error_with_log": float(np.median(np.concatenate([trial.with_log for trial in trials]))),
        "guessing_the_mean": {"median_error": float(np.median(np.concatenate([trial.guesses for trial in trials])))},
        "circle_mates_told_apart": float(np.mean([trial.told_apart for trial in trials])),
        "pairs": sum(trial.pairs for trial in trials),
    }


def _table(selections: Sequence[Selection], results: Mapping[str, Mapping[str, Any]]) -> Table:
    return Table.of(
        "The recovered log, and the updates recovered with it",
        [(selection.words, results[selection.name]) for selection in selections],
        [
            ("selection", lambda row: row[0]),
            ("columns", lambda row: f"{row[1]['columns_recovered']:.0%}"),
            ("±", lambda row: spread_cell(row[1]["columns_recovered_spread"], ".0%")),
            ("entries", lambda row: f"{row[1]['entries_right']:.1%}"),
            ("by counts", lambda row: f"{row[1]['entries_right_by_counts_alone']:.1%}"),
            ("error", lambda row: f"{row[1]['median_error']:.2g}"),
            ("with the log", lambda row: f"{row[1]['median_error_with_log']:.2g}"),
            ("of the mean", lambda row: f"{row[1]['guessing_the_mean']['median_error']:.2g}"),
            ("distinguished", lambda row: f"{row[1]['circle_mates_told_apart']:.0%}"),
        ],
        "Columns, entries: the share of the log's columns and entries that is recovered correctly; ± over the trials. "
        "By counts: the most entries that can be right from the counts without the sums. Error: the median error of "
        "updates, with the recovered log, with the true log, and if the mean of all updates is guessed for every "
        f"client. Distinguished: {DISTINGUISHED}.",
    )


def _card(attack: Disaggregation, results: Mapping[str, Mapping[str, Any]], *, held: bool) -> Iterator[CardLine]:
    for selection, against in ("random", "random selection"), ("multi-round", f"circles of {attack.privacy}"):
        one = results[selection]
        above = one["entries_right"] > one["entries_right_by_counts_alone"]
        yield CardLine(
            "recover the participation log",
            f"{against}, log hidden",
            Effect.NOT_ELIMINATED if above else Effect.REDUCED,
            f"{one['entries_right']:.1%} of its entries are right; with the counts alone, "
            f"{one['entries_right_by_counts_alone']:.1%}",
        )
    random = results["random"]
    error, guess = random["median_error"], random["guessing_the_mean"]["median_error"]
    yield CardLine(
        "single out a client's update",
        "random selection, log hidden",
        Effect.NOT_ELIMINATED if error < guess else Effect.REDUCED,
        f"{_told_apart(random)}, by guessing in 50%; median error {error:.2g}, guessing the mean {guess:.2g}",
    )
    yield CardLine(
        "single out a client's update",
        f"circles of {attack.privacy}, log hidden",
        Effect.ELIMINATED if held else Effect.NOT_ELIMINATED,
        "circle mates have equal columns, recovered or not: distinguished as by guessing"
        if held
        else "circle mates were distinguished",
    )


def draw_log(selection: Selection, trial: HiddenLogTrial) -> Figure:
    """Draw the true P, the recovered one, and the best guess from the counts; wrong entries are red."""
    order = [client for circle in selection.mates for client in circle]
    panels = [
        ("true", trial.truth),
        (f"recovered: {trial.entries:.1%} right", trial.found),
        (f"from the counts: {trial.guess:.1%} right", trial.by_counts),
    ]
    rounds, clients = trial.truth.shape
    traces: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"margin": {"l": 56, "r": 16, "t": 36, "b": 48}, "annotations": []}
    for number, (heading, matrix) in enumerate(panels):
        which, left = "" if not number else str(number + 1), number * 0.35
        shades = np.where(matrix == trial.truth, matrix.astype(np.uint8), np.uint8(2))[:, order]
        traces.append(
            {
                "type": "heatmap",
                "xaxis": f"x{which}",
                "yaxis": f"y{which}",
                "y0": 1,
                "x": [f"client {client + 1}" for client in order],
                "z": packed(shades),
                "zmin": 0,
                "zmax": 2,
                "colorscale": [[0, "@empty"], [0.5, "@accent"], [1, "@danger"]],
                "showscale": False,
                "xgap": 1 if clients <= 60 else 0,
                "ygap": 1 if rounds <= 80 else 0,
                "hovertemplate": "round %{y}<br>%{x}<extra></extra>",
            }
        )
        layout[f"xaxis{which}"] = {
            "domain": [left, left + 0.3],
            "anchor": f"y{which}",
            "title": {"text": "clients"},
            "showticklabels": False,
            "showgrid": False,
            "ticks": "",
        }
        layout[f"yaxis{which}"] = {
            "anchor": f"x{which}",
            "range": [rounds + 0.5, 0.5],
            "showticklabels": not number,
            "showgrid": False,
            "ticks": "",
        }
        layout["annotations"].append(
            {
                "text": heading,
                "x": left,
                "y": 1,
                "xref": "paper",
                "yref": "paper",
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"color": "@ink"},
            }
        )
    layout["yaxis"]["title"] = {"text": "rounds"}
    headings = "; ".join(heading for heading, _ in panels)
    alt = f"Participation matrices of {clients} clients and {rounds} rounds, {selection.words}: {headings}."
    return Figure(traces, layout, min(max(240, 100 + 8 * rounds), 560), alt)
