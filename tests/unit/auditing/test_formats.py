"""The table of log formats: one row is all that a format needs. Errors name parameters, and commands their options."""

import ast
import inspect
import json
import pickle
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from tests.support.log_formats import ATTENDANCE, ATTENDED
from typer.testing import CliRunner

import coterie
from coterie.auditing.logs import FORMATS, formats, read_log
from coterie.cli import app
from coterie.cli.audit_input import OPTIONS, spell
from coterie.errors import ConfigError, ErrorText, InputError, LogTooLarge, Remedy

SOURCE = Path(coterie.__file__).parent
PROJECT = Path(__file__).parents[3]
LIBRARY = sorted([*(SOURCE / "auditing" / "logs").rglob("*.py"), *(SOURCE / "cohorts").rglob("*.py")])
OTHERS = {"planning": "plan", "training": "run"}  # packages, each with a command that shows its errors

remedies = st.builds(Remedy, st.sampled_from(sorted(OPTIONS)), st.none() | st.text())
pieces = st.lists(st.text() | remedies)


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["audit", *map(str, arguments)], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout, result.stderr


# The table.


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS, ATTENDANCE))
    path = tmp_path / "log.txt"
    path.write_text(ATTENDED)
    return path


@pytest.mark.parametrize("named", [False, True])
def test_one_row_is_all_that_a_new_format_needs(made_up: Path, named: bool) -> None:
    options = ["--format", "attendance"] if named else []
    status, shown, _ = run(made_up, *options)
    assert status == 1
    assert re.search(r"Read as +attendance", shown)
    assert "2: 3 to 4" in shown
    assert "1 of 3 clients is exposed" in shown
    status, printed, _ = run(made_up, "--json", *options)
    found: dict[str, Any] = json.loads(printed)
    assert status == 1
    assert found["read"]["format"] == "attendance"
    assert [(entry["client"], entry["round"]) for entry in found["exposed"]] == [("cyd", 4)]
    assert found["evidence"]["size"] == made_up.stat().st_size
    assert len(coterie.audit(made_up).exposed) == 1


@pytest.mark.usefixtures("made_up")
def test_the_help_lists_a_new_format() -> None:
    _, shown, _ = run("--help")
    assert "ledger|attendance]" in shown.replace("│", "").replace("\n", "").replace(" ", "")
    assert "attendance  3: ann+bob after a line [attendance]" in shown


def test_without_its_row_the_format_is_unknown(tmp_path: Path) -> None:
    """The two tests above pass because of the row alone."""
    path = tmp_path / "log.txt"
    path.write_text(ATTENDED)
    assert run(path)[0] == 2
    assert run(path, "--format", "attendance")[0] == 2
    assert "attendance" not in run("--help")[1]


def test_every_format_is_in_the_help() -> None:
    shown = " ".join(run("--help")[1].split())
    for row in FORMATS:
        assert f"· {row.name} {row.looks_like.replace('`', '')}" in shown


def test_the_documentation_has_the_table() -> None:
    documented = (PROJECT / "docs" / "audit.md").read_text(encoding="utf-8")
    rows = "".join(f"| `{row.name}` | {row.looks_like} |\n" for row in FORMATS)
    assert f"| format | looks like |\n|---|---|\n{rows}\n" in documented


def test_names_are_unique_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    names = [row.name for row in FORMATS]
    assert len(set(names)) == len(names)
    (tmp_path / "log.csv").write_text("1,a\n")
    with pytest.raises(ConfigError, match=f"no format xml for logs; there are {', '.join(names)}"):
        read_log(tmp_path / "log.csv", "xml")


# Errors name parameters, and the command line its options.


@given(pieces, pieces)
def test_the_parameters_in_an_error_text_can_be_spelled_in_any_way(
    first: list[str | Remedy], second: list[str | Remedy]
) -> None:
    text = ErrorText(*first, ErrorText(*second))
    assert text == "".join(map(str, [*first, *second]))
    assert text.spelled(str) == text
    assert text.spelled(lambda remedy: f"<{remedy.parameter}>") == "".join(
        f"<{part.parameter}>" if isinstance(part, Remedy) else part for part in [*first, *second]
    )
    error = pickle.loads(pickle.dumps(LogTooLarge(text)))  # noqa: S301  (our own bytes)
    assert error.text.parts == text.parts
    assert str(error) == text


