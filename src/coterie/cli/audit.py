"""``coterie audit``: what a participation log gives away about single clients."""

import json
import sys
from contextlib import nullcontext
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.common import ExitStatus

if TYPE_CHECKING:
    from rich.console import Console

    from coterie.auditing.auditor import AuditReport
    from coterie.auditing.logs import Participation
    from coterie.auditing.verdict import Requirement

_COMPLAINTS = 5  # unreadable lines shown on stderr
_LISTED = 100  # and in the JSON


class LogFormat(StrEnum):
    """The kinds of logs."""

    CSV = "csv"
    PAIRS = "pairs"
    MATRIX = "matrix"
    JSONL = "jsonl"
    NPY = "npy"
    NPZ = "npz"
    LEDGER = "ledger"


def audit(
    log: Annotated[str, typer.Argument(metavar="LOG", help="A file, a ledger (file or database URL), or - for stdin.")],
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            "--format", help="Told from the content unless given; csv is pairs or matrix.", show_default=False
        ),
    ] = None,
    require: Annotated[
        int | None, typer.Option(metavar="T", min=1, help="Fail unless T is at least this.", show_default=False)
    ] = None,
    weak: Annotated[
        bool, typer.Option("--weak/--strong", help="Which T is required. Weak T promises much less.")
    ] = False,
    collusion: Annotated[
        int,
        typer.Option(metavar="C", min=0, help="Also tell, and require, the T left when C members of a group collude."),
    ] = 0,
    weak_seconds: Annotated[float, typer.Option(min=0, help="Time for the exact weak T; after it, bounds.")] = 60.0,
    witnesses: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Compute how the first N exposed clients are isolated. If not given: 10 for the text and all for the "
            "JSON, as long as that is quick.",
            show_default=False,
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="SEQUENCE:DIGEST",
            help="For a ledger: a head of it that was kept elsewhere, to find out whether its end was cut off.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        float, typer.Option(metavar="MB", min=0, help="Refuse a log that takes more than this, unpacked.")
    ] = 250,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON and nothing else.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Write a page with plots, complete in itself.", show_default=False
        ),
    ] = None,
) -> None:
    """Find out whom the sums of past rounds give away: on the log of any federated learning system.

    LOG says who was aggregated in each round. It is a file, or - for standard input, with one of
    · CSV lines: round,client
    · a CSV matrix of 0 and 1, a row for each round
    · JSONL: {"round": 7, "clients": ["a", "b"]}
    · a .npy or .npz matrix
    or a ledger of Coterie: its file, or the URL of its database.

    A ledger is verified, entry by entry, and nothing is written to it.

    [bold]Exit status[/]
    0  all is well
    1  the required T does not hold, or could not be shown to hold
    2  wrong usage, or the log or some of its lines could not be read: do not rely on the verdict
    3  refused: the ledger was tampered with, or the log is above the limit
    70  a fault in Coterie itself

    [dim]Examples[/]
    coterie audit rounds.csv --html audit.html
    coterie audit - --require 6 --json < rounds.csv
    """
    from rich.console import Console

    from coterie.auditing.verdict import Requirement
    from coterie.errors import CoterieError, LedgerTampered, LogTooLarge
    from coterie.host import install_command

    if require is None and weak:
        raise typer.BadParameter("--weak says which T is required: it needs --require")
    if weak and collusion:
        raise typer.BadParameter("colluding members of a group concern strong T; leave --weak or --collusion out")
    if html and not all(map(find_spec, ("jinja2", "plotly"))):
        raise typer.BadParameter(f"--html needs more packages; get them with: {install_command('report')}")
    errors = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    try:
        with errors.status("Reading the log ...") if errors.is_terminal else nullcontext():
            participation = _read(log, log_format, head, limit)
    except CoterieError as error:
        errors.print(f"coterie: {_plain(str(error))}", style="red", markup=False)
        refused = isinstance(error, LedgerTampered | LogTooLarge)
        raise typer.Exit(ExitStatus.REFUSED if refused else ExitStatus.BAD_INPUT) from None
    _complain(participation, errors)
    report = _examine(participation, weak_seconds, collusion, errors)
    requirement = None if require is None else Requirement(require, weak)

    if as_json:
        typer.echo(json.dumps(_as_dict(report, participation, requirement, witnesses), indent=2))
    else:
        from coterie.cli.audit_text import show

        show(report, participation, requirement, witnesses)
    if html:
        from coterie.auditing.page import audit_page

        page = audit_page(report, participation, _source(log), requirement=requirement, witnesses=witnesses)
        try:
            html.write_text(page, encoding="utf-8")
        except OSError as error:
            errors.print(f"coterie: cannot write {html}: {error.strerror}", style="red", markup=False)
            raise typer.Exit(ExitStatus.BAD_INPUT) from None
        errors.print(f"The page is in {html}", markup=False)
    if requirement and not requirement.holds(report):
        raise typer.Exit(ExitStatus.NOT_MET)
    if participation.problems:
        raise typer.Exit(ExitStatus.BAD_INPUT)


