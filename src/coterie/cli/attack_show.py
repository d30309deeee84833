"""Attacks as they are shown, on a terminal, a page or as JSON: threat model first, then verdict and privacy card."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.common import new_console, print_json, progress_bars, train_extra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from coterie.attacks.finding import Adversary, Attack, AttackFinding, CardLine, WordTable

Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with all figures and pictures.")]


def show(attack: "Attack", html: Path | None, as_json: bool) -> None:
    """Say who attacks and with what, run the attack, and show what came of it."""
    from coterie.files import check_output, write_output

    if html is not None:  # a page that cannot be drawn or written is refused before any work is done
        from coterie.reports.plots import require_matplotlib

        require_matplotlib()
        check_output(html)
    console = new_console()
    if not as_json:
        console.print(f"[bold]{attack.title}[/]")
        _show_threat(console, attack.threat)
    with train_extra():
        finding = _played(attack, silent=as_json)
    if html is not None:
        from coterie.attacks.page import attack_page

        write_output(html, attack_page(attack, finding).encode())
    if as_json:
        from coterie.attacks.finding import record

        print_json(record(attack, finding))
        return
    _show_finding(console, finding)
    if html is not None:
        console.print(f"Page: {html}", markup=False, soft_wrap=True)


def _played(attack: "Attack", *, silent: bool) -> "AttackFinding":
    with progress_bars(silent) as progress:
        task = progress.add_task(attack.title, total=100)
        return attack.play(lambda doing, share: progress.update(task, description=doing, completed=round(100 * share)))


def _show_threat(console: "Console", threat: "Adversary") -> None:
    from rich.markup import escape
    from rich.table import Table as Grid

    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column()
    for about, said in ("who", threat.who), ("sees", threat.sees), ("knows", threat.knows), ("may", threat.may):
        grid.add_row(about, escape(said))
    console.print(grid)
    console.print()


def _show_finding(console: "Console", finding: "AttackFinding") -> None:
    from rich.markup import escape

    console.print(escape(finding.setting))
    for table in finding.tables:
        _show_table(console, table)
    console.print()
    for remark in finding.remarks:
        console.print(f"[dim]{escape(remark)}[/]")
    console.print()
    mark = f"[{finding.level.color} bold]{finding.level.mark} {escape(finding.headline)}[/]"
    console.print(mark)
    _show_card(console, finding.card)


def _show_table(console: "Console", table: "WordTable") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as Drawn

    drawn = Drawn(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, title=escape(table.title), title_justify="left")
    for number, column in enumerate(table.columns):
        drawn.add_column(escape(column), justify="right" if number else "left")
    for row in table.rows:
        drawn.add_row(*map(escape, row))
    console.print(drawn)
    if table.note:
        console.print(f"[dim]{escape(table.note)}[/]")


def _show_card(console: "Console", card: "Sequence[CardLine]") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as Drawn

    drawn = Drawn(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, title="Privacy card", title_justify="left")
    for column in "attack", "against", "outcome", "why":
        drawn.add_column(column)
    for line in card:
        level = line.outcome.level
        outcome = f"[{level.color}]{level.mark} {line.outcome}[/]"
        drawn.add_row(escape(line.attack), escape(line.against), outcome, escape(line.why))
    console.print(drawn)
