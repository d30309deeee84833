"""The page on troubleshooting quotes messages that the code has."""

import ast
import re
from functools import cache

import pytest
from docs.extension.pages import DOCS, PROJECT

PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\*\*`(.+?)`\*\*", PAGE, re.MULTILINE)
OF_OTHERS = {
    "coterie: command not found": "the shell",
    "make needs ...": "the Makefile",
    "should be greater than or equal to 2": "pydantic",
}


@cache
def read_texts() -> str:
    """Return every text in the code on a line of its own, with ``...`` where a value is put in."""
    found = []
    for path in sorted((PROJECT / "src" / "coterie").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                pieces = (piece.value if isinstance(piece, ast.Constant) else "..." for piece in node.values)
                found.append("".join(map(str, pieces)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(text.replace("\n", " ") for text in found)


def test_the_page_quotes_messages() -> None:
    assert len(MESSAGES) > 15
    assert len(set(MESSAGES)) == len(MESSAGES)
    assert set(OF_OTHERS) < set(MESSAGES)


@pytest.mark.parametrize("message", [message for message in MESSAGES if message not in OF_OTHERS])
def test_a_quoted_message_is_one_of_the_code(message: str) -> None:
    pattern = r"[^\n]*".join(map(re.escape, message.split("...")))
    assert re.search(pattern, read_texts()), message


def test_the_makefile_says_which_python_it_needs() -> None:
    assert "make needs $(PYTHON)" in (PROJECT / "Makefile").read_text(encoding="utf-8")
