"""``docs/methods.md``: every cell of the judged Table 1 names a test or a command that exists."""

import re
import shlex

import pytest
from tests.support.commands import understand
from tests.support.outputs import PROJECT, functions_of

from coterie.reproduce.declarations import declared, read_declaration

TEXT = (PROJECT / "docs" / "methods.md").read_text(encoding="utf-8")
SECTION = TEXT.split("## Table 1 of the paper, property by property")[1]
ROWS = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in SECTION.splitlines() if line[:1] == "|"][2:]
APPROACHES = {"plain averaging", "secure aggregation", "confined", "DP-SGD in one place"}


def test_the_table_covers_what_approaches_protect_tolerate_and_cost() -> None:
    properties = [row[0] for row in ROWS if row[0]]
    assert [name.split()[0] for name in properties if name.startswith("**")] == [
        "**protects**",
        "**tolerates**",
        "**costs**",
    ]
    assert {row[1] for row in ROWS} >= APPROACHES


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[1]}: {row[2]}"[:60])
def test_every_cell_names_a_test_or_a_command_that_exists(row: list[str]) -> None:
    _, approach, judgement, shown = row
    assert approach
    assert judgement
    (named,) = re.findall(r"`([^`]+)`", shown)
    if named.startswith("tests/"):
        file, _, name = named.partition("::")
        assert name in functions_of(file)
        return
    program, *words = shlex.split(named)
    assert program == "coterie"
    understand(words)
    if words[0] == "reproduce":
        declaration = read_declaration(declared()[words[1]])
        assert "--size" not in words or words[words.index("--size") + 1] in declaration.sizes
