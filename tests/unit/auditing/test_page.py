"""The page of an audit: everything it shows is in the log, and nothing in the log can act on it."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.logs import random_matrix
from tests.support.rationals import matrices

from coterie.auditing import figures as audit_figures
from coterie.auditing.auditor import audit
from coterie.auditing.logs import Label, Participation, UnusedLine
from coterie.auditing.page import audit_page
from coterie.auditing.verdict import Requirement
from coterie.reports import html as pages
from coterie.reports.charts import Figure

HOSTILE = (
    "<script>hack()</script>",
    "@ink",
    "a&amp;b",
    "</script><img src=x onerror=hack()>",
    '"><b onclick="hack()">',
)
FIGURES = {"groups", "privacy", "exposure", "participation", "frequency", "series"}


class Reader(HTMLParser):
    """Reads a page as a browser would, as far as it matters here."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.words += data

    def figures(self) -> dict[str, Any]:
        names = [str(found["id"]).removeprefix("plot-") for tag, found in self.tags if found.get("class") == "plot"]
        return dict(zip(names, map(json.loads, self.scripts), strict=False))


@pytest.fixture(autouse=True)
def _short_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes of plotly.js in every page would only slow these tests down; one below has them."""
    monkeypatch.setattr(pages, "get_plotlyjs", lambda: "var Plotly;")


def make(participation: Participation, **options: Any) -> Reader:  # noqa: ANN401
    return Reader(audit_page(audit(participation), participation, "rounds.csv", **options))


def cells(figure: dict[str, Any]) -> NDArray[np.uint8]:
    packed = figure["data"][0]["z"]
    shape = tuple(map(int, packed["shape"].split(", ")))
    return np.frombuffer(base64.b64decode(packed["bdata"]), dtype=np.uint8).reshape(shape)


def random_log(clients: int, rounds: int, cohort: int) -> Participation:
    return Participation.from_matrix(random_matrix(clients, rounds, cohort, seed=5))


@settings(max_examples=12)
@given(st.lists(st.text(max_size=40), max_size=3), st.text(max_size=20))
def test_hostile_names_are_shown_as_text(names: list[str], word: str) -> None:
    hostile = tuple(dict.fromkeys([*names, *HOSTILE]))
    alone = tuple((number,) for number in range(len(hostile)))  # so that everybody is exposed and listed
    log = Participation(hostile, hostile, alone, (UnusedLine(3, word, "<u>"),), (word + "<i>",))
    page = make(log, witnesses=len(hostile))
    numbers = tuple(map(str, range(len(hostile))))
    harmless = make(Participation(numbers, numbers, alone, (UnusedLine(3, "", ""),), ("",)), witnesses=len(hostile))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in harmless.tags]
    assert [sorted(found) for _, found in page.tags] == [sorted(found) for _, found in harmless.tags]
    assert all(name in page.words for name in HOSTILE)
    shown = page.figures()["participation"]["data"][0]["y"]
    assert len(set(shown)) == len(hostile)
    assert not any(set("<@") & set(name) for name in shown)


def test_figures_cannot_end_their_script() -> None:
    figure = Figure([{"name": "</script><script>hack()</script>"}], {}, 100, '"><b>')
    page = Reader(pages._place("x", figure))
    assert page.figures()["x"]["data"] == figure.traces
    assert [tag for tag, _ in page.tags] == ["div", "script"]


def test_nothing_is_loaded_and_only_our_scripts_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    page = make(random_log(12, 30, 3))
    policy = next(str(found["content"]) for _, found in page.tags if found.get("http-equiv"))
    allowed = set(re.findall("'sha256-([^']+)'", policy))
    ours = [text for text in page.scripts if not text.startswith("{")]
    assert {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in ours} == allowed
    assert "default-src 'none'" in policy
    assert "Plotly" in ours[0]
    assert len(ours[0]) > 1_000_000
    links = [found[name] for _, found in page.tags for name in ("src", "href", "srcset", "action") if name in found]
    assert all(str(link).startswith("#") for link in links)


def test_every_colour_is_defined_in_every_scheme() -> None:
    style = (files("coterie.reports") / "templates" / "page.css").read_text("utf-8")
    light, dark = (set(re.findall(r"--([a-z-]+):", part)) for part in style.split("prefers-color-scheme: dark"))
    script = (files("coterie.reports") / "templates" / "figures.js").read_text("utf-8")
    drawn = json.dumps(make(random_log(12, 30, 3), requirement=Requirement(2)).figures())
    used = set(re.findall(r'"@([a-z-]+)"', drawn + script)) - {"accent"} | set(re.findall(r"var\(--([a-z-]+)\)", style))
    assert used <= light
    assert light == dark


@given(matrices(7, 7))
def test_the_map_is_the_matrix_with_equal_histories_side_by_side(matrix: list[list[int]]) -> None:
    log = Participation.from_matrix(matrix)
    report = audit(log)
    if not report.leak:
        return
    rounds = audit_figures.RoundAxis(log.rounds)
    figure, _ = audit_figures.participation_map(log, report.exposed, rounds)
    drawn, names = cells({"data": figure.traces}), figure.traces[0]["y"]
    assert sorted(names) == sorted(log.clients)
    expected = np.array(matrix, dtype=np.uint8).T[[int(name) - 1 for name in names]]
    assert np.array_equal(drawn, 255 * expected)
    histories = [row.tobytes() for row in drawn]
    changes = sum(one != other for one, other in pairwise(histories))
    assert changes == len(set(histories)) - 1
    marks = figure.traces[1]
    assert dict(zip(marks["y"], marks["x"], strict=True)) == {found.client: found.round for found in report.exposed}


def test_a_large_log_makes_a_small_page() -> None:
    log = random_log(1000, 40, 5)
    log = Participation(log.clients, tuple(range(2500)), log.members * 62 + log.members[:20])  # few histories: quick
    page = make(log)
    figures = page.figures()
    drawn = cells(figures["participation"])
    assert drawn.shape == (334, 834)
    share = (drawn / drawn.max()) ** 2  # colours are by the root
    per_bin = np.add.reduceat(np.array([len(members) for members in log.members]), np.arange(0, 2500, 3))
    assert np.allclose(share.sum(axis=0) / share.sum(), per_bin / per_bin.sum(), atol=1e-3)
    assert len(json.dumps(figures)) < 1_500_000
    assert len(figures["frequency"]["data"][0]["x"]) <= 500
    assert len(figures["series"]["data"][0]["x"]) <= 1000
    assert "3 clients by 3 rounds" in page.words
    assert "evenly chosen by rank" in page.words


def test_a_page_with_many_exposed_clients_is_bounded_and_has_them_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round but the first adds one client to the round before, and exposes it. The bounds are a tenth here."""
    for name, value in (("_CELLS", (40, 100)), ("_MARKS", 100), ("_POINTS", 100)):
        monkeypatch.setattr(audit_figures, name, value)
    clients, rounds = 300, 201
    members = tuple(tuple(range(80, 81 + number)) for number in range(rounds))
    log = Participation(tuple(f"c{number}" for number in range(clients)), tuple(range(rounds)), members)
    page = make(log, witnesses=0)
    figures = page.figures()
    heatmap, marks = figures["participation"]["data"]
    top = len([name for name in heatmap["y"] if 80 <= int(name.split()[0].removeprefix("c")) < 281])
    assert 10 < top <= 20
    assert len(heatmap["y"]) <= 40
    assert figures["participation"]["layout"]["shapes"][0]["y0"] == top - 0.5
    drawn = cells(figures["participation"])
    assert drawn[:top].any(axis=1).all()
    assert not drawn[top:].any(), "all others never took part"
    assert len(marks["x"]) == 100
    assert all(name in heatmap["y"][:top] for name in marks["y"])
    assert len(figures["exposure"]["data"][0]["x"]) <= 100
    assert len(figures["exposure"]["data"][1]["x"]) <= 100
    words = " ".join(page.words.split())
    assert "The exposed come first, above the dotted line: each shares a row with up to 10 others." in words
    assert "Dots mark 100 of the 201 exposed clients." in words


