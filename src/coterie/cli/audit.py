"""``coterie audit``: what a participation log gives away about single clients."""

from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli.audit_input import (
    LogInput,
    check_outputs,
    complain,
    format_name,
    plain,
    several_runs_hint,
    spell,
)
from coterie.cli.audit_output import Examination, Outputs
from coterie.cli.common import ExitStatus

_CHEAP_SECONDS, _WEAK_SECONDS = 2.0, 60.0  # for weak T: by the way, and where it is required


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
    window: Annotated[
        str | None,
        typer.Option(
            metavar="minute|hour|day|week",
            help="A round is all rows of one such window; --round-column has their times.",
            show_default=False,
        ),
    ] = None,
    all_runs: Annotated[
        bool,
        typer.Option("--all-runs", help="Audit each run in LOG by itself. The exit status is that of the worst."),
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
    colluders: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Also report what these clients, separated by commas, and the server learn together about the others; "
            "or, for 'any 5', whether any 5 clients could isolate another one. Fail if somebody is exposed to them.",
            show_default=False,
        ),
    ] = None,
    forecast: Annotated[
        bool,
        typer.Option(
            "--forecast",
            help="Also simulate how many rounds are left until the first, and the last, client is exposed.",
        ),
    ] = False,
    what_if: Annotated[
        str | None,
        typer.Option(
            metavar="circles=N",
            help="Also report T and exposures if only whole circles of N clients had been summed in the same rounds.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="For the random draws of --forecast and --what-if.")] = 0,
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
    summary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Write a page in plain words that fits on one sheet of paper.",
            show_default=False,
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
    coterie audit events.csv --round-column time --window day --summary board.html
    coterie audit rounds.csv --forecast --what-if circles=4 --colluders ann,bob
    coterie audit sweep.csv --all-runs --exposed exposed.csv
    """
    from rich.console import Console

    from coterie.auditing.answers import Questions
    from coterie.errors import ConfigError, CoterieError, LedgerTampered, LogTooLarge
    from coterie.host import install_command

    if require is None and weak:
        raise typer.BadParameter("--weak chooses which T --require means: give --require as well")
    if weak and collusion:
        raise typer.BadParameter("--collusion is about strong T: leave out --weak or --collusion")
    if (html and not all(map(find_spec, ("jinja2", "plotly")))) or (summary and not find_spec("jinja2")):
        option = "--html" if html else "--summary"
        raise typer.BadParameter(f"{option} needs more packages; get them with: {install_command('report')}")
    if all_runs and (html or summary or head):
        raise typer.BadParameter("--html, --summary and --head are about one run: choose it with --where")
    check_outputs({"--exposed": exposed, "--html": html, "--summary": summary}, log)
    try:
        questions = Questions.parse(colluders or (), what_if, forecast=forecast, seed=seed)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    given = {
        "--format": log_format,
        "--round-column": round_column,
        "--client-column": client_column,
        "--where": where,
        "--encoding": encoding,
        "--keep-order": keep_order or None,
        "--window": window,
        "--all-runs": all_runs or None,
        "--as-written": as_written or None,
        "--require": require,
        "--weak": weak or None,
        "--collusion": collusion or None,
        "--colluders": colluders,
        "--forecast": forecast or None,
        "--what-if": what_if,
        "--seed": seed or None,
        "--weak-seconds": weak_seconds,
        "--head": head,
        "--report-only": report_only or None,
    }
    options = {name: value for name, value in given.items() if value is not None and value != []}
    log_input = LogInput(
        log, log_format, round_column, client_column, where or [], encoding, head, limit, keep_order, as_written, window
    )
    errors = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    if weak_seconds is None:
        weak_seconds = _WEAK_SECONDS if weak else _CHEAP_SECONDS
    examination = Examination(questions, require, weak, collusion, weak_seconds, report_only, errors)
    try:
        with errors.status("Reading the log ...") if errors.is_terminal else nullcontext():
            runs = log_input.read_runs() if all_runs else {(): log_input.read()}
            promise, promised = _promise(log)
        outputs = Outputs(log_input.name, options, as_json, witnesses, exposed, html, summary, errors)
        if all_runs:
            raise typer.Exit(outputs.write_runs({run: examination.examine(found) for run, found in runs.items()}))
        participation = runs[()]
        complain(participation, errors, notes=as_json)
        if not as_json:
            from coterie.cli.audit_text import show_preview

            show_preview(participation)
        audited = examination.examine(participation)
        outputs.write(audited, promise, promised)
    except CoterieError as error:
        errors.print(f"coterie: {plain(spell(error))}{several_runs_hint(error)}", style="red", markup=False)
        refused = isinstance(error, LedgerTampered | LogTooLarge)
        raise typer.Exit(ExitStatus.REFUSED if refused else ExitStatus.BAD_INPUT) from None
    if audited.status:
        raise typer.Exit(audited.status)


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
