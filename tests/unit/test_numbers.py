"""Numbers in documents: a note says where each comes from, in a form that can be checked."""

import re
import shlex
from pathlib import Path

import pytest
from click import UsageError
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.support.commands import understand
from tests.support.numbers import MARKS, MOST_MINUTES, Note, Number, compare, documents, faults, read_notes
from tests.support.outputs import PROJECT, DataMissing, Near, NoteError, functions_of, load, run_command

from coterie.errors import ConfigError

TEXTS = {name: (PROJECT / name).read_text(encoding="utf-8") for name in documents()}
NOTES = [note for name, text in TEXTS.items() for note in read_notes(text, name)]


def all_faults(text: str) -> list[str]:
    return [fault for note in read_notes(text) for fault in faults(note)]


# The documents.


def test_every_document_is_checked() -> None:
    assert {"README.md", "SECURITY.md", "docs/confined.md", "examples/flower/README.md"} < set(TEXTS)
    assert {note.kind for note in NOTES} == {*MARKS, "committed", "result"}


@pytest.mark.parametrize("name", TEXTS)
def test_every_number_is_explained(name: str) -> None:
    assert [fault for note in read_notes(TEXTS[name], name) for fault in faults(note)] == []


@pytest.mark.parametrize("name", TEXTS)
def test_a_number_that_is_added_is_found(name: str) -> None:
    for added in ("It is 12.3 points better.", "It costs 7% of the time.", "| a | b |\n|---|---|\n| c | 1,234 |"):
        assert len(all_faults(f"{TEXTS[name]}\n\n{added}\n")) == 1, added


@pytest.mark.parametrize("name", TEXTS)
def test_notes_do_not_change_the_rendered_page(name: str) -> None:
    """What is rendered is the same without them, but for the comments themselves."""
    renderer = MarkdownIt("commonmark").enable("table")
    shown = re.sub(r"<!-- numbers:.*?-->", "", renderer.render(TEXTS[name]), flags=re.DOTALL)
    bare = renderer.render(re.sub(r"^ *<!-- numbers:.*?-->\n", "", TEXTS[name], flags=re.DOTALL | re.MULTILINE))
    assert re.sub(r"\s+", "", shown) == re.sub(r"\s+", "", bare)


@pytest.mark.parametrize("note", [note for note in NOTES if note.kind == "committed"], ids=lambda note: note.where)
def test_committed_numbers_are_in_the_committed_reports(note: Note) -> None:
    assert [str(compared) for compared in compare(note, load) if not compared.agrees] == []


@pytest.mark.parametrize("command", sorted({command for note in NOTES for command in note.commands}))
def test_every_command_is_one(command: str) -> None:
    program, *words = shlex.split(command)
    if program == "pytest":
        assert (PROJECT / words[-1]).exists()
    else:
        assert program == "coterie"
        understand(words)


@pytest.mark.parametrize(
    "wrong", ["run --jsn", "run --set cohort.sise=3", "attack nothing", "bench secagg --clients many"]
)
def test_wrong_commands_are_detected(wrong: str) -> None:
    with pytest.raises((UsageError, ConfigError)):
        understand(shlex.split(wrong))


@pytest.mark.parametrize("note", [note for note in NOTES if note.kind == "test"], ids=lambda note: note.where)
def test_every_test_that_is_named_exists(note: Note) -> None:
    file, _, name = note.about.partition("::")
    assert name in functions_of(file)


def test_most_results_are_run_again() -> None:
    results = [note for note in NOTES if note.kind == "result"]
    assert sum(note.minutes < MOST_MINUTES for note in results) > 0.8 * len(results)


# How notes are read.

