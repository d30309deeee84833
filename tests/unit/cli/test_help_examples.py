"""The examples in the help of commands: the command line understands all of them, and those of plans give plans."""

import json
import re
import shlex
from collections.abc import Iterator

import click
import pytest
import typer.main
from tests.support.commands import understand
from tests.support.records import words_of

from coterie.cli import app


def examples(command: click.Command) -> Iterator[str]:
    """Yield the commands in the examples of a command, and of all commands below it."""
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        yield from examples(inner)
    for line in re.findall(r"^ *(coterie .*)", (command.help or "").partition("[dim]Example")[2], re.MULTILINE):
        yield from (example.strip() for example in line.partition("<")[0].split(";"))


EXAMPLES = list(examples(typer.main.get_command(app)))
PLANS = [example for example in EXAMPLES if example.startswith("coterie plan ")]


def test_examples_of_several_commands_are_found() -> None:
    assert {"attack", "audit", "explore", "plan"} <= {example.split()[1] for example in EXAMPLES}
    assert len(PLANS) == 5


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_command_line_understands_an_example(example: str) -> None:
    understand(shlex.split(example)[1:])


@pytest.mark.parametrize("example", PLANS)
def test_an_example_of_a_plan_gives_a_plan(example: str) -> None:
    words = shlex.split(example)[1:]
    measures = "--clients" in words or "--rounds" in words  # the table of all T does not measure the machine
    assert json.loads(words_of(*words, "--json", *["--no-calibrate"] * measures))
