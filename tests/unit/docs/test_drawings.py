"""Drawings: valid SVG in one style, and in agreement with the code that they show."""

import re
import tomllib
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from types import ModuleType

import pytest
from docs.extension.drawings import DRAWINGS, README_DRAWING, tables
from docs.extension.drawings.canvas import DARK, LIGHT, stylesheet, text_width
from docs.extension.drawings.ideas import HISTORY
from docs.extension.pages import DOCS, PROJECT

import coterie
from coterie.secagg import client as papers_client
from coterie.secagg import steps as papers_steps
from coterie.secagg.prekeys import client as two_trips_client
from coterie.secagg.prekeys import steps as two_trips_steps

SVG = "{http://www.w3.org/2000/svg}"


def texts(name: str) -> list[str]:
    tree = ElementTree.fromstring(DRAWINGS[name]().inline())  # noqa: S314 - our own
    return [element.text or "" for element in tree.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_valid_described_and_inside_its_frame(name: str) -> None:
    canvas = DRAWINGS[name]()
    tree = ElementTree.fromstring(canvas.standalone())  # noqa: S314 - our own
    assert len(tree.attrib["aria-label"]) > 20
    assert tree.find(f"{SVG}style") is not None
    for element in tree.iter():
        x, y = (float(element.attrib.get(key, 0)) for key in ("x", "y"))
        width, height = (float(element.attrib.get(key, 0)) for key in ("width", "height"))
        assert 0 <= x <= x + width <= canvas.width, element.attrib
        assert 0 <= y <= y + height <= canvas.height, element.attrib


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_has_no_colour_of_its_own(name: str) -> None:
    drawn = DRAWINGS[name]().inline()
    assert not re.search(r"fill=|stroke=|style=|#[0-9a-f]{6}", drawn), "colours come from the theme"


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_line_in_a_box_fits_into_it(name: str) -> None:
    tree = ElementTree.fromstring(DRAWINGS[name]().inline())  # noqa: S314 - our own
    for box, text in pairwise(tree.iter()):
        if box.tag == f"{SVG}rect" and text.tag == f"{SVG}text" and box.attrib["height"] == "32":
            assert text_width(text.text or "") <= float(box.attrib["width"]) - 8, text.text


def test_light_and_dark_have_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys()
    style = stylesheet()
    assert "body[data-theme=dark] svg.drawing{--ink" in style
    assert style.count("{") == style.count("}")


def test_packages_without_clocks_and_threads_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = (one for one in contracts["contracts"] if "socket" in one.get("forbidden_modules", []))
    page = (DOCS / "explanation" / "layers.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"^(`.*`) have no clock, socket, thread, logger or global random", page, re.MULTILINE)
    assert {f"coterie.{name}" for name in re.findall(r"`(\w+)`", named)} == set(contract["source_modules"])
    excepted = {line.split(" -> ")[0].removeprefix("coterie.") for line in contract["ignore_imports"]}
    assert excepted == {"cohorts.ledger", "cohorts.ledger_database", "cohorts.database_file"}, "only databases"


def test_layers_are_those_of_the_contract() -> None:
    names = [name for row in tables.read_layers() for name in row]
    assert {"cli", "secagg", "errors"} < set(names)
    assert [text for text in texts("layers") if text in names] == names


@pytest.mark.parametrize(("name", "module"), [("papers-protocol", papers_steps), ("two-trips", two_trips_steps)])
def test_steps_are_those_of_the_table(name: str, module: ModuleType) -> None:
    steps = [str(row.step) for row in module.TABLE]
    assert [text for text in texts(name) if text in steps] == steps


def test_states_are_those_that_methods_return() -> None:
    papers = tables.read_transitions(papers_client, "join")
    assert papers[0] == ("", "join", "Joined")
    assert ("Masked", "confirm", "Confirmed") in papers
    assert ("Masked", "reveal", "Finished") in papers
    two_trips = tables.read_transitions(two_trips_client, "accept")
    assert [step for step in two_trips if step[0] == "Contributed"] == [
        ("Contributed", "answer", "Signed"),
        ("Contributed", "answer", "Done"),
    ]


def test_the_drawn_history_exposes_whom_the_drawing_names() -> None:
    (found,) = coterie.audit(HISTORY).exposed
    assert (found.client, {number: int(value) for number, value in found.witness.items()}) == ("3", {1: 1, 3: -1, 5: 1})
    assert "round 1 − round 3 + round 5" in texts("many-sums")
    assert "leaves Cy, and nobody else" in texts("many-sums")


def test_the_drawing_of_the_readme_is_up_to_date() -> None:
    committed = (DOCS / f"{README_DRAWING}.svg").read_text(encoding="utf-8")
    assert committed == DRAWINGS[README_DRAWING]().standalone(), "python -m docs.extension.drawings writes it"
