"""Unknown commands, options and settings: one suggestion, and the right one."""

import shlex

import pytest
from typer.testing import CliRunner

from coterie.cli import app
from coterie.cli.common import ExitStatus
from coterie.errors import ConfigError
from coterie.runs.settings.names import find_settings, setting_names
from coterie.runs.settings.toml import load_config


def said(*arguments: str) -> str:
    """Return what is said of a wrong command, without its frame."""
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"})
    assert result.exit_code == ExitStatus.BAD_INPUT
    return " ".join(result.output.translate(str.maketrans("│╭╰╮╯─", "      ")).split())


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [("audti", "audit"), ("attack demmo", "demo"), ("bench audti", "audit"), ("roster shw", "show")],
)
def test_the_nearest_command_is_suggested_once(arguments: str, nearest: str) -> None:
    complaint = said(*arguments.split())
    assert complaint.count("Did you mean") == 1
    assert f"'{nearest}'" in complaint


@pytest.mark.parametrize("command", [("run",), ("resume", "folder")])
def test_an_option_that_is_a_setting_is_answered_with_set(command: tuple[str, ...]) -> None:
    for name in setting_names():
        option = f"--{name.replace('.', '-').replace('_', '-')}"
        if option == "--rounds":
            assert said(*command, option, "3").endswith("It is a setting: write --set rounds=3")
        kind = " --set noise.kind=discrete-gaussian" if name == "noise.epsilon" else ""
        assert said(*command, option).endswith(
            f"No such option '{option}'. It is a setting: write --set {name}=VALUE{kind}"
        )


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ("--rounds=3", "--set rounds=3"),
        ("--cohort.size 12", "--set cohort.size=12"),
        ("--epsilon 8 --json", "--set noise.epsilon=8"),
        ("--epsilon --json", "--set noise.epsilon=VALUE"),
        ("--name 'two words'", "--set 'name=two words'"),
        ("--round 3", "--set rounds=3"),
        ("--dropout 0.1", "--set KEY=0.1 with one of these settings as KEY: availability.dropout, faults.dropout, "),
        ("--model mlp", "--set model.name=mlp"),
        ("--cohort 12", "--set KEY=12 with one of these settings as KEY: cohort.policy, cohort.size, "),
    ],
)
def test_the_value_that_was_given_is_in_the_advice(arguments: str, advice: str) -> None:
    assert f"write {advice}" in said("run", *shlex.split(arguments)).replace("Write", "write")


def test_an_option_that_is_nearly_right_is_still_suggested() -> None:
    assert "Did you mean '--data-dir'?" in said("run", "--data-dirr", "x")
    assert said("run", "--nonsense").endswith("No such option '--nonsense'.")


def test_an_option_that_only_looks_alike_is_not_suggested() -> None:
    """The output of an audit is --html, and --format is no other name of it."""
    assert said("audit", "rounds.csv", "--out", "page.html").endswith("No such option '--out'.")


def test_an_empty_search_finds_no_setting() -> None:
    assert find_settings("--") == []


@pytest.mark.parametrize(("key", "meant"), [("size", "cohort.size"), ("rouds", "rounds"), ("cohort.sise", "size")])
def test_a_key_without_its_section_finds_the_setting(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: there is no such setting; did you mean {meant}?"):
        load_config(None, [f"{key}=3"])