@pytest.mark.parametrize(
    ("remedy", "python", "option"),
    [
        (Remedy("keep_order", True), "keep_order=True", "--keep-order"),
        (Remedy("round_column"), "round_column=...", "--round-column NAME"),
        (Remedy("format", "lists"), "format='lists'", "--format lists"),
        (
            Remedy("where", {"event": ["sent", "ok"]}),
            "where={'event': ['sent', 'ok']}",
            "--where 'event=sent' --where 'event=ok'",
        ),
        (Remedy("limit"), "limit=...", "--limit MB"),
        (Remedy("encoding"), "encoding=...", "--encoding"),
        (Remedy("data_dir", mention=True), "data_dir", "--data-dir"),
        (Remedy("collusion", 0.1), "collusion=0.1", "--collusion 0.1"),
    ],
)
def test_python_and_the_command_line_spell_a_parameter(remedy: Remedy, python: str, option: str) -> None:
    error = InputError("say ", remedy)
    assert (str(error), spell(error), error.remedies) == (f"say {python}", f"say {option}", (remedy,))


REFUSED = {
    "round,client\nmonday,a\ntuesday,b\n": ("keep_order=True", "--keep-order"),
    "rnd,who\n1,a\n2,b\n": ("client_column=...", "--client-column NAME"),
    "1,a,b\n2,c,d\n": ("format='lists'", "--format lists"),
    "round,client,event\n1,a,sent\n": ("where={'event': ['*']}", "--where 'event=*'"),
    "round,client\n1,a\n" * 200: ("limit=...", "--limit MB"),
    "r\0o\0u\0n\0d\0": ("encoding='utf-16-le'", "--encoding utf-16-le"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refusals_name_parameters_in_python_and_options_on_the_command_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    parameter, option = REFUSED[text]
    limit = 2_000
    with pytest.raises(InputError, match=re.escape(parameter)) as refused:
        read_log(tmp_path / "log", limit=limit)
    assert not re.search(r"(?<!\w)--[a-z]", str(refused.value))
    status, _, said = run(tmp_path / "log", "--limit", str(limit / 1e6))
    assert status in (2, 3)
    assert option in said
    assert parameter not in said


def test_reasons_for_single_lines_name_parameters_and_options_too(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes("round,client\n1,Zoë\n1,bob\n".encode("latin-1"))
    (problem,) = read_log(tmp_path / "log").problems
    assert problem.reason == "not text in the encoding that was assumed (see encoding=...)"
    found = json.loads(run(tmp_path / "log", "--json")[1])
    assert found["unreadable"]["first"][0]["reason"] == "not text in the encoding that was assumed (see --encoding)"


def test_coterie_audit_says_that_the_parameters_belong_to_read_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("round,client\nmonday,a\ntuesday,b\n")
    with pytest.raises(InputError, match="keep_order=True") as refused:
        coterie.audit(tmp_path / "log")
    assert "audit(read_log(source, ...))" in "".join(refused.value.__notes__)


def named_by(paths: Iterable[Path]) -> set[str]:
    return {
        str(node.args[0].value)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Remedy"
        if isinstance(node.args[0], ast.Constant)
    }


def test_every_parameter_that_an_error_names_has_its_option() -> None:
    named = named_by(LIBRARY)
    assert {"keep_order", "limit", "where", "format", "encoding"} <= named <= set(OPTIONS)
    assert set(OPTIONS) <= set(inspect.signature(read_log).parameters)
    group: Any = typer.main.get_command(app)
    options = {spelling for parameter in group.commands["audit"].params for spelling in parameter.opts}
    assert {option for option, _ in OPTIONS.values()} <= options


@pytest.mark.parametrize(("package", "command"), OTHERS.items())
def test_other_parameters_are_options_of_their_name(package: str, command: str) -> None:
    named = named_by((SOURCE / package).rglob("*.py"))
    assert named
    group: Any = typer.main.get_command(app)
    options = {spelling for parameter in group.commands[command].params for spelling in parameter.opts}
    assert {spell(ConfigError(Remedy(name, mention=True))) for name in named} <= options


@pytest.mark.parametrize(
    "path",
    [*LIBRARY, *sorted(path for package in OTHERS for path in (SOURCE / package).rglob("*.py"))],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_no_text_of_the_library_spells_an_option(path: Path) -> None:
    """The help of the options themselves, which settings declare with ``Option(...)``, is excepted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Option":
            prose |= {id(inner) for inner in ast.walk(node)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]
    assert [text for text in texts if re.search(r"(?<!\w)--[a-z]", text)] == []
