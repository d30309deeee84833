"""Generated text of pages: files of the repository, links, settings and commands."""

import re
import shlex
from pathlib import Path
from unittest import mock

import pytest
from docs.extension import pages
from docs.extension.command_reference import describe_commands
from docs.extension.docstrings import write_dashes
from docs.extension.settings_reference import (
    describe_attacks,
    describe_floor,
    describe_run,
    describe_server,
    flat,
    show,
)
from docutils import nodes
from docutils.utils import new_document
from tests.support.commands import understand

from coterie.attacks.table import ATTACKS
from coterie.rounds.floor import Floor
from coterie.runs.settings.toml import commented_toml

GUIDE = pages.DOCS / "guides" / "page.md"


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[a](../flower.md#few-nodes)", "[a](../flower.md#few-nodes)"),
        ("[a](../../SECURITY.md#in-two-trips)", "[a](../security.md#in-two-trips)"),
        ("[a](../../examples/flower)", "[a](flower-example.md)"),
        ("[a](../../examples/own_policy.py)", "[a](../../examples/own_policy.py)"),
        ("the [folder](../../examples/flower/containers) of files", "the folder of files"),
        ("[a](#here) and [b](https://flower.ai)", "[a](#here) and [b](https://flower.ai)"),
        ("`[a](../../SECURITY.md)`", "`[a](../../SECURITY.md)`"),
        ("```\n[a](../../SECURITY.md)\n```", "```\n[a](../../SECURITY.md)\n```"),
    ],
)
def test_links_lead_to_pages_where_there_are_any(link: str, shown: str) -> None:
    assert pages.relink(link, GUIDE, GUIDE) == shown


@pytest.mark.parametrize(("file", "page"), pages.SHOWN_FILES.items())
def test_a_file_of_the_repository_is_a_page(file: str, page: str) -> None:
    text = (pages.DOCS / page).read_text(encoding="utf-8")
    shown = pages.prepare(text, pages.DOCS / page)
    heading = (pages.PROJECT / file).read_text(encoding="utf-8").splitlines()[0]
    assert shown.splitlines()[0] == heading


def test_an_insert_without_a_function_is_an_error() -> None:
    with pytest.raises(KeyError):
        pages.prepare("<!-- insert: nothing -->", GUIDE)


def test_every_setting_of_a_run_is_described() -> None:
    described = describe_run()
    written = [
        line.partition(" = ")[0] for line in commented_toml().splitlines() if " = " in line and line[0] not in "#["
    ]
    rows = [line.split("`")[1] for line in described.splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(written)
    assert "`multi-round`, `random`" in described


def test_settings_of_servers_clients_and_attacks_are_described() -> None:
    assert "| `privacy` | `2` | T. " in describe_server()
    assert "](#" not in describe_server(), "the page has no such place"
    floor = describe_floor()
    assert [line.split("`")[1] for line in floor.splitlines()[2:]] == list(Floor.__dataclass_fields__)
    assert "None accepts complete graphs only" in floor
    assert [line[4:] for line in describe_attacks().splitlines() if line.startswith("### ")] == list(ATTACKS)


def test_every_command_is_described() -> None:
    described = describe_commands()
    rows = [line for line in described.splitlines() if line.startswith("|")]
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {4}, "two cells in each row"
    assert r"| `RUN\|BASELINE.csv...` |" in described
    for heading in ("## coterie run", "## coterie audit", "### coterie attack demo", "### coterie roster retire"):
        assert f"{heading}\n" in described
    assert "| `--where COLUMN=VALUE` |" in described


def test_examples_of_commands_are_blocks_and_are_understood() -> None:
    described = describe_commands()
    assert not re.search(r"\[/?(dim|bold)?\]", described), "marks of the terminal"
    blocks = re.findall(r"^Examples?:\n\n```\n(.*?)\n```$", described, re.MULTILINE | re.DOTALL)
    examples = [line for block in blocks for line in block.splitlines()]
    assert len(blocks) >= 6
    assert "coterie plan --clients 1000 --lost 0.1 --collusion 0.05" in examples
    for command in "; ".join(examples).split("; "):
        program, *words = shlex.split(command.partition(" < ")[0])
        assert program == "coterie"
        understand(words)


def test_parameters_and_their_meaning_have_a_dash_between_them() -> None:
    document = new_document("page")
    meaning = nodes.paragraph("", "", nodes.strong("", "rounds"), nodes.Text(" -- "), nodes.Text("the number -- of"))
    code = nodes.literal_block("", "", nodes.Text(" -- "))
    document += [meaning, code]
    write_dashes(None, document)
    assert [meaning.astext(), code.astext()] == ["rounds – the number -- of", " -- "]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(True, "`true`"), (None, "none"), ("fair", '`"fair"`'), ((1, "a"), '`[1, "a"]`'), (0.5, "`0.5`"), ({}, "`{}`")],
)
def test_defaults_are_shown_as_they_are_typed(value: object, shown: str) -> None:
    assert show(value) == shown


def test_text_for_a_cell_is_one_line() -> None:
    assert flat("One of\n:data:`~coterie.x.NAMES` | ``auto``") == "One of `NAMES` \\| `auto`"


def read_page(name: str, text: str) -> tuple[str, bool]:
    """Return a page as Sphinx gets it, and whether it is read again in every build."""
    app, source = mock.Mock(), [text]
    pages.read_source(app, name, source)
    return source[0], app.env.note_reread.called


def test_pages_are_prepared_in_place() -> None:
    assert read_page("index", "[a](../SECURITY.md)") == ("[a](security.md)", False)
    assert "*/README" in read_page("results/README", "")[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [("changelog", "<!-- file: CHANGELOG.md -->"), ("a", "<!-- insert: commands -->"), ("guides/index", "")],
)
def test_a_page_that_depends_on_other_files_is_read_again_in_every_build(name: str, text: str) -> None:
    assert read_page(name, text)[1]


def test_a_page_that_is_in_no_list_is_added_to_the_navigation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guides").mkdir()
    (tmp_path / "index.md").write_text("```{toctree}\nfaq\n```\n")
    (tmp_path / "guides" / "index.md").write_text("```{toctree}\n../plan\n```\n")
    for name in ("faq", "plan", "new-guide"):
        (tmp_path / f"{name}.md").touch()
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    assert pages.find_unlisted() == ["new-guide"]
    assert "../new-guide\n" in read_page("guides/index", "")[0]


def test_the_guide_to_the_page_of_an_audit_has_its_headings_in_order() -> None:
    guide = (pages.DOCS / "guides" / "read-a-report.md").read_text(encoding="utf-8")
    part = guide.partition("## The page of an audit\n")[2].partition("\n## ")[0]
    template = pages.PROJECT / "src" / "coterie" / "auditing" / "templates" / "audit.html.j2"
    headings = re.findall(r"<(?:h2|summary)>([A-Z][a-z][\w, ]+)</(?:h2|summary)>", template.read_text(encoding="utf-8"))
    assert [heading.rstrip(".") for heading in re.findall(r"\*\*(.+?)\*\*", part)] == headings


def test_every_shown_file_exists() -> None:
    assert all((pages.PROJECT / file).is_file() for file in pages.SHOWN_FILES)
    assert {Path(page).suffix for page in pages.SHOWN_FILES.values()} == {".md"}
