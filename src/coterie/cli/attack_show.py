"""Attacks as they are shown: threat model first, then verdict and privacy card; or all of it as JSON or a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.common import new_console, print_json, progress_bars, train_extra
from coterie.cli.options import MOST_SEED

if TYPE_CHECKING:
    from coterie.attacks.attack import Attack
    from coterie.reports.findings import Findings

DataDir = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where data sets are.", show_default="what COTERIE_DATA says"),
]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with all figures and pictures.")]
SeedOption = Annotated[int, typer.Option(help="Decides every random choice.", min=0, max=MOST_SEED)]
Trials = Annotated[int, typer.Option(help="How often everything is tried, with other seeds.", min=1, max=1000)]


def show(attack: "Attack", html: Path | None, as_json: bool) -> None:
    """Print the threat model, run the attack, and show the findings."""
    from coterie.cli.findings import print_facts, print_findings
    from coterie.files import check_output, write_output

    if html is not None:  # a page that cannot be drawn or written is refused before any work is done
        from coterie.reports.plots import require_matplotlib

        require_matplotlib()
        check_output(html)
    console = new_console()
    if not as_json:
        console.print(f"[bold]{attack.title}[/]")
        print_facts(console, attack.threat.facts())
    with train_extra():
        findings = _run(attack, silent=as_json)
    if html is not None:
        from coterie.reports.page import findings_page

        title, kicker = f"{attack.title}: {findings.headline}", f"Attack · {attack.title}"
        write_output(html, findings_page(title, kicker, attack.threat.facts(), findings).encode())
    if as_json:
        from coterie.attacks.attack import make_record

        print_json(make_record(attack, findings))
        return
    print_findings(console, findings)
    if html is not None:
        console.print(f"Page: {html}", markup=False, soft_wrap=True)


def _run(attack: "Attack", *, silent: bool) -> "Findings":
    from coterie.attacks.attack import run_attack

    with progress_bars(silent) as progress:
        task = progress.add_task(attack.title, total=100)
        return run_attack(
            attack, lambda doing, share: progress.update(task, description=doing, completed=round(100 * share))
        )
