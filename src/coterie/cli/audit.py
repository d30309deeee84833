"""``coterie audit``: what a participation log gives away about single clients."""

import json
import sys
import time
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from coterie.cli.audit_input import LogInput, complain, format_name, plain, spell
from coterie.cli.common import ExitStatus

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from coterie.auditing.auditor import AuditReport
    from coterie.auditing.logs import Participation
    from coterie.auditing.verdict import Requirement

_CHEAP_SECONDS, _WEAK_SECONDS = 2.0, 60.0  # for weak T: by the way, and where it is required
_TELL_SECONDS = 10.0  # between two lines on how far it is, where there is no terminal
_LISTED = 100  # unreadable lines in the JSON


def audit(
    log: Annotated[
        str,
        typer.Argument(metavar="LOG", help="A file, a ledger (file or database URL), a run's folder, or - for stdin."),
    ],
    log_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            parser=format_name,
            help="Recognised from the content unless given.",
            show_default=False,
        ),
    ] = None,
    round_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The column or field with the rounds; or its number.", show_default=False),
    ] = None,
    client_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The column or field with the clients; or its number.", show_default=False),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Read only rows with this value, or with any for *. May be given several times: values of one column "
            "add up, several columns must all agree.",
            show_default=False,
        ),
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a text that is not UTF-8, as in latin-1.", show_default=False)
    ] = None,
    keep_order: Annotated[
        bool,
        typer.Option(
            "--keep-order", help="The rounds took place in the order in which LOG has them, whatever their labels are."
        ),
    ] = False,
    as_written: Annotated[
        bool,
        typer.Option(
            "--as-written",
            help="Names that look alike are different clients, a name with commas is one client, and a round that "
            "comes again after others is the same round.",
        ),
    ] = False,
    require: Annotated[
        int | None,
        typer.Option(metavar="T", min=1, help="Fail also unless T is at least this.", show_default=False),
    ] = None,
    weak: Annotated[
        bool, typer.Option("--weak/--strong", help="Which T is required. Weak T promises much less.")
    ] = False,
    collusion: Annotated[
        int,
        typer.Option(metavar="C", min=0, help="Also report, and require, the T that is left if C members collude."),
    ] = 0,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Do not fail because of what is found, only because of the input.")
    ] = False,
    weak_seconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Time for the exact weak T; after it, bounds. If not given: 60 if it is required, else 2.",
            show_default=False,
        ),
    ] = None,
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
    exposed: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Write all exposed clients to a CSV file.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON and nothing else.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Write a page with plots, complete in itself.", show_default=False
        ),
    ] = None,
) -> None:
    """Find the clients whose updates the sums of past rounds reveal, in the log of any federated learning system.

    LOG says who was aggregated in each round. It is a file, which may be packed with gzip,
    - for standard input, the URL of a ledger's database, or the folder of a run. The formats are
    FORMATS

    An ambiguous log is refused, with the option that resolves it.
    Rounds are put in the order of their numbers, dates or times.
    The output begins with how the log was read.

    [bold]Exit status[/]
    0  nobody is exposed, and the required T holds if one is given; or --report-only
    1  a client is exposed, or the required T does not hold or could not be shown to hold;
    or the output cannot be written, which a line on stderr says
    2  wrong usage, or the log or some of its lines could not be read: do not rely on the verdict
    3  refused: the ledger was tampered with, or the log is above the limit
    70  a fault in Coterie itself
    130  interrupted: what is known by then is shown
    141  the reader of the output stopped before its end
    Strong T = 1 is 0 if no client is exposed; --require 2 makes it 1.

    [dim]Examples[/]
    coterie audit rounds.csv --html audit.html
    coterie audit - --require 6 --json < rounds.csv
    coterie audit events.csv --round-column iteration --client-column device --where event=aggregated
    """
    from rich.console import Console

    from coterie.auditing.auditor import audit as audit_log
    from coterie.auditing.preview import gather_evidence
    from coterie.auditing.verdict import Requirement
    from coterie.errors import ConfigError, CoterieError, LedgerTampered, LogTooLarge
    from coterie.files import write_output
    from coterie.host import install_command

    if require is None and weak:
        raise typer.BadParameter("--weak chooses which T --require means: give --require as well")
    if weak and collusion:
        raise typer.BadParameter("--collusion is about strong T: leave out --weak or --collusion")
    if html and not all(map(find_spec, ("jinja2", "plotly"))):
        raise typer.BadParameter(f"--html needs more packages; get them with: {install_command('report')}")
    given = {
        "--format": log_format,
        "--round-column": round_column,
        "--client-column": client_column,
        "--where": where,
        "--encoding": encoding,
        "--keep-order": keep_order or None,
        "--as-written": as_written or None,
        "--require": require,
        "--weak": weak or None,
        "--collusion": collusion or None,
        "--weak-seconds": weak_seconds,
        "--head": head,
        "--report-only": report_only or None,
    }
    options = {name: value for name, value in given.items() if value is not None and value != []}
    log_input = LogInput(
        log, log_format, round_column, client_column, where or [], encoding, head, limit, keep_order, as_written
    )
    errors = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    if weak_seconds is None:
        weak_seconds = _WEAK_SECONDS if weak else _CHEAP_SECONDS
    try:
        with _Meter(errors, weak_seconds) as meter:
            participation = log_input.read(partial(meter.show, "Reading"))
            promise, promised = _promise(log)
    except CoterieError as error:
        errors.print(f"coterie: {plain(spell(error))}", style="red", markup=False)
        refused = isinstance(error, LedgerTampered | LogTooLarge)
        raise typer.Exit(ExitStatus.REFUSED if refused else ExitStatus.BAD_INPUT) from None
    complain(participation, errors, notes=as_json)
    if not as_json:
        from coterie.cli.audit_text import show, show_preview

        show_preview(participation)
    with _Meter(errors, weak_seconds) as meter:
        report = audit_log(participation, weak_budget_seconds=weak_seconds, collusion=collusion, progress=meter.show)
    requirement = None if require is None else Requirement(require, weak, max(1, len(participation.recipes)))

    if as_json:
        found = _as_dict(report, participation, requirement, witnesses)
        if promise:
            found["promise"] = {"words": promise, **promised}
        found["evidence"] = asdict(gather_evidence(participation, log_input.name, options))
        typer.echo(json.dumps(found, indent=2))
    else:
        show(report, participation, requirement, witnesses, promise)
    try:
        if exposed:
            _write_exposed(exposed, report)
            errors.print(f"The exposed clients are in {exposed}", markup=False)
        if html:
            from coterie.auditing.page import audit_page

            page = audit_page(
                report,
                participation,
                log_input.name,
                requirement=requirement,
                witnesses=witnesses,
                options=options,
                promise=promise,
            )
            write_output(html, page.encode())
            errors.print(f"The page is in {html}", markup=False)
    except ConfigError as error:
        errors.print(f"coterie: {error}", style="red", markup=False)
        raise typer.Exit(ExitStatus.BAD_INPUT) from None
    if not report.complete:
        raise typer.Exit(ExitStatus.INTERRUPTED)
    if participation.problems:  # a missing line can make a verdict worse as well as better
        raise typer.Exit(ExitStatus.BAD_INPUT)
    if not report_only and (report.exposed or (requirement and not requirement.holds(report))):
        raise typer.Exit(ExitStatus.NOT_MET)