def _read(log: str, log_format: LogFormat | None, head: str | None, limit: float) -> "Participation":
    from coterie.auditing.log_size import MEGABYTE
    from coterie.auditing.logs import Format, read_log

    known: dict[LogFormat | None, Format] = {
        LogFormat.PAIRS: "pairs",
        LogFormat.MATRIX: "matrix",
        LogFormat.JSONL: "jsonl",
        LogFormat.NPY: "npy",
        LogFormat.NPZ: "npy",
        LogFormat.LEDGER: "ledger",
    }
    kept = None
    if head is not None:
        from coterie.cohorts.ledger import Head

        kept = Head.parse(head)
    return read_log(log, known.get(log_format), limit=int(limit * MEGABYTE), head=kept)


def _source(log: str) -> str:
    if "://" in log:
        from sqlalchemy import make_url

        return make_url(log).render_as_string(hide_password=True)
    return "standard input" if log == "-" else Path(log).name


def _plain(text: str) -> str:
    from coterie.reports.words import printable

    return printable(text, 500)


def _complain(participation: "Participation", errors: "Console") -> None:
    from coterie.reports.words import count

    for note in participation.notes:
        errors.print(f"Note: {_plain(note)}.", markup=False)
    problems = participation.problems
    if not problems:
        return
    unread = count(len(problems), "line")
    errors.print(f"{unread} could not be read; do not rely on the verdict:", style="red", markup=False)
    for problem in problems[:_COMPLAINTS]:
        errors.print(f"  line {problem.line}: {_plain(problem.reason)}: {_plain(problem.text)}", markup=False)
    if len(problems) > _COMPLAINTS:
        errors.print(f"  ... and {len(problems) - _COMPLAINTS:,} more")


def _examine(participation: "Participation", weak_seconds: float, collusion: int, errors: "Console") -> "AuditReport":
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    from coterie.auditing.auditor import Auditor

    auditor = Auditor(participation.clients)
    columns = (SpinnerColumn(), *Progress.get_default_columns()[:3], TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        for label, members in progress.track(participation, len(participation.rounds), description="Rounds"):
            auditor.add_round(label, members)
        progress.add_task(f"Weak T (at most {weak_seconds:.0f} s)", total=None)
        return auditor.report(weak_budget_seconds=weak_seconds, collusion=collusion)


def _as_dict(
    report: "AuditReport", participation: "Participation", requirement: "Requirement | None", witnesses: int | None
) -> dict[str, Any]:
    from dataclasses import asdict

    from coterie.auditing.verdict import affordable, judge

    # Coefficients over thousands of rounds outgrow Python's limit, which guards the parsing of strangers' numbers.
    sys.set_int_max_str_digits(0)
    verdict, problems = judge(report), participation.problems
    found: dict[str, Any] = {"verdict": verdict.headline, "level": verdict.level}
    found |= report.as_dict(affordable(report.exposed, witnesses))
    found["series"] = {"round": report.rounds, **asdict(report.series)}
    found["unreadable"] = {"lines": len(problems), "first": [asdict(problem) for problem in problems[:_LISTED]]}
    found["notes"] = participation.notes
    if requirement:
        found["required"] = {**asdict(requirement), "holds": requirement.holds(report)}
    return found
