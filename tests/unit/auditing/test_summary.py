"""The one-page summary: right for every verdict, and safe whatever a log contains."""

import pytest

from coterie.auditing.answers import Answers, Questions
from coterie.auditing.auditor import audit
from coterie.auditing.logs import Participation, UnusedLine
from coterie.auditing.summary import summary_page
from coterie.auditing.verdict import Requirement


@pytest.mark.parametrize(
    ("matrix", "headline"),
    [
        ([[1, 1, 0], [1, 0, 0]], "The server can compute what single participants contributed"),
        ([[1, 1, 0], [0, 1, 1]], "Nobody is exposed yet, but some participants are no longer hidden in a group"),
        ([[1, 1, 0, 0], [1, 1, 1, 1]], "Nobody can be singled out by adding and subtracting totals"),
        ([[0, 0], [0, 0]], "There is nothing to judge"),
    ],
)
def test_every_verdict_has_its_words(matrix: list[list[int]], headline: str) -> None:
    log = Participation.from_matrix(matrix)
    page = summary_page(audit(log), log, "log.csv", Requirement(2), Answers(), {})
    assert f"<h1>{headline}</h1>" in page
    assert "<script" not in page
    assert "Required: T of at least 2." in page


def test_colluders_who_expose_a_client_are_in_the_headline() -> None:
    log = Participation.from_matrix([[1, 1, 0, 0], [1, 1, 1, 1]])
    report = audit(log)
    for colluders, exposed in ((["1"], True), (["any 1"], True), (["1", "2"], False)):
        page = summary_page(report, log, "log.csv", None, Questions.parse(colluders).answer(log, report), {})
        assert ("with colluding participants it may</h1>" in page) == exposed
        assert ("Nobody can be singled out by adding and subtracting totals</h1>" in page) == (not exposed)


def test_names_are_escaped_and_shortened_and_lists_are_cut() -> None:
    names = ["<script>alert(1)</script>" + "x" * 500 + str(number) for number in range(30)]
    log = Participation.from_matrix([[int(at == row) for at in range(30)] for row in range(30)], names)
    log = Participation(log.clients, log.rounds, log.members, (UnusedLine(3, "?", "what"),))
    page = summary_page(audit(log), log, "<b>log", None, Answers(), {"--where": ["a=<i>"]})
    assert "<script" not in page
    assert "<b>log" not in page
    assert "and 24 more" in page
    assert "1 line of the log could not be read" in page
    assert "x" * 60 not in page


def test_all_options_are_on_the_sheet() -> None:
    """Without them nobody can repeat the audit."""
    history = Participation.from_matrix([[1, 1], [1, 0]])
    options: dict[str, object] = {"--client-column": "edge_device_id", "--where": ["status=accepted"]}
    options |= {"--colluders": ["dev-001,dev-002"], "--forecast": True, "--what-if": "circles=4"}
    page = summary_page(audit(history), history, "events.csv", None, Answers(), options)
    assert "--what-if circles=4" in page


def test_a_log_with_lines_that_could_not_be_read_is_not_called_safe() -> None:
    log = Participation.from_matrix([[1, 1, 0, 0], [0, 0, 1, 1]])
    assert "Nobody can be singled out by adding and subtracting totals</h1>" in summary_page(
        audit(log), log, "log", None, Answers(), {}
    )
    log = Participation(log.clients, log.rounds, log.members, (UnusedLine(3, "?", "what"),))
    page = summary_page(audit(log), log, "log", None, Answers(), {})
    assert "A part of the log could not be read. Nobody can be singled out" in page
    assert "by adding and subtracting totals of the rest</h1>" in page