def test_every_client_that_was_aggregated_is_in_a_bar_of_its_group() -> None:
    log = Participation.from_matrix([[1, 1, 1] + [0] * 40, [1, 0, 0] + [1] * 40])
    figure, words = audit_figures.group_sizes(audit(log))
    bars = dict(zip(figure.traces[0]["x"], figure.traces[0]["y"], strict=True))
    assert bars == {**{str(size): 0 for size in range(1, 17)}, "1": 1, "2": 2, "17–32": 0, "33–64": 40}
    assert words == "The clients of 3 groups, by the size of their group; 1 are alone in theirs."


def test_steps_show_every_change() -> None:
    log = Participation.from_matrix([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])
    report = audit(log)
    figure = audit_figures.privacy(report, audit_figures.RoundAxis(log.rounds), None)
    line = figure.traces[0]
    drawn = dict(zip(line["x"], line["y"], strict=True))
    changes = {1: 4, 3: 2, 4: 1, 5: 1}
    assert drawn == changes
    assert [report.series.strong_privacy[number - 1] for number in changes] == list(changes.values())


@pytest.mark.parametrize(
    ("labels", "at"), [((5, 6, 7), (5, 6, 7)), ((5, 7, 8), (1, 2, 3)), (("a", "b", "c"), (1, 2, 3))]
)
def test_rounds_keep_their_names(labels: tuple[Label, ...], at: tuple[int, ...]) -> None:
    rounds = audit_figures.RoundAxis(labels)
    assert tuple(rounds.at[label] for label in labels) == at
    assert rounds.numbered or dict(zip(rounds.axis["tickvals"], rounds.axis["ticktext"], strict=True)) == dict(
        zip(at, map(str, labels), strict=True)
    )


