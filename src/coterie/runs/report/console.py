"""The console of a run: a view that is redrawn as rounds are played, or one line for each round."""

import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coterie.cohorts.outcome import Outcome
from coterie.cohorts.policies import POLICIES
from coterie.reports.words import count, duration, one_line, size
from coterie.runs.algorithms import algorithm_of
from coterie.runs.records.record import RoundRecord, own_columns
from coterie.runs.records.summary import Summary
from coterie.runs.records.yardstick import ACCURACY, Yardstick
from coterie.runs.report.curves import CURVE, curve
from coterie.runs.report.notebook import NotebookWatcher
from coterie.runs.report.observers import ClippingWatch, Observer, RunStart
from coterie.runs.report.words import how_to_continue, in_words, named
from coterie.runs.sections.common import OWN

_SPLIT = 30


class Watcher(Observer):
    """Shows a run on the console."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, emoji=False)
        self._live: Live | None = None
        self._view: RunView | None = None
        self._rounds, self._folder, self._yardstick = 0, "", ACCURACY
        self._clipping = ClippingWatch(0.0)

    def begin(self, start: RunStart) -> None:
        """Show the settings of the run, and open the view."""
        self._rounds, self._folder = start.config.rounds, str(start.folder)
        self._yardstick = start.yardstick
        self._clipping = ClippingWatch(start.config.aggregation.clip, start.records)
        self._console.print(*_introduction(start), sep="\n", soft_wrap=True)
        if self._console.is_terminal:
            self._view = RunView(start)
            self._live = Live(self._view, console=self._console, refresh_per_second=8)
            self._live.start()

    def step(self, number: int, step: str, done: int, asked: int) -> None:
        """Show the progress of the round."""
        if self._view:
            self._view.doing = f"round {number}: {step}, {done} of {asked} clients"

    def after_round(self, record: RoundRecord) -> None:
        """Show a round."""
        if self._view:
            self._view.add(record)
        else:
            self._console.print(line(record, self._rounds, self._yardstick), soft_wrap=True, markup=False)
        if warning := self._clipping.check(record):
            self._console.print(f"[yellow]{escape(warning)}[/]", soft_wrap=True)

    def end(self, summary: Summary) -> None:
        """Close the view and show the summary in words."""
        self.close()
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, style="bold")
        grid.add_column(overflow="fold")  # a long path is wrapped, not cut off
        for about, words in in_words(summary):
            grid.add_row(about, Text(words))
        grid.add_row("Report", Text(f"{self._folder}/report.html"))
        if not summary.finished:
            grid.add_row("Continue", Text(how_to_continue(summary.config, self._folder)))
        self._console.print()
        self._console.print(grid)

    def close(self) -> None:
        """Release the terminal."""
        if self._live:
            self._live.stop()


def make_watcher() -> Observer:
    """Return the display of a run: a progress bar in a notebook, otherwise the console."""
    console = Console(highlight=False, emoji=False)
    return NotebookWatcher() if console.is_jupyter else Watcher(console)


class RunView:
    """The state of a run, drawn whenever rich refreshes it."""

    def __init__(self, start: RunStart) -> None:
        self._rounds, self._yardstick = start.config.rounds, start.yardstick
        self._clients = len(start.clients)
        self._cohort, self._promise = start.config.cohort.size, start.promise
        self._algorithm = start.config.training.algorithm
        self._records = list(start.records)
        self._began, self._played = time.monotonic(), 0
        self.doing = ""

    def add(self, record: RoundRecord) -> None:
        """Add a round."""
        self._records.append(record)
        self._played += 1
        self.doing = ""

    def __rich__(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column()
        if self._records:
            for name, content in self._rows(self._records[-1]):
                grid.add_row(name, content)
        return Group(self._progress(), grid, Text(self.doing, style="dim"))

    def _progress(self) -> RenderableType:
        done = len(self._records)
        spent = time.monotonic() - self._began
        left = f"about {duration(spent / self._played * (self._rounds - done))} left" if self._played else ""
        row = Table.grid(padding=(0, 2))
        row.add_row(
            Text(f"round {done}/{self._rounds}", style="bold"),
            ProgressBar(self._rounds, done, width=CURVE),
            duration(spent),
            left if done < self._rounds else "",
        )
        return row

    def _rows(self, last: RoundRecord) -> list[tuple[str, RenderableType]]:
        records, yardstick = self._records, self._yardstick
        scores = [score for record in records if (score := yardstick.of(record)) is not None]
        rows: list[tuple[str, RenderableType]] = []
        if scores:
            drawn = curve(scores, 0.0, 1.0 if yardstick.share else max(scores))
            rows.append((yardstick.name, Text.assemble((f"{yardstick.written(scores[-1])}  ", "bold green"), drawn)))
        if last.error is not None:
            rows.append(("error", Text(f"{last.error:,.4g} {yardstick.unit} on average")))
        rows.append(("cohort", Text(cohort(last))))
        if last.selected or last.strong_privacy is not None:
            exposed = f"{last.exposed} of {self._clients} exposed" if last.exposed else "nobody exposed"
            safe = not last.exposed and self._promise.holds
            privacy = f"{self._promise.describe(last.strong_privacy)}; {exposed}"
            rows.append(("privacy", Text(privacy, style="green" if safe else "yellow")))
            fairness = f"F = {last.fairness_gap:.1%} of the rounds apart, C = {last.cardinality:.1f} of {self._cohort}"
            rows.append(("fairness", Text(fairness)))
            traffic = f"{size(last.upload_bytes)} up, {size(last.download_bytes)} down by all clients of the round"
            rows.append(("bytes", Text(traffic)))
        if last.epsilon is not None:
            example = f", {last.example_epsilon:.3g} for one example" if last.example_epsilon is not None else ""
            rows.append(("noise", Text(f"ε = {last.epsilon:.3g}{example}")))
        if own := particulars(last):
            rows.append((self._algorithm, Text(own)))
        rows.append(("time", split(records)))
        return rows


def line(record: RoundRecord, rounds: int, yardstick: Yardstick = ACCURACY) -> str:
    """Return a round as one line."""
    reached = yardstick.of(record)
    score = f"{yardstick.name} {yardstick.written(reached)}" if reached is not None else ""
    if record.error is not None:
        score += f" ({record.error:,.4g} {yardstick.unit} off)"
    if not score and record.train_loss is not None:
        score = f"training loss {record.train_loss:.4g}"
    measures = (
        f"T = {record.strong_privacy or '-'} so far, fairness gap {record.fairness_gap:.2f}, "
        f"{record.cardinality:.1f} clients a round"
    )
    epsilon = f", epsilon {record.epsilon:.3g}" if record.epsilon is not None else ""
    own = f"  {found}" if (found := particulars(record)) else ""
    return (
        f"round {record.round}/{rounds}  {score}{own}  {cohort(record)}  {measures}{epsilon}  "
        f"{size(record.upload_bytes + record.download_bytes)}  "
        f"train {duration(record.train_seconds)}, protect {duration(record.protect_seconds)}"
    )


def particulars(record: RoundRecord) -> str:
    """Return the numbers that the run's algorithm adds to the record.

    An epsilon that a paper claims is shown only in the report, which explains whether the claim is sound.
    """
    shown = (name for name in own_columns(record) if not name.endswith("_epsilon"))
    values = ((name.replace("_", " "), getattr(record, name)) for name in shown)
    return ", ".join(
        f"{name} {value:,.0f}" if value.is_integer() else f"{name} {value:.3g}"
        for name, value in values
        if value is not None
    )


def cohort(record: RoundRecord) -> str:
    """Return what happened to the clients of a round."""
    there = "" if record.available is None else f" ({record.available:,} available)"
    if record.outcome is Outcome.SKIPPED:
        return f"skipped: {one_line(record.reason)}{there}"
    counts = f"{record.tally}{there}" if record.selected else "trained"
    return counts if record.completed else f"{record.outcome}: {one_line(record.reason)}; {counts}"


def split(records: Sequence[RoundRecord]) -> Text:
    """Draw how the time so far was spent."""
    total = sum(record.seconds for record in records) or 1.0
    train = sum(record.train_seconds for record in records) / total
    protect = sum(record.protect_seconds for record in records) / total
    rest = max(0.0, 1 - train - protect)
    parts = (("train", train, "blue"), ("protect", protect, "green"), ("rest", rest, "bright_black"))
    drawn = Text()
    for _, share, color in parts:
        drawn.append("█" * round(share * _SPLIT), style=color)
    for name, share, color in parts:
        drawn.append(f"  {name} {share:.0%}", style=color)
    return drawn


def _introduction(start: RunStart) -> list[str]:
    config, clients, played = start.config, len(start.clients), len(start.records)
    rounds, before = count(config.rounds, "round"), ""
    if played >= config.rounds:
        rounds, before = f"All {count(played, 'round')}", " were played before"
    elif start.stopped:
        rounds, before = count(played, "round"), " before the run ended early"
    elif played:
        rounds = f"Rounds {played + 1} to {config.rounds}"
    sized = config.cohort.policy in POLICIES  # other policies select any number of clients
    cohort_size = f", {config.cohort.size} in a round" if sized else ""
    what = f"{rounds} on {named(config.data.title, 'data')}{before}: {clients} clients{cohort_size}"
    model = "Your model" if config.model.name == OWN else config.model.name
    introduction = algorithm_of(config).introduction(config, start.promise)
    return [
        f"[bold]{escape(f'{what}; {introduction}')}[/]",
        f"{model} with {start.parameters:,} parameters, {config.cohort.policy} selection; "
        f"results in {escape(str(start.folder))}",
        *(f"[yellow]{escape(note)}.[/]" for note in start.notes),
    ]