def _promise(log: str) -> tuple[str, dict[str, Any]]:
    """Return what a run promises by its own folder, in words and as values; nothing for other logs.

    A folder that contradicts itself raises :class:`~coterie.errors.InputError`.
    """
    if log == "-" or not Path(log).is_dir():
        return "", {}
    from coterie.auditing.logs.run_folders import read_progress
    from coterie.errors import ConfigError
    from coterie.runs.engine.promise import read_promise

    try:
        found = read_promise(Path(log))
    except ConfigError as error:
        return f"not known: {plain(str(error))}.", {"holds": None}
    progress, words = read_progress(Path(log)), found.beside_audit()
    if progress is None or not progress.settings:
        words += " This is by config.toml alone: there is no checkpoint with the settings to compare it with."
    return words, {
        "threat": "active-server" if found.active else "honest-but-curious",
        "graph": "sparse" if found.sparse else "complete",
        "colluders": found.colluders,
        "privacy": found.privacy,
        "honest": found.honest,
        "holds": found.holds,
    }


class _Meter:
    """Shows how far each step is: with bars on a terminal, elsewhere with a line now and then."""

    def __init__(self, errors: "Console", weak_seconds: float) -> None:
        from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), *Progress.get_default_columns(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)
        self._errors, self._weak_seconds = errors, weak_seconds
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._first = self._told = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, step: str, part: float) -> None:
        """Show that this part of a step is done."""
        now = time.monotonic()
        if step not in self._tasks:
            self._tasks[step] = self._bar.add_task(step, total=None if step == "Weak T" else 1.0)
            self._began[step] = now
        self._bar.update(self._tasks[step], completed=part)
        if self._errors.is_terminal:
            return
        if now - self._told >= _TELL_SECONDS:
            self._told = now
            left = f", about {(now - self._began[step]) * (1 - part) / part:.0f} s left" if part else ""
            self._errors.print(f"{step}: {part:.0%} after {now - self._first:.0f} s{left}", markup=False)
        if step == "Weak T" and self._weak_seconds >= _TELL_SECONDS:
            self._errors.print(f"Weak T takes at most {self._weak_seconds:.0f} s more", markup=False)


def _write_exposed(path: Path, report: "AuditReport") -> None:
    import csv
    import io

    from coterie.files import write_output

    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["client", "since_round"])
    rows.writerows((exposure.client, exposure.round) for exposure in report.exposed)
    write_output(path, table.getvalue().encode())


def _as_dict(
    report: "AuditReport", participation: "Participation", requirement: "Requirement | None", witnesses: int | None
) -> dict[str, Any]:
    from coterie.auditing.preview import preview_values
    from coterie.auditing.verdict import affordable, judge

    # Coefficients over thousands of rounds outgrow Python's limit, which guards the parsing of strangers' numbers.
    sys.set_int_max_str_digits(0)
    verdict, problems = judge(report), participation.problems
    found: dict[str, Any] = {"verdict": verdict.headline, "level": verdict.level}
    found |= report.as_dict(affordable(report.exposed, witnesses))
    found["series"] = {"round": report.rounds, **asdict(report.series)}
    found["unreadable"] = {"lines": participation.unread, "first": [asdict(problem) for problem in problems[:_LISTED]]}
    found["notes"] = participation.notes
    found["read"] = preview_values(participation)
    if requirement:
        found["required"] = {**asdict(requirement), "holds": requirement.holds(report)}
    return found
