"""The report on differencing: the error of reconstructed updates under each way to select cohorts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.reports.charts import Figure, draw_line, make_layout
from coterie.reports.findings import CardLine, Effect, Findings, Plot, Table
from coterie.reports.intervals import spread, spread_cell
from coterie.reports.words import Level, count

if TYPE_CHECKING:
    from coterie.attacks.differencing.measure import Differencing, Windows, WindowTrial
    from coterie.attacks.federation import Selection
    from coterie.cohorts.circles import Reals

DISTINGUISHED = (
    "how often two members of a circle, or of a group drawn like one, are matched with their updates; 50% is guessing"
)
"""What a column with :func:`~coterie.attacks.differencing.algebra.told_apart` shows."""
RECOVERED = 0.05
"""The median error below which updates count as recovered."""
_COLORS = ("@danger", "@accent", "@muted", "@ink")  # colours of selections without protection
_CIRCLE_COLORS = ("@safe", "@accent", "@muted")


@dataclass(frozen=True, eq=False)
class SelectionResult:
    """The results of one selection over all trials."""

    selection: Selection
    trials: Sequence[WindowTrial]

    @property
    def errors(self) -> Reals:
        """The error of every client in every trial."""
        return np.concatenate([trial.errors for trial in self.trials])

    @property
    def median(self) -> float:
        """The median of all errors."""
        return float(np.median(self.errors))

    @property
    def medians(self) -> Reals:
        """The median error of each trial."""
        return np.array([np.median(trial.errors) for trial in self.trials])

    @property
    def means(self) -> Reals:
        """The mean error of each trial."""
        return np.array([np.mean(trial.errors) for trial in self.trials])

    @property
    def spread(self) -> float | None:
        """The sample deviation of the trials' medians; None for a single trial."""
        return spread(self.medians)

    @property
    def recovered(self) -> float:
        """The share of clients whose update counts as recovered."""
        return float(np.mean(self.errors < RECOVERED))

    @property
    def guess(self) -> float:
        """The median error of guessing the mean."""
        return float(np.median(np.concatenate([trial.guesses for trial in self.trials])))

    @property
    def told_apart(self) -> float | None:
        """How often circle mates are distinguished; None without circles (T = 1)."""
        if self.selection.mates.privacy < 2:
            return None
        return float(np.mean([trial.told_apart for trial in self.trials]))

    @property
    def bound(self) -> float | None:
        """The lower bound on the mean error that circles give."""
        bounds = [trial.bound for trial in self.trials if trial.bound is not None]
        return float(np.mean(bounds)) if len(bounds) == len(self.trials) else None

    @property
    def exposed(self) -> float:
        """How many clients the sums determine, over the trials."""
        return float(np.mean([trial.exposed for trial in self.trials]))

    @property
    def protected(self) -> bool:
        """Whether circles were kept together, and their members were not distinguished in any trial."""
        kept = self.selection.circles and self.selection.aligned
        return kept and all(trial.told_apart == 0.5 and not trial.exposed for trial in self.trials)

    def numbers(self) -> dict[str, Any]:
        """All numbers for JSON."""
        errors = self.errors
        return {
            "median_error": self.median,
            "median_error_spread": self.spread,
            "mean_error": float(errors.mean()),
            "smallest_error": float(errors.min()),
            "largest_error": float(errors.max()),
            "share_recovered": self.recovered,
            "guessing_the_mean": {"median_error": self.guess},
            "least_mean_error_by_theory": self.bound,
            "circle_mates_told_apart": self.told_apart,
            "clients_determined": self.exposed,
            "rounds_revealed": float(np.mean([trial.rounds for trial in self.trials])),
        }


def report(attack: Differencing, measured: Windows) -> Findings:
    """Report on the windows of all trials."""
    results = [SelectionResult(selection, measured.trials[selection.name]) for selection in attack.selections(0)]
    judged = next((result for result in results if result.selection.circles), results[0])
    guesses = np.concatenate([trial.guesses for result in results for trial in result.trials])
    return Findings(
        level=Level.SAFE if judged.protected else Level.DANGER if judged.median < judged.guess else Level.CAUTION,
        headlines=[_headline(attack, results)],
        about=_setting(attack),
        numbers={
            "window": {"steps": attack.steps, "rounds": attack.rounds, "learning_rate": attack.window_rate},
            "policies": {result.selection.name: result.numbers() for result in results},
            "guessing_the_mean": {"median_error": float(np.median(guesses))},
            "secure_session": {"largest_difference": measured.session_off},
        },
        tables=[_table(results)],
        card=[line for result in results for line in _card(attack, result)],
        plots=[Plot("Error of each client's reconstruction", draw_errors(results), _CAPTION)],
        remarks=list(_remarks(attack, judged)),
    )


_CAPTION = (
    "Share of clients by relative squared error, over all trials. At 0 an update is known exactly; guessing zero for "
    "every client gives an error of 1."
)


def _setting(attack: Differencing) -> str:
    steps = (
        f"updates hardly change: steps are small, as late in training, {attack.before} times smaller than before"
        if attack.steps == "small"
        else f"ordinary training, with the same learning rate of {attack.learning_rate:g} as before"
    )
    lost = (
        f", each of which drops out of the round with a probability of {attack.dropouts:.0%}" if attack.dropouts else ""
    )
    return (
        f"{attack.clients} clients, each with {'few labels' if attack.by_label else 'random examples'} of "
        f"{attack.data}, train {attack.model} for {count(attack.before, 'round')}. Then the server observes "
        f"a window of {count(attack.rounds, 'round')} with {attack.cohort} clients each{lost}. In the window, {steps}. "
        f"{count(attack.trials, 'trial')}. The update of a client is the mean of those it sent in the window. Sums are "
        "computed in the clear, and one is compared with a real session of secure aggregation."
    )


