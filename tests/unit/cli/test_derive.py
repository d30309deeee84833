"""Options derived from settings classes: a setting is declared once, and an attack is one row of a table."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import click
import numpy as np
import pytest
import typer
import typer.main
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from tests.support.interpreter import printed_by
from typer.testing import CliRunner

from coterie.attacks.table import ATTACKS
from coterie.cli.common import AsJson
from coterie.cli.derive import ListingCommand, with_options
from coterie.errors import ConfigError
from coterie.settings import Option, Settings, declared, read_table

RUNNER = CliRunner()
DOCS = Path(__file__).parents[3] / "docs" / "attacks"


@dataclass(frozen=True)
class MadeUpSettings(Settings):
    """Count sheep.

    They jump over a fence.
    """

    sheep: Annotated[int, Option("Number of sheep.", least=1, most=100)] = 7
    color: Annotated[Literal["white", "black"], Option("Color of the sheep.")] = "white"
    heights: Annotated[tuple[float, ...], Option("Height of a fence; may be repeated.", least=0)] = (0.5, 1.0)
    herds: Annotated[tuple[int, ...], Option("Sizes of herds, separated by commas.", least=2, commas=True)] = (3, 4)
    awake: Annotated[
        bool, Option("Whether the counter sleeps.", name="--mode", values={"awake": True, "asleep": False})
    ] = True
    slope: Annotated[float, Option("Slope of the field.", name="--lambda -l")] = 0.1
    dogs: Annotated[int, Option("Number of dogs.", least=0, default="one for ten sheep")] = 0
    farm: Annotated[str | None, Option("Name of the farm.", metavar="NAME", table="coterie.attacks.table:ATTACKS")] = (
        None
    )
    hidden: int = 3

    @classmethod
    def of(cls, **given: Any) -> Self:  # noqa: ANN401 - the fields of this class
        return cls(**{"dogs": given.get("sheep", cls.sheep) // 10, **given})


app = typer.Typer()


@app.command(cls=ListingCommand)
@with_options
def count(settings: MadeUpSettings, as_json: AsJson = False) -> None:
    typer.echo(json.dumps({**vars(settings), "as_json": as_json}))


def invoke(*arguments: str) -> Result:
    return RUNNER.invoke(app, arguments)


def counted(*arguments: str) -> dict[str, Any]:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def derived() -> dict[str, click.Option]:
    command = typer.main.get_command(app)
    return {option.opts[0]: option for option in command.params if isinstance(option, click.Option)}


def test_options_are_derived_from_fields_and_the_command_adds_its_own() -> None:
    assert list(derived()) == [
        *("--sheep", "--color", "--heights", "--herds", "--mode", "--lambda", "--dogs", "--farm", "--json"),
        *("--install-completion", "--show-completion"),
    ]
    assert derived()["--lambda"].opts == ["--lambda", "-l"]
    assert derived()["--farm"].metavar == "NAME"
    assert [derived()[name].help for name in ("--sheep", "--mode")] == [
        "Number of sheep.",
        "Whether the counter sleeps.",
    ]
    shown = " ".join(invoke("--help").stdout.replace("│", "").split())
    assert "Count sheep." in shown
    assert "They jump over a fence." in shown
    assert "one for ten sheep" in shown
    assert f"Name of the farm. Choices: {', '.join(ATTACKS)}." in shown
    assert "--hidden" not in shown


def test_defaults_are_those_of_the_class() -> None:
    assert counted() == {**json.loads(json.dumps(vars(MadeUpSettings()))), "as_json": False}


@given(
    sheep=st.integers(1, 100),
    heights=st.lists(st.floats(0, 1e6), max_size=3),
    herds=st.lists(st.integers(2, 10**6), min_size=1, max_size=4),
    awake=st.booleans(),
    dogs=st.none() | st.integers(0, 50),
)
def test_given_values_reach_the_settings(
    sheep: int, heights: list[float], herds: list[int], awake: bool, dogs: int | None
) -> None:
    arguments = ["--sheep", str(sheep), "--herds", ",".join(map(str, herds)), "--mode", "awake" if awake else "asleep"]
    arguments += [part for height in heights for part in ("--heights", str(height))]
    arguments += ["--dogs", str(dogs)] if dogs is not None else []
    found = counted(*arguments, "--color", "black", "-l", "2", "--farm", "mine", "--json")
    assert found == {
        "sheep": sheep,
        "color": "black",
        "heights": heights or [0.5, 1.0],
        "herds": herds,
        "awake": awake,
        "slope": 2.0,
        "dogs": sheep // 10 if dogs is None else dogs,
        "farm": "mine",
        "hidden": 3,
        "as_json": True,
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sheep", "0"], "Invalid value for '--sheep': should be from 1 to 100, not 0."),
        (["--heights", "-1"], "Invalid value for '--heights': should be at least 0, not -1.0."),
        (["--color", "green"], "Invalid value for '--color': 'green' is not one of 'white', 'black'."),
        (["--mode", "dead"], "Invalid value for '--mode': 'dead' is not one of 'awake', 'asleep'."),
        (["--herds", "3,many"], "Invalid value for --herds: write numbers with commas between them, not '3,many'"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line_with_the_option(arguments: list[str], said: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", "").split())


def test_bounds_are_checked_for_lists_of_numbers_and_from_python() -> None:
    assert str(invoke("--herds", "3,1").exception) == "herds must be a whole number of at least 2, not 1"
    for wrong, said in (
        ({"sheep": 0}, "sheep must be a whole number from 1 to 100, not 0"),
        ({"sheep": 101}, "sheep must be a whole number from 1 to 100, not 101"),
        ({"heights": (1.0, float("nan"))}, "heights must be a number of at least 0, not nan"),
        ({"dogs": -1}, "dogs must be a whole number of at least 0, not -1"),
        ({"dogs": None}, "dogs must be a whole number of at least 0, not None"),
        ({"sheep": True}, "sheep must be a whole number from 1 to 100, not True"),
        ({"slope": "steep"}, "slope must be a number, not 'steep'"),
    ):
        with pytest.raises(ConfigError, match=f"^{said}$"):
            MadeUpSettings(**wrong)
    assert MadeUpSettings(sheep=np.int64(3), slope=np.float32(2)).sheep == 3  # type: ignore[arg-type]
    assert MadeUpSettings(slope=float("inf")).slope == float("inf"), "it has no bounds"


def test_a_toml_table_has_the_same_names_types_and_bounds() -> None:
    found = read_table(MadeUpSettings, {"sheep": 20, "heights": [2, 3], "color": "black", "hidden": 4}, "the farm")
    assert found == MadeUpSettings(sheep=20, heights=(2.0, 3.0), color="black", hidden=4, dogs=2)
    for wrong, said in (
        ({"shep": 1}, "the farm: there is no setting 'shep'; known are awake, color"),
        ({"sheep": "many"}, "the farm: sheep: Expected `int`, got `str`"),
        ({"color": "green"}, "the farm: color: Invalid enum value 'green'"),
        ({"sheep": 0}, "the farm: sheep must be a whole number from 1 to 100, not 0"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_table(MadeUpSettings, wrong, "the farm")


def test_the_documents_have_a_page_for_every_attack_and_for_no_other() -> None:
    listed = re.findall(r"^\| \[([\w-]+)\]\(\1\.md\) \|", (DOCS / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted([*listed, "demo"]) == sorted(ATTACKS)
    assert {page.stem for page in DOCS.glob("*.md")} == {*listed, "README"}


def test_the_command_line_starts_without_anything_heavy() -> None:
    program = "import sys, coterie.cli; print(*{'msgspec', 'numpy', 'pydantic', 'rich', 'torch'} & sys.modules.keys())"
    assert printed_by(program) == "\n"


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_the_fields_of_its_settings_and_no_others(name: str) -> None:
    row = ATTACKS[name]
    settings = row.load_settings()
    attack = row.make(settings.of())
    assert isinstance(attack, settings)
    assert vars(attack).keys() == vars(settings.of()).keys()
    assert declared(settings), "an attack without options"


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_states_its_threat_model_in_phrases_of_one_form(name: str) -> None:
    row = ATTACKS[name]
    attack = row.make(row.load_settings().of())
    assert [question for question, _ in attack.threat.facts()] == ["Who attacks", "Sees", "Knows", "May"]
    for _, answer in attack.threat.facts():
        assert answer[:1].islower() or answer[:1].isdigit()
        assert not answer.endswith(".")
    assert attack.title
