"""``coterie audit``: what a participation log reveals about individual clients."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.auditing.settings import AuditSettings
from coterie.cli.audit_input import LogInput, check_outputs, complain, plain, several_runs_hint, spell
from coterie.cli.audit_output import Examination, Meter, Outputs
from coterie.cli.common import AsJson, ExitStatus
from coterie.cli.derive import with_options
from coterie.settings import declared

_output = partial(typer.Option, metavar="FILE", dir_okay=False, show_default=False)


@with_options
def audit(
    log: Annotated[
        str,
        typer.Argument(metavar="LOG", help="A file, a ledger (file or database URL), a run's folder, or - for stdin."),
    ],
    settings: AuditSettings,
    exposed: Annotated[Path | None, _output(help="Write all exposed clients to a CSV file.")] = None,
    as_json: AsJson = False,
    html: Annotated[Path | None, _output(help="Write a page with plots, complete in itself.")] = None,
    summary: Annotated[
        Path | None, _output(help="Write a page in plain words that fits on one sheet of paper.")
    ] = None,
) -> None:
    """Audit a log, and show the findings."""
    from rich.console import Console

    from coterie.auditing.answers import Questions
    from coterie.errors import ConfigError, CoterieError, LedgerTampered, LogTooLarge
    from coterie.host import install_command

    if settings.require is None and settings.weak:
        raise typer.BadParameter("--weak changes the meaning of --require: give --require as well")
    if settings.weak and settings.collusion:
        raise typer.BadParameter("--collusion refers to strong T: leave out --weak or --collusion")
    for option, path in (("--html", html), ("--summary", summary)):
        if path and not all(map(find_spec, ("jinja2", "plotly"))):
            raise typer.BadParameter(f"{option} needs more packages; get them with: {install_command('report')}")
    if settings.all_runs and (html or summary or settings.head):
        raise typer.BadParameter("--html, --summary and --head are about one run: choose it with --where")
    check_outputs({"--exposed": exposed, "--html": html, "--summary": summary}, log)
    try:
        questions = Questions.parse(
            settings.colluders, settings.what_if, forecast=settings.forecast, seed=settings.seed
        )
    except ConfigError as error:
        raise typer.BadParameter(spell(error)) from None
    log_input = LogInput(log, settings, settings.limit, settings.head)
    errors = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    examination = Examination(settings, questions, errors)
    try:
        with Meter(errors, examination.weak_seconds) as meter:
            read = log_input.read_runs if settings.all_runs else log_input.read
            found = read(partial(meter.show, "Reading"))
            promise, promised = _promise(log)
        outputs = Outputs(log_input.name, _given(settings), as_json, settings.witnesses, exposed, html, summary, errors)
        if isinstance(found, dict):
            status = outputs.write_runs({run: examination.examine(history) for run, history in found.items()})
        else:
            complain(found, errors, notes=as_json)
            if not as_json:
                from coterie.cli.audit_text import show_preview

                show_preview(found)
            audited = examination.examine(found)
            outputs.write(audited, promise, promised)
            status = audited.status
    except CoterieError as error:
        errors.print(f"coterie: {plain(spell(error))}{several_runs_hint(error)}", style="red", markup=False)
        refused = isinstance(error, LedgerTampered | LogTooLarge)
        raise typer.Exit(ExitStatus.REFUSED if refused else ExitStatus.BAD_INPUT) from None
    if status:
        raise typer.Exit(status)


def _given(settings: AuditSettings) -> dict[str, Any]:
    """Return the given options that the findings depend on, for the record in the report."""
    values = {setting.name: (getattr(settings, setting.name), setting.default) for setting in declared(AuditSettings)}
    named = {f"--{name.replace('_', '-')}": pair for name, pair in values.items() if name not in ("witnesses", "limit")}
    given = {option: value for option, (value, default) in named.items() if value != default}
    return {option: list(value) if isinstance(value, tuple) else value for option, value in given.items()}


def _promise(log: str) -> tuple[str, dict[str, Any]]:
    """Return what a run promises according to its folder, in words and as values; nothing for other logs.

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