def _headline(attack: Differencing, results: Sequence[SelectionResult]) -> str:
    """Return a sentence for each policy, with circles of the first T; protected ones come first."""
    first = [result for result in results if result.selection.mates.privacy == results[0].selection.mates.privacy]
    first.sort(key=lambda result: not result.protected)
    return f"With {'. With '.join(_verdict(attack, result) for result in first)}."


def _verdict(attack: Differencing, result: SelectionResult) -> str:
    name, error = result.selection.words, f"median error {result.median:.2g}, guessing the mean {result.guess:.2g}"
    few = f"{count(attack.rounds, 'round')} {'is' if attack.rounds == 1 else 'are'} too few"
    if result.protected:
        alike = f"; {_recovered(result)}" if result.recovered else ""
        return f"{name}, no client is distinguished from its circle ({error}{alike})"
    if result.selection.circles:
        return f"{name}, {result.exposed:.3g} of {attack.clients} updates are determined ({error})"
    if result.median < RECOVERED:
        return f"{name}, individual updates are recovered ({error})"
    if result.median < result.guess:
        return f"{name}, estimates of single updates are better than guessing, but {few} ({error})"
    return f"{name}, {few} for the server ({error})"


def _recovered(result: SelectionResult) -> str:
    return f"{100 * result.recovered:.3g}% of clients have an error below {RECOVERED:g}"


def _card(attack: Differencing, result: SelectionResult) -> Iterator[CardLine]:
    name = result.selection.words
    error = f"median error {result.median:.2g}; guessing the mean: {result.guess:.2g}"
    if not result.protected:
        why = f"{error}; the sums determine {result.exposed:.3g} of {attack.clients} clients"
        if result.told_apart is not None:
            why += (
                f"; two of a group of {result.selection.mates.privacy} are distinguished in {result.told_apart:.0%} of "
                "cases, by guessing in 50%"
            )
        yield CardLine("single out a client's update", name, Effect.NOT_ELIMINATED, why)
        return
    yield CardLine(
        "single out a client's update",
        name,
        Effect.ELIMINATED,
        "circle mates have equal columns in every history, so they get equal estimates: distinguished in exactly half "
        "of the cases, as by guessing",
    )
    bound = "" if result.bound is None else f"; no estimate from these sums has a mean error below {result.bound:.2g}"
    yield CardLine("learn the mean of its circle", name, Effect.REDUCED, f"the sum reveals this much: {error}{bound}")


def _remarks(attack: Differencing, judged: SelectionResult) -> Iterator[str]:
    if attack.steps == "ordinary":
        yield (
            "Changing updates are no protection: least squares estimates the mean of a client's updates, and more "
            "rounds average the changes out. Try 300 rounds."
        )
    else:
        yield "With ordinary steps (the setting steps), updates change from round to round."
    if judged.protected and judged.recovered:
        yield (
            f"Circles do not hide what their members have in common: with {judged.selection.words}, "
            f"{_recovered(judged)}, because their updates are close to the mean of their circle."
        )


def _table(results: Sequence[SelectionResult]) -> Table:
    several = "; ± is the sample standard deviation of the trials' medians" if len(results[0].trials) > 1 else ""
    return Table.of(
        "Relative squared error of the reconstructed updates",
        results,
        [
            ("selection", lambda result: result.selection.words),
            ("median", lambda result: f"{result.median:.3g}"),
            ("±", lambda result: spread_cell(result.spread, ".2g")),
            ("mean", lambda result: f"{result.errors.mean():.3g}"),
            ("recovered", lambda result: f"{result.recovered:.0%}"),
            ("guess", lambda result: f"{result.guess:.3g}"),
            ("distinguished", lambda result: "" if result.told_apart is None else f"{result.told_apart:.0%}"),
        ],
        f"Median and mean: over the clients of all trials{several}. Recovered: error below {RECOVERED:g}. Guess: the "
        f"median error if the mean of all updates is guessed for every client. Distinguished: {DISTINGUISHED}.",
    ).without_empty_columns()


def draw_errors(results: Sequence[SelectionResult]) -> Figure:
    """Draw the histograms of the errors, one line for each selection."""
    errors = [np.clip(result.errors, 1e-6, None) for result in results]
    low, high = np.log10(min(map(np.min, errors))), np.log10(max(map(np.max, errors)))
    edges = np.logspace(np.floor(low), np.ceil(high), 1 + 6 * max(1, int(np.ceil(high) - np.floor(low))))
    traces = []
    plain, kept = iter(_COLORS * 3), iter(_CIRCLE_COLORS * 3)
    for result, values in zip(results, errors, strict=True):
        shares = np.histogram(values, edges)[0] / values.size
        color = "@caution" if not result.selection.aligned else next(kept if result.selection.circles else plain)
        traces.append(
            draw_line(
                result.selection.words,
                edges.tolist(),
                [*shares.tolist(), 0],
                hover="error from %{x:.2g}<br>%{y:.0%} of clients",
                color=color,
                shape="hv",
                width=2.5,
                dash="solid" if result.selection.aligned else "dot",
            )
        )
    layout = make_layout(
        "relative squared error",
        "share of clients",
        xaxis={"type": "log", "dtick": 1, "tickformat": "~g"},
        yaxis={"tickformat": ".0%", "rangemode": "tozero"},
    )
    medians = "; ".join(f"{result.selection.words}: median {result.median:.2g}" for result in results)
    return Figure(traces, layout, 340, f"Histograms of reconstruction errors. {medians}.")
