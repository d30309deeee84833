"""Options of the command line: scripts of users depend on their names, types, bounds and defaults."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

from coterie.attacks.differencing.settings import SavedSumsSettings
from coterie.cli import app
from coterie.cli.audit_input import OPTIONS as REMEDIES
from coterie.cli.audit_input import spell
from coterie.errors import ConfigError
from coterie.runs.settings.toml import load_config

OPTIONS = json.loads((Path(__file__).parent / "options.json").read_text("utf-8"))
"""For each command its options, as they were before they were derived from settings classes.

Options that were None and then replaced by a list are written with that list. ``attack differencing --limit`` was 2000
for sums and could not be raised for a log; it is now null, which means 2000 for sums and 250 for a log.
``reproduce --rewrite`` is called ``--report`` as well.
"""


def commands(group: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command below a group, by its full name."""
    if isinstance(group, click.Group):
        for called, command in group.commands.items():
            yield from commands(command, f"{name} {called}".strip())
    else:
        yield name, group


def option_record(option: click.Parameter) -> dict[str, Any]:
    """Return what a script can rely on; a path and a text are the same to it."""
    kind = option.type
    default = option.default() if callable(option.default) else option.default
    return {
        "names": sorted([*option.opts, *option.secondary_opts]),
        "type": {"integer range": "integer", "float range": "float", "path": "text"}.get(kind.name, kind.name),
        "choices": sorted(map(str, getattr(kind, "choices", ()))),
        "least": getattr(kind, "min", None),
        "most": getattr(kind, "max", None),
        "multiple": bool(getattr(option, "multiple", False)),
        "default": list(default) if isinstance(default, list | tuple) else default,
    }


def all_commands() -> dict[str, click.Command]:
    return dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_a_command_stay_what_they_are(name: str) -> None:
    found = {record["names"][0]: record for record in map(option_record, all_commands()[name].params)}
    wanted = {record["names"][0]: record for record in OPTIONS[name]}
    assert {first: found.get(first) for first in wanted} == wanted


def test_every_option_has_help() -> None:
    silent = [
        f"{name} {option.opts[0]}"
        for name, command in all_commands().items()
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and not (option.help or "").strip()
    ]
    assert silent == []


def test_every_argument_has_help() -> None:
    """Click 8.5 deletes the help that typer 0.20 gives to arguments."""
    silent = [
        f"{name} {argument.name}"
        for name, command in all_commands().items()
        for argument in command.params
        if isinstance(argument, click.Argument) and not (getattr(argument, "help", None) or "").strip()
    ]
    assert silent == []


@pytest.mark.parametrize("name", ["audit", "attack differencing"])
def test_commands_that_read_a_log_have_every_option_that_an_error_may_name(name: str) -> None:
    known = {name for option in all_commands()[name].params for name in option.opts}
    assert {option for option, _ in REMEDIES.values()} - known == set()


@pytest.mark.parametrize(
    ("wrong", "library", "command_line"),
    [
        (lambda: load_config(None, ["rounds=0"]), "set rounds: should be", "--set rounds: should be"),
        (lambda: load_config(None, ["rounds"]), "set takes section.key=value", "--set takes section.key=value"),
        (
            lambda: load_config(None, ["rounds=0", "seed=-1"]),
            "2 settings are wrong:\n  set seed: should be",
            "2 settings are wrong:\n  --set seed: should be",
        ),
        (lambda: SavedSumsSettings(out="x"), "out is for updates from saved", "--out is for updates from saved"),
        (lambda: SavedSumsSettings(sums="x"), "either run, or ledger and sums", "either --run, or --ledger and --sums"),
    ],
)
def test_errors_name_the_setting_and_the_command_line_spells_the_option(
    wrong: Callable[[], object], library: str, command_line: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        wrong()
    assert library in str(caught.value)
    assert "--" not in str(caught.value)
    assert command_line in spell(caught.value)
