"""``coterie run``, ``coterie resume`` and ``coterie init``: train a model under secure aggregation."""

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from click import NoSuchOption

from coterie.cli.common import AsJson, ExitStatus, print_json, train_extra
from coterie.cli.derive import PlainCommand

if TYPE_CHECKING:
    from coterie.runs.engine.run import TrainingRun

CONFIG = Path("coterie.toml")


class SettingsCommand(PlainCommand):
    """A command with ``--set``: for an unknown option, the error says how to set the setting of that name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - a type of click
        """Parse the arguments."""
        given = list(args)  # click takes from the list
        try:
            return super().parse_args(ctx, args)
        except NoSuchOption as error:
            from coterie.runs.settings.names import find_settings

            found = find_settings(error.option_name)
            if not found:
                raise
            raise NoSuchOption(error.option_name, _how_to_set(error, found, given), ctx=error.ctx) from None


def _how_to_set(error: NoSuchOption, found: list[str], args: list[str]) -> str:
    """Add to the error how the settings ``found`` are given instead of as options."""
    words = [part for word in args for part in word.split("=", 1)]
    value = next((after for word, after in pairwise(words) if word == error.option_name), "")
    value = "VALUE" if not value or value.startswith("--") else value
    if len(found) == 1:
        kind = " --set noise.kind=discrete-gaussian" if found == ["noise.epsilon"] else ""  # by default there is none
        return f"{error.message} It is a setting: write --set {shlex.quote(f'{found[0]}={value}')}{kind}"
    choices = ", ".join(found)
    return f"{error.message} Write --set {shlex.quote(f'KEY={value}')} with one of these settings as KEY: {choices}"


def run(
    config: Annotated[
        Path | None, typer.Argument(help="Settings, as written by coterie init; by default the bundled digits.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as cohort.size=12; may be repeated."),
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="Training algorithm, such as fedprox; short for --set training.algorithm=NAME.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; by default a new one in the folder runs.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the data sets; by default COTERIE_DATA. Nothing is downloaded.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a model across many clients, every round under secure aggregation.

    The run folder gets the settings, metrics, participation ledger, model and a report. Ctrl-C interrupts the run after
    the round in progress; coterie resume continues a run that was interrupted or killed.

    [dim]Examples[/]
    coterie run --set rounds=30 --out first
    coterie run --set cohort.size=12 --set cohort.privacy=4 --algorithm fedprox
    coterie run my.toml --set noise.kind=discrete-gaussian --set noise.epsilon=8
    coterie run --set data=mine:load --set model=mine:make_model
    """
    from rich.console import Console

    from coterie.runs.settings.toml import load_config

    folder = [f"data.folder={json.dumps(str(data_dir.absolute()))}"] if data_dir else []
    chosen = [f"training.algorithm={json.dumps(algorithm)}"] if algorithm else []
    wanted = load_config(config, [*chosen, *(settings or []), *folder])
    console = Console(highlight=False, emoji=False, quiet=as_json)
    with console.status("Loading data and model ..."):
        if wanted.training.executor == "processes" and wanted.training.workers:
            from coterie.training.executors.processes import warm_up

            warm_up()  # worker processes load torch while this one does
        with train_extra():
            from coterie.runs.engine.run import TrainingRun
            from coterie.runs.report.console import Watcher

            training = TrainingRun.begin(out, wanted, observers=[Watcher(console)])
    _play(training, as_json)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was interrupted or killed.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting that may change, such as rounds=200; repeatable."
        ),
    ] = None,
    ignore_stop: Annotated[
        bool, typer.Option("--ignore-stop", help="Continue although early stopping or an observer ended the run.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Continue a run after Ctrl-C, a crash or kill -9.

    Model, metrics and ledger become those of a run that was never interrupted, bit for bit, except times. A run keeps
    the settings it began with: do not edit config.toml. --set changes only settings that do not affect the rounds that
    were played. A run that early stopping ended plays no further rounds, unless --set changes the stopping rule.
    """
    from rich.console import Console

    console = Console(highlight=False, emoji=False, quiet=as_json)
    with console.status("Loading data and model ..."), train_extra():
        from coterie.runs.engine.run import TrainingRun
        from coterie.runs.report.console import Watcher
        from coterie.runs.storage.folder import RunFolder

        training = TrainingRun.open(
            RunFolder.open(folder), observers=[Watcher(console)], changes=settings or (), ignore_stop=ignore_stop
        )
    _play(training, as_json)


def init(
    file: Annotated[Path, typer.Argument(help="The file to write; - writes to standard output.")] = CONFIG,
    algorithm: Annotated[
        str | None, typer.Option(help="Write the defaults of this training.algorithm, without the settings of others.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a file with every setting of coterie run, its default and what it means."""
    from coterie.errors import ConfigError
    from coterie.files import create_output, write_output
    from coterie.runs.settings.toml import commented_toml

    if str(file) == "-":
        typer.echo(commented_toml(algorithm=algorithm), nl=False)
        return
    text = commented_toml(str(file), algorithm).encode()
    if force:
        write_output(file, text)
    elif not create_output(file, text):
        raise ConfigError(f"{file} exists; --force replaces it")
    typer.echo(f"Wrote {file}. Change what you like, then: coterie run {file}")


def _play(training: "TrainingRun", as_json: bool) -> None:
    from coterie.runs.engine.interrupts import stoppable

    with stoppable(training):
        result = training.play()
    if as_json:
        print_json({"folder": str(result.folder), **result.summary.numbers()})
    if not result.summary.finished:
        raise typer.Exit(ExitStatus.INTERRUPTED)