NOTE = "<!-- numbers: 1 minute\n$ coterie attack demo --json\n{items}\n-->\n{text}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a share of 12% and 0.5 of 1,000 in 40 rounds", ["12", "0.5", "1,000"]),
        ("56.4 ± 0.7 % (55 to 58%), or -3.5 and +1.2%", ["56.4", "0.7", "55", "58", "-3.5", "+1.2"]),
        ("`p = 0.25` is code, [a link](x-1.2.md) and Table 5.1 are no claims, Python 3.11 neither", []),
        ("with p = 0.7, lambda = 0.1 and T = 2,000; epsilon = 774 is one, and 7 of 40 is", ["774", "7"]),
        ("Apache-2.0, 10⁻⁵, 2^16, 1e-5, 2021/2023, 1.41.0", []),
        ("about 157 MW, 16 dB and 3 points, in round 3", ["157", "16", "3"]),
        ("    indented output: 3.00", ["3.00"]),
        ("1. an item with 2.5", ["2.5"]),
        ("```\ncoterie plan --dropout 0.1\nserver 1.84 s\n```", ["1.84"]),
        ("```python\nx = 0.5\n```", []),
        ("| with 0.5 | 3 | none |\n|---|---|---|\n| 4 clients, 0.3 | 5 ± 2 | T = 2, 7% |", ["5", "2", "7"]),
    ],
)
def test_numbers_that_need_a_note_are_found(text: str, found: list[str]) -> None:
    assert [number.text for note in read_notes(text) for number in note.numbers] == found


def test_a_note_reaches_to_the_next_one_or_a_blank_line() -> None:
    text = "<!-- numbers: paper -->\n1.5\n2.5\n<!-- numbers: constant -->\n3.5\n\n4.5\n"
    found = [(note.kind, [number.text for number in note.numbers]) for note in read_notes(text)]
    assert found == [("paper", ["1.5", "2.5"]), ("constant", ["3.5"]), ("missing", ["4.5"])]


def test_a_paragraph_that_names_its_test_needs_no_note() -> None:
    assert all_faults("It is 1.5.\nShown by `tests/unit/test_errata.py::test_unmasking_signs`.\n") == []
    assert all_faults("It is 1.5.\n\nShown by `tests/unit/test_errata.py::test_unmasking_signs`.\n") != []


@pytest.mark.parametrize(
    ("items", "text", "fault"),
    [
        ("a, b", "It is 1.5.", "the note explains 2 numbers, and the text has 1: 1.5"),
        ("a", "It is 1.5 or 25%.", "the note explains 1 numbers, and the text has 2: 1.5, 25%"),
        ("", "It is 1.5.", "does not say what the numbers are"),
        ("a", "It is.", "no number follows this note"),
        ("near(a, 0.1)", "It is 1.5.", "say why numbers may be off"),
    ],
)
def test_a_note_that_does_not_fit_its_text_is_a_fault(items: str, text: str, fault: str) -> None:
    (found,) = all_faults(NOTE.format(items=items, text=text))
    assert fault in found


@pytest.mark.parametrize(
    "body",
    ["measured", "timing", "test", "once", "1 minute\na, b", "1 minute\n$ coterie run\na b", "paper\na"],
)
def test_a_note_that_cannot_be_read_is_an_error(body: str) -> None:
    with pytest.raises(NoteError):
        read_notes(f"<!-- numbers: {body}\n-->\n1.5\n")


def read_values(items: str, text: str, *outputs: object) -> list[bool]:
    runs = iter(outputs)
    many = ",".join(map(str, range(len(outputs))))
    command = f"coterie run --set seed={{{many}}}" if len(outputs) > 1 else "coterie run"
    (note,) = read_notes(f"<!-- numbers: 1 minute; anew\n$ {command}\n{items}\n-->\n{text}\n")
    assert list(faults(note)) == []
    return [compared.agrees for compared in compare(note, lambda _command: next(runs))]


