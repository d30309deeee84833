"""Findings on a page, in Markdown and on a terminal: every part is shown, and empty parts are left out."""

import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from coterie.cli.findings import print_findings
from coterie.reports.charts import Figure, draw_line, make_layout
from coterie.reports.findings import CardLine, Claim, Drawing, Effect, Findings, Judgement, Plot, Strip, Table
from coterie.reports.html import findings_page
from coterie.reports.markdown import write_findings
from coterie.reports.plots import page
from coterie.reports.words import Level

EVERYTHING = Findings(
    level=Level.CAUTION,
    headlines=["First headline.", "Second headline."],
    about="What was done.",
    claims=[Claim("The paper is right", "9 of 10", Judgement.OPEN)],
    claims_note="Judged by eye.",
    tables=[
        Table("Numbers", ("row", "value"), [("one", "1.0"), ("two", "2.0")], "A note.", "A lead."),
        Table("", ("again", "value"), [("three", "3.0")]),
    ],
    card=[CardLine("an attack", "a defence", Effect.REDUCED, "for a reason")],
    plots=[
        Plot("A plot", Figure([draw_line("a line", [1], [2], color="@ink")], make_layout("x", "y"), 200, "A line."))
    ],
    pictures=[Strip("A strip", [("original", np.zeros((1, 4, 4)))])],
    remarks=["A remark."],
    remarks_title="Limits",
)
EMPTY: dict[str, Any] = {"claims": (), "tables": (), "card": (), "remarks": ()}
SHOWN = {
    "claims": ("The paper is right", "9 of 10", "cannot be judged at this size"),
    "tables": ("Numbers", "two", "2.0", "A note.", "A lead.", "three"),
    "card": ("Privacy card", "a defence", "reduced", "for a reason"),
    "remarks": ("A remark.",),
}


def on_terminal(findings: Findings) -> str:
    file = io.StringIO()
    print_findings(Console(width=200, file=file), findings)
    return file.getvalue()


def on_page(findings: Findings) -> str:
    whole = findings_page("Title", "Kicker", [("Who", "somebody")], findings).partition("<noscript>")[0]
    return whole.partition("<body>")[2]


@pytest.mark.parametrize("show", [on_terminal, on_page, write_findings])
@pytest.mark.parametrize("part", EMPTY)
def test_every_part_is_shown_and_left_out_if_it_is_empty(show: Any, part: str) -> None:  # noqa: ANN401
    whole, without = show(EVERYTHING), show(dataclasses.replace(EVERYTHING, **{part: EMPTY[part]}))
    assert [words for words in SHOWN[part] if words not in whole] == []
    assert [words for words in SHOWN[part] if words in without] == []
    for words in ("First headline.", "Second headline.", "What was done."):
        assert words in whole
        assert words in without


@pytest.mark.parametrize("show", [on_page, write_findings])
def test_claims_come_before_the_tables_or_after_them(show: Any) -> None:  # noqa: ANN401
    for last in False, True:
        text = show(dataclasses.replace(EVERYTHING, claims_last=last))
        assert (text.index("The paper is right") > text.index("A note.")) is last
        assert text.index("Judged by eye.") > text.index("The paper is right")


@pytest.mark.parametrize("show", [on_terminal, on_page, write_findings])
def test_the_papers_claims_and_our_own_checks_are_apart(show: Any) -> None:  # noqa: ANN401
    ours = Claim("We are right", "1 of 10", Judgement.FAILS, ours=True)
    text = show(dataclasses.replace(EVERYTHING, claims=[ours, *EVERYTHING.claims]))
    places = [
        text.index(words)
        for words in (
            "What the paper claims",
            "The paper is right",
            "What we checked beside it",
            "We are right",
            "Judged by eye.",
        )
    ]
    assert places == sorted(places)


def test_markdown_has_the_form_of_a_report() -> None:
    text = write_findings(EVERYTHING)
    assert text.startswith(
        "- First headline.\n- Second headline.\n\nWhat was done.\n\n## What the paper claims\n\n| claim"
    )
    assert "## Numbers\n\nA lead.\n\n| row | value |\n| --- | ---: |\n| one | 1.0 |\n" in text
    assert "A note.\n\n| again | value |" in text  # a table without a title belongs to the one before it
    assert "## Limits\n\n- A remark." in text
    assert not re.search(r"\n{3}| \n", text)
    assert text.endswith("|\n")


def test_drawings_are_linked_in_markdown_and_contained_in_a_page() -> None:
    def draw(path: Path) -> None:
        with page(path, "Title", "subtitle") as (axes,):
            axes.plot([1, 2], [1, 2])

    findings = dataclasses.replace(EVERYTHING, drawings=[Drawing("one-picture.png", draw)])
    assert write_findings(findings).endswith("## Figures\n\n![one picture](one-picture.png)\n")
    assert on_page(findings).count("data:image/png;base64,") == 1 + on_page(EVERYTHING).count("data:image/png;base64,")


def test_a_page_without_a_level_has_no_verdict() -> None:
    assert "At risk" in on_page(EVERYTHING)
    assert "At risk" not in on_page(dataclasses.replace(EVERYTHING, level=None))


@given(st.lists(st.lists(st.sampled_from(["", "x"]), min_size=4, max_size=4), min_size=1, max_size=5))
def test_only_empty_columns_are_left_out(rows: list[list[str]]) -> None:
    table = Table("", [str(number) for number in range(4)], rows).without_empty_columns()
    assert list(table.columns) == [str(place) for place in range(4) if any(row[place] for row in rows)]
    assert ["".join(row) for row in table.rows] == ["".join(row) for row in rows]
