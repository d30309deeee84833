"""Numbers in documents, computed again by the commands that their notes name."""

import pytest
from tests.support.numbers import MOST_MINUTES, Note, compare, documents, read_notes
from tests.support.outputs import PROJECT, DataMissing, run_command

pytest.importorskip("torch", reason="training needs coterie[train]")
NOTES = [
    note
    for name in documents()
    for note in read_notes((PROJECT / name).read_text(encoding="utf-8"), name)
    if note.kind == "result" and note.minutes < MOST_MINUTES
]


@pytest.mark.slow
@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.where)
def test_commands_print_the_numbers_of_the_documents(note: Note, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        compared = compare(note, run_command)
    except DataMissing as missing:
        pytest.skip(str(missing))
    with capsys.disabled():
        print("", *compared, sep="\n")
    assert [str(one) for one in compared if not one.agrees] == []
