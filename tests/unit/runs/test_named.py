"""Objects of the user that settings name: how they are found, and the errors if they are not."""

import sys
from pathlib import Path

import pytest
from tests.support.interpreter import printed_by

from coterie.errors import ConfigError
from coterie.runs.sections.extensions import call_named, call_offering, is_named, takes

MODULE = """
import neighbour_of_mine

def shout(word: str, times: int = 2):
    return neighbour_of_mine.loud(word) * times

def torn():
    raise OSError("the tape is torn")

number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "mine_in_this_folder.py").write_text(MODULE)
    (tmp_path / "neighbour_of_mine.py").write_text("def loud(word): return word.upper()")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a:b", True),
        ("a.b.c:D", True),
        ("a", False),
        (":b", False),
        ("a:", False),
        ("a.:b", False),
        ("a:b.c", False),
        ("a b:c", False),
        ("../a:b", False),
        ("1a:b", False),
    ],
)
def test_names_of_the_form_module_and_name_are_recognised(text: str, named: bool) -> None:
    assert is_named(text) is named


def test_a_function_in_the_current_folder_gets_what_its_parameters_name(folder: Path) -> None:
    assert call_offering("data.name", "mine_in_this_folder:shout", word="a", times=3, unasked=1) == "AAA"
    assert takes("data.name", "mine_in_this_folder:shout", "word")
    assert not takes("data.name", "mine_in_this_folder:shout", "unasked")
    assert sys.path[-1] == str(folder)  # where worker processes find it, and behind all libraries


def test_arguments_that_a_function_does_not_take_are_refused(folder: Path) -> None:
    assert call_named("data.name", "mine_in_this_folder:shout", word="a", times=3) == "AAA"
    for unknown in ("unasked", "text"):
        with pytest.raises(ConfigError, match=f"shout failed: TypeError: .*unexpected keyword argument '{unknown}'"):
            call_named("data.name", "mine_in_this_folder:shout", word="a", **{unknown: 1})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nowhere_to_be_found:f", "data.name: there is no module nowhere_to_be_found in "),
        ("mine_in_this_folder:missing", "mine_in_this_folder has no function or class missing"),
        ("mine_in_this_folder:number", "mine_in_this_folder has no function or class number"),
        ("broken_of_mine:f", r"importing broken_of_mine failed: SyntaxError.*broken_of_mine\.py"),
        ("needy_of_mine:f", "importing needy_of_mine failed: ModuleNotFoundError: No module named 'absent_library'"),
        ("mine_in_this_folder:torn", r"mine_in_this_folder:torn failed: OSError: the tape is torn \(.*mine_in.*:8\)"),
        ("mine_in_this_folder:shout", "shout failed: TypeError: .*missing 1 required.*'word'"),
    ],
)
def test_errors_name_the_setting_and_the_place(folder: Path, text: str, said: str) -> None:
    (folder / "broken_of_mine.py").write_text("def f(:")
    (folder / "needy_of_mine.py").write_text("import absent_library")
    with pytest.raises(ConfigError, match=said) as caught:
        call_named("data.name", text)
    assert str(caught.value).startswith("data.name: ")


def test_nothing_else_in_the_current_folder_is_imported(folder: Path) -> None:
    for name in ("statistics", "scipy", "mine"):
        (folder / f"{name}.py").write_text(f"print('{name} of the current folder')\ndef f(): return 1")
    program = (
        "import sys; sys.path.remove('')\n"
        "from coterie.runs.sections.extensions import call_named\n"
        "call_named('data.name', 'mine:f')\n"
        "import statistics, scipy"
    )
    assert printed_by(program, folder) == "mine of the current folder\n"
