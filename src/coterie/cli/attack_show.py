"""Output of attacks: threat model, verdict and privacy card on a terminal; or everything as JSON or a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.common import new_console, print_json, progress_bars, train_extra

if TYPE_CHECKING:
    from coterie.attacks.attack import Attack
    from coterie.reports.findings import Findings

Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with all figures and pictures.")]


def show(name: str, attack: "Attack", html: Path | None, as_json: bool) -> None:
    """Print the threat model, run the attack, and show the findings."""
    from coterie.cli.findings import print_facts, print_findings
    from coterie.files import check_output, write_output

    if html is not None:  # check that the page can be drawn and written before the attack runs
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
        from coterie.reports.html import findings_page

        title, kicker = f"{attack.title}: {findings.headline}", f"Attack · {attack.title}"
        write_output(html, findings_page(title, kicker, attack.threat.facts(), findings).encode())
    if as_json:
        from coterie.attacks.attack import make_record

        print_json(make_record(name, attack, findings))
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
