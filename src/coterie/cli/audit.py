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

from coterie.auditing.settings import AuditSettings
from coterie.cli.audit_input import LogInput, complain, plain, spell
from coterie.cli.common import AsJson, ExitStatus
from coterie.cli.derive import with_options
from coterie.settings import declared

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from coterie.auditing.auditor import AuditReport
    from coterie.auditing.logs import Participation
    from coterie.auditing.verdict import Requirement

_CHEAP_SECONDS, _WEAK_SECONDS = 2.0, 60.0  # for weak T: by the way, and where it is required
_TELL_SECONDS = 10.0  # between two lines on how far it is, where there is no terminal
_LISTED = 100  # unreadable lines in the JSON


@with_options
def audit(
    log: Annotated[
        str,
        typer.Argument(metavar="LOG", help="A file, a ledger (file or database URL), a run's folder, or - for stdin."),
    ],
    settings: AuditSettings,
    exposed: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Write all exposed clients to a CSV file.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Write a page with plots, complete in itself.", show_default=False
        ),
    ] = None,
) -> None:
    """Audit a log, and show the findings."""
    from rich.console import Console

    from coterie.auditing.auditor import audit as audit_log
    from coterie.auditing.preview import gather_evidence
    from coterie.auditing.verdict import Requirement
    from coterie.errors import ConfigError, CoterieError, LedgerTampered, LogTooLarge
    from coterie.files import write_output
    from coterie.host import install_command

    require, weak, collusion, witnesses = settings.require, settings.weak, settings.collusion, settings.witnesses
    if require is None and weak:
        raise typer.BadParameter("--weak chooses which T --require means: give --require as well")
    if weak and collusion:
        raise typer.BadParameter("--collusion is about strong T: leave out --weak or --collusion")
    if html and not all(map(find_spec, ("jinja2", "plotly"))):
        raise typer.BadParameter(f"--html needs more packages; get them with: {install_command('report')}")
    log_input = LogInput(log, settings, settings.limit, settings.head)
    options = _given(settings)
    errors = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    weak_seconds = settings.weak_seconds
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
    if not settings.report_only and (report.exposed or (requirement and not requirement.holds(report))):
        raise typer.Exit(ExitStatus.NOT_MET)


def _given(settings: AuditSettings) -> dict[str, Any]:
    """Return the options that a user gave and that the findings depend on, as evidence."""
    values = {setting.name: (getattr(settings, setting.name), setting.default) for setting in declared(AuditSettings)}
    named = {f"--{name.replace('_', '-')}": pair for name, pair in values.items() if name not in ("witnesses", "limit")}
    given = {option: value for option, (value, default) in named.items() if value != default}
    return {option: list(value) if isinstance(value, tuple) else value for option, value in given.items()}


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