def test_the_fairness_gap_is_marked_where_it_is() -> None:
    log = random_log(30, 40, 6)
    report = audit(log)
    figure, _ = audit_figures.frequency(report)
    top, bottom = (shape["y0"] for shape in figure.layout["shapes"])
    assert top - bottom == pytest.approx(report.fairness_gap)
    assert figure.traces[0]["customdata"] == sorted(report.frequency.values(), reverse=True)


def test_every_exposure_has_its_proof() -> None:
    page = make(Participation.from_matrix([[1, 1, 1], [1, 1, 0], [0, 1, 1]]))
    assert page.figures().keys() == FIGURES
    assert "round 1 − round 2 = client 3's update" in page.words
    long = make(random_log(20, 60, 5))
    assert "All 20 coefficients" in long.words
    assert make(random_log(20, 60, 5), witnesses=0).words.count("not computed") == 21  # the clients, and the note


def test_a_large_log_has_fewer_equations_unless_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Participation.from_matrix([[1, 1, 1], [1, 1, 0], [0, 1, 1]])
    monkeypatch.setattr("coterie.auditing.page._WORK", 40)  # a witness takes 17 steps: 7 participations, rank 3, and 1
    page = make(log)
    assert page.words.count("not computed") == 2  # one client, and the note
    assert "1 of these equations were not computed" in " ".join(page.words.split())
    assert "not computed" not in make(log, witnesses=3).words


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        ([[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 1, 1]], "No client can be singled out by adding and subtracting sums"),
        ([[1, 1, 0], [0, 1, 1]], "Strong T is 1: 3 of 3 clients have a unique history"),
        (
            [[1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 1]],
            "The combination of the fewest clients that was found: "
            "−round 1 + round 2 = −client 1's update + client 6's update",
        ),
        ([[0, 0]], "No client was ever aggregated"),
        ([[1, 1]], "1 line could not be read"),
    ],
)
def test_every_verdict_has_its_page(matrix: list[list[int]], says: str) -> None:
    log = Participation.from_matrix(matrix)
    problems = (UnusedLine(7, "what?", "a round and a client are expected"),)
    log = Participation(log.clients, log.rounds, log.members, problems, ("a note",))
    page = make(log, requirement=Requirement(2))
    words = " ".join(page.words.split())
    assert says in words
    assert "Required: strong T of at least 2" in words
    assert "what?" in words
    assert "a note" in words


def test_a_long_list_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.auditing.page._ROWS", 4)
    page = make(Participation.from_matrix(np.eye(7, dtype=np.uint8)))
    assert "3 more are exposed. coterie audit writes all of them to a file with --exposed" in " ".join(
        page.words.split()
    )