OUTPUT = {
    "score": 0.01014,
    "rows": [{"name": "a", "auc": 0.5, "trials": [1, 2, 3]}, {"name": "b", "auc": 0.754, "trials": [4]}],
    "by name": {"x": {"right": 12}},
}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("score", "0.0101"),
        ("score", "1.0%"),
        ('rows["b"].auc', "75.4%"),
        ("rows[0].auc", "0.50"),
        ('rows["a"]: mean(trials)', "2.0"),
        ('rows["a"]: deviation(trials)', "1.00"),
        ("max(rows.auc)", "75%"),
        ('this["by name"]["x"].right', "12.0"),
        ("100 * (rows[1].auc - rows[0].auc)", "25 points"),
        ("min(rows.auc) >= 0.5", "at least 50%"),
        ("near(rows[1].auc, 0.01)", "0.76"),
        ("constant", "99.9"),
        ("sum(values(this['by name']).right)", "12.0"),
        ('find(r"\\"right\\": (\\d+)")', "12%"),
    ],
)
def test_values_are_found_by_their_expressions(item: str, text: str) -> None:
    assert all(read_values(item, f"It is {text}.", OUTPUT))


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("score", "0.0102"),
        ("score", "0.010139"),
        ("max(rows.auc) < 0.5", "below 50%"),
        ("near(score, 0.001)", "0.0125"),
    ],
)
def test_what_differs_in_a_printed_digit_differs(item: str, text: str) -> None:
    assert read_values(item, f"It is {text}.", OUTPUT) == [False]


def test_several_commands_are_averaged() -> None:
    assert read_values("score", "It is 2.5.", {"score": 1}, {"score": 4}) == [True]
    assert read_values("score > 0", "above 0.0", {"score": 1}, {"score": -1}) == [False]
    assert read_values("near(score, 0.15)", "It is 2.6.", {"score": 1}, {"score": 4}) == [True]
    assert read_values("near(score, 0.15)", "It is 2.7.", {"score": 1}, {"score": 4}) == [False]


@pytest.mark.parametrize(
    "item", ["missing", "rows[7]", "rows['c'].auc", "rows", 'find("nothing")', "open('x')", "2 ** 3"]
)
def test_a_value_that_is_not_there_is_an_error(item: str) -> None:
    with pytest.raises(NoteError):
        read_values(item, "It is 1.5.", OUTPUT)


@given(st.floats(-1e6, 1e6), st.integers(0, 6), st.booleans())
def test_a_number_agrees_with_what_is_printed_and_with_nothing_else(value: float, digits: int, percent: bool) -> None:
    shown = f"{100 * value if percent else value:,.{digits}f}"
    number = Number(shown, 1, percent)
    assert number.agrees(value)
    assert number.agrees(Near(value, 1e-9 + 10.0**-digits))
    unit = 10.0**-digits / (100 if percent else 1)
    assert not number.agrees(value + 1.5 * unit)
    assert not number.agrees(value - 1.5 * unit)


def test_commands_are_run_as_a_user_would(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_command("coterie plan --clients 30 --dropout 0.1 --json")["clients"] == 30
    assert "coterie" in run_command("coterie --version")
    with pytest.raises(NoteError, match="ended with 2: coterie: "):
        run_command("coterie audit nothing.csv")
    with pytest.raises(NoteError, match="only commands of coterie"):
        run_command("rm README.md")
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    with pytest.raises(DataMissing, match="'faces'"):
        run_command("coterie attack faces --data faces --json")


def test_expressions_can_use_the_last_record_of_a_run() -> None:
    settings = "--set rounds=1 --set clients.count=8 --set cohort.size=4 --set training.workers=0"
    assert run_command(f"coterie run --json {settings}")["last"]["round"] == 1


def test_a_report_is_read_by_heading_row_and_column(tmp_path: Path) -> None:
    report = tmp_path / "README.md"
    report.write_text(
        "# Title\n\n## One\n\n| window | how | right, % | AUC | AUC |\n| --- | --- | ---: | ---: | ---: |\n"
        "| small | random | 95.6 ± 2.1 | 0.5 | 0.6 |\n| large | random |  | 1,234 | 0.1 to 0.2 |\n"
    )
    assert load(report) == {
        "One": {
            "small, random": {"right, %": 0.956, "right, % ±": 0.021, "AUC": 0.5, "AUC 2": 0.6},
            "large, random": {"AUC": 1234.0, "AUC 2": 0.1, "AUC 2 to": 0.2},
        }
    }


def test_every_mark_is_explained_to_contributors() -> None:
    guide = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [mark for mark in MARKS if not re.search(rf"`{mark}\b", guide)] == []
