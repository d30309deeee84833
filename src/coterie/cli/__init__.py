"""The ``coterie`` command.

Every command is a module that imports what it needs when it runs, so that ``coterie --help`` is fast. Where a settings
class declares the options (:mod:`coterie.settings`), :mod:`~coterie.cli.derive` makes them: all attacks
(:mod:`~coterie.cli.attack`) and benchmarks are rows of a table. The commands print what the library returns:
:mod:`~coterie.cli.findings` prints findings, and the modules ``plan_*``, ``audit_*`` and ``bench_*`` their tables. An
error of the library names its parameters; :func:`~coterie.cli.audit_input.spell` writes it with the names of options.
Exit statuses are in :mod:`~coterie.cli.common`, and closed pipes are handled in :mod:`~coterie.cli.output`. Start with
:mod:`~coterie.cli.compare`, a small command.
"""

import signal
import sys
import traceback
from typing import Annotated

import typer

from coterie.cli import attack, audit, bench, compare, demo, explore, plan, reproduce, roster, run
from coterie.cli.audit_input import AuditCommand, spell
from coterie.cli.common import ExitStatus
from coterie.cli.derive import ListingCommand, PlainCommand, PlainGroup
from coterie.cli.output import finish_output, watch_output
from coterie.errors import ConfigError, CoterieError, InputError, LedgerTampered, LogTooLarge
from coterie.version import __version__

app = typer.Typer(
    cls=PlainGroup,
    help="Federated learning whose secure aggregation stays secure, round after round.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=run.SettingsCommand)(run.run)
app.command(cls=run.SettingsCommand, epilog="Example: coterie resume runs/first")(run.resume)
app.command(cls=PlainCommand, epilog="Example: coterie init my.toml")(run.init)
app.command(cls=PlainCommand)(compare.compare)
app.command(cls=ListingCommand, epilog="Example: coterie demo --clients 60 --dropout 0.2")(demo.demo)
app.command(cls=ListingCommand)(plan.plan)
app.command(cls=AuditCommand)(audit.audit)
app.command(cls=PlainCommand)(explore.explore)
app.command(cls=PlainCommand)(reproduce.reproduce)
app.add_typer(attack.app, name="attack")
app.add_typer(bench.app, name="bench")
app.add_typer(roster.app, name="roster")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coterie {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; an error of Coterie becomes one clear line, not a traceback."""
    # SIGTERM ends a job as Ctrl-C does: workers stop, and finished work is kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    watch_output()
    try:
        _run()
    finally:
        finish_output()


def _run() -> None:
    try:
        app()
    except KeyboardInterrupt:  # outside a command, where typer does not catch it
        _say("coterie: interrupted")
        sys.exit(ExitStatus.INTERRUPTED)
    except CoterieError as error:
        _say(f"coterie: {spell(error)}", typer.colors.RED)
        sys.exit(_status(error))
    except OSError as error:  # a file, a disk or a network, not a fault of the program
        from coterie.files import explain

        where = f"{error.filename}: " if error.filename else ""
        _say(f"coterie: {where}{explain(error)}", typer.colors.RED)
        sys.exit(ExitStatus.BAD_INPUT)
    except (MemoryError, OverflowError) as error:
        _say(f"coterie: these numbers are too large for this machine: {error}", typer.colors.RED)
        sys.exit(ExitStatus.BAD_INPUT)
    except SystemExit as end:
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):  # typer exits without a word
            _say("coterie: interrupted")
        raise
    except Exception:
        # Python would exit with 1, which here means that a requirement does not hold.
        _say(traceback.format_exc().rstrip("\n"))
        sys.exit(ExitStatus.CRASHED)


def _say(text: str, color: str | None = None) -> None:
    """Print an error. It may quote files of somebody else: what does not print is escaped, except ends of lines."""
    from coterie.reports.words import one_line

    typer.secho("\n".join(map(one_line, text.split("\n"))), fg=color, err=True)


def _status(error: CoterieError) -> ExitStatus:
    if isinstance(error, LogTooLarge | LedgerTampered):
        return ExitStatus.REFUSED
    return ExitStatus.BAD_INPUT if isinstance(error, ConfigError | InputError) else ExitStatus.NOT_MET
