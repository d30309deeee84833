"""The findings of ``coterie audit`` on a terminal: how the log was read, then the verdict; readable without colour."""

from collections.abc import Callable, Sequence
from fractions import Fraction

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coterie.auditing.findings import AuditReport, Exposure
from coterie.auditing.logs import Participation
from coterie.auditing.preview import preview
from coterie.auditing.verdict import (
    Requirement,
    collusion_words,
    equation,
    extent,
    judge,
    least_leak,
    measures,
    whose,
)
from coterie.cli.common import new_console
from coterie.reports.words import printable

LISTED = 10  # exposed clients
_GROUPS = 5  # groups too small for the requirement, and names shown of each


def show_preview(participation: Participation) -> None:
    """Print how the log was understood, before the verdict."""
    table = Table(box=None, show_header=False, padding=(0, 2), pad_edge=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for words in preview(participation):
        table.add_row(*map(Text, words))
    new_console().print(table)


def show(
    report: AuditReport,
    participation: Participation,
    requirement: Requirement | None,
    listed: Sequence[Exposure],
    written: Callable[[], int],
    promise: str = "",
    answers: Sequence[tuple[str, str]] = (),
) -> None:
    """Print verdict, measures, earliest exposures, their meaning, the answers and, for a run, what it promises.

    ``listed`` are the exposures to show. ``written`` is called after the verdict is printed: it computes witnesses, and
    returns how many of the exposures have one.
    """
    console = new_console()
    verdict = judge(report)
    level = verdict.level
    console.print(f"\n{level.mark} {verdict.headline}.", style=f"bold {level.color}", markup=False)
    console.print(extent(report, sum(not members for members in participation.members)), style="dim", end="\n\n")
    table = Table(box=None, show_header=False, padding=(0, 2), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(style="dim")
    for measure in measures(report):
        table.add_row(*map(Text, measure))
    console.print(table)
    if not report.weak_privacy_exact:
        console.print("--weak-seconds N gives weak T more time.", style="dim")
    console.print()
    if report.exposed:
        _show_exposed(report, listed, written(), console)
    elif least := least_leak(report):
        console.print(f"The least that can be computed: {least}\n", markup=False)
    console.print(f"[bold]What it means.[/] {verdict.meaning}")
    console.print(f"[bold]What to do.[/] {verdict.advice}")
    if promise:
        console.print("[bold]What the run promises[/]", Text(promise))
    if words := collusion_words(report):
        console.print(f"[bold]Collusion.[/] {words}")
    for title, answer in answers:
        console.print(f"[bold]{title}.[/]", Text(answer))
    if requirement:
        holds = requirement.holds(report)
        console.print(f"\n{'✓' if holds else '✗'} {requirement.words(report)}", style="green" if holds else "red")
        if not holds and not requirement.weak:
            _show_small(report, requirement.privacy + (report.collusion.members if report.collusion else 0), console)


def show_runs(runs: Sequence[tuple[str, AuditReport, Sequence[tuple[str, str]]]]) -> None:
    """Print a line for each run, then the answers about it."""
    console = new_console()
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    table.add_column("run")
    for name in ("clients", "rounds", "strong T", "exposed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict")
    for name, report, _ in runs:
        verdict = judge(report)
        strong = "–" if report.strong_privacy is None else f"{report.strong_privacy:,}"
        numbers = (f"{len(report.clients):,}", f"{len(report.rounds):,}", strong, f"{len(report.exposed):,}")
        shown = Text(f"{verdict.level.mark} {verdict.level.label}", style=verdict.level.color)
        table.add_row(*map(Text, (name, *numbers)), shown)
    console.print(table)
    for name, _, answers in runs:
        for title, answer in answers:
            console.print(Text(f"{name}. {title}. {answer}"))


def _show_exposed(report: AuditReport, listed: Sequence[Exposure], written: int, console: Console) -> None:
    table = Table(
        box=None, padding=(0, 2), pad_edge=False, title="Earliest exposures", title_justify="left", title_style="bold"
    )
    table.add_column("client", no_wrap=True, max_width=24)
    table.add_column("since round", justify="right", no_wrap=True, max_width=24)
    table.add_column("how the server gets it")
    for number, exposure in enumerate(listed):
        words = equation(exposure.witness, {exposure.client: Fraction(1)}) if number < written else "not computed"
        table.add_row(*map(Text, (whose(exposure.client), printable(exposure.round), words)))
    console.print(table)
    if rest := len(report.exposed) - len(listed):
        console.print(f"... and {rest:,} more; --exposed FILE writes all of them.", style="dim")
    if written < len(listed):
        console.print("A witness that is not computed may take seconds; --witnesses N asks for it.", style="dim")
    console.print()


def _show_small(report: AuditReport, privacy: int, console: Console) -> None:
    """Name the groups that are too small for the requirement; a report lists the smallest first."""
    small = [group for group in report.groups if len(group) < privacy]
    for group in small[:_GROUPS]:
        names = ", ".join(map(whose, group[:_GROUPS])) + (", ..." if len(group) > _GROUPS else "")
        console.print(f"  Too small a group: {names} ({len(group):,})", markup=False)
    if len(small) > _GROUPS:
        console.print(f"  ... and {len(small) - _GROUPS:,} more")
