"""The words about a run, its page and its console output."""

import io
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.support.runs import FORECAST, HOSTILE, client_names, courses, make_records, promised, regression, summarised

from coterie.cohorts.ledger import Outcome
from coterie.cohorts.policies import POLICIES, PolicySettings
from coterie.runs.records.record import RoundRecord, extend
from coterie.runs.records.summary import Summary
from coterie.runs.records.yardstick import ACCURACY, LOSS, SQUARED_ERROR, Yardstick
from coterie.runs.report.console import Watcher, line
from coterie.runs.report.curves import curve
from coterie.runs.report.figures import cohorts
from coterie.runs.report.forecasts import draw_forecasts, drawn_courses
from coterie.runs.report.observers import RunStart
from coterie.runs.report.page import run_page
from coterie.runs.report.words import in_words
from coterie.runs.settings.toml import make_config

ALONE: dict[str, object] = {"selected": 0, "aggregated": (), "strong_privacy": None}


def words(summary: Summary) -> str:
    return " ".join(sentence for _, sentence in in_words(summary))


def test_the_numbers_of_a_summary_add_up() -> None:
    records = make_records(20)
    summary = summarised(records)
    assert (summary.completed, summary.skipped, summary.aborted) == (16, 2, 2)
    assert summary.accuracy == summary.best_accuracy == 1 - 0.8 / 20
    assert summary.seconds == pytest.approx(20)
    assert summary.upload_bytes == sum(record.upload_bytes for record in records) // (20 * 6)
    assert summary.dropped == sum(len(record.dropped) for record in records)


@pytest.mark.parametrize(
    ("settings", "fields", "said"),
    [
        ({}, {}, "T = 2 promised for any number of rounds, T = 2 so far: every combination of all the sums"),
        ({}, {"strong_privacy": 6}, "T = 2 promised for any number of rounds, T = 6 so far"),
        ({}, {"exposed": 3}, "3 of 12 clients are exposed"),
        ({"cohort__policy": "random"}, {"strong_privacy": 1}, "no T promised, T = 1 so far: no client is exposed yet"),
        ({"cohort__policy": "random"}, {"strong_privacy": 6}, "no T promised, T = 6 so far: no client is exposed yet"),
        ({}, {"strong_privacy": 1}, "more rounds will expose some"),
        ({}, {"strong_privacy": None}, "Nothing was revealed"),
        ({"aggregation__kind": "plain"}, {"exposed": 12}, "the server saw the update of every client, 12 in all"),
        ({"training__algorithm": "centralised"}, ALONE, "all data is in one place"),
        ({"training__algorithm": "local-only"}, ALONE, "Nothing left any client"),
        ({}, {"clipped": 0.2}, "20.0% of the entries of updates were clipped at ±0.5"),
        ({}, {"epsilon": 2.5}, "(2.5, 1e-05)-differential privacy"),
        ({}, {"accuracy": None, "test_loss": None}, "was not evaluated: there are no test examples"),
        ({"rounds": 40}, {"accuracy": None, "test_loss": None}, "was not evaluated yet"),
        ({"rounds": 40}, {}, "30 are still to be played"),
    ],
)
def test_the_words_fit_the_run(settings: dict[str, object], fields: dict[str, object], said: str) -> None:
    summary = summarised(make_records(10, **fields), **settings)
    assert said in words(summary)
    assert run_page(summary, client_names(), make_records(10, **fields), "run").count("<h1>") == 1


@pytest.mark.parametrize("epsilon", [None, 2.5])
def test_only_a_run_without_noise_gives_the_same_model_again(epsilon: float | None) -> None:
    records = make_records(10, epsilon=epsilon)
    page = run_page(summarised(records), client_names(), records, "run")
    assert ("The same settings give the same model" in page) == (epsilon is None)
    assert ("another model in another folder" in page) == (epsilon is not None)


# ------------------------------------------------------------------------------------------- regressions


@pytest.mark.parametrize(
    ("yardstick", "said"),
    [
        (LOSS, "has a loss of 0.2 on the test examples"),
        (SQUARED_ERROR, "has a mean squared error of 0.2 on the test examples, and is off by"),
        (FORECAST, "of 0.2 on the test examples, of load in deviations, and is off by 10 MW on average. Forecasts"),
        (FORECAST, "previous hour 0.25, previous day 0.5"),
    ],
)
def test_a_regression_is_described_by_its_error(yardstick: Yardstick, said: str) -> None:
    summary = summarised(regression(), yardstick)
    assert said in words(summary)
    assert (summary.score, summary.best_score) == (0.2, 0.2)
    assert summary.numbers()["yardstick"] == yardstick.name
    assert f"a {yardstick.name} of 0.2 after 10 rounds".capitalize() in run_page(
        summary, client_names(), regression(), "run"
    )


def test_nothing_that_is_shown_of_a_regression_mentions_accuracy() -> None:
    records = regression()
    page = run_page(summarised(records, FORECAST), client_names(), records, "run", courses())
    body = page[page.index("<body>") :]
    assert "ccuracy" not in body[: body.index("<h2>Settings")]
    assert body.count('id="plot-forecasts"') == 1
    assert "<script>window" not in body
    for terminal in True, False:
        seen = watched(records, FORECAST, terminal=terminal)
        assert "mean squared error" in seen
        assert "10 MW" in seen
        assert "ccuracy" not in seen


@pytest.mark.parametrize("forecasts", [True, False])
def test_remarks_on_the_data_are_on_the_page_once(forecasts: bool) -> None:
    records, note = regression(), "Targets are whole and are taken as numbers"
    summary = replace(summarised(records, FORECAST), notes=(note,))
    page = run_page(summary, client_names(), records, "run", courses() if forecasts else ())
    assert page.count(f"{note}.") == 1


def test_a_line_has_the_error_in_its_unit() -> None:
    assert "mean squared error 0.2 (10 MW off)" in line(regression()[-1], 10, FORECAST)


@pytest.mark.parametrize(("count", "drawn"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (5, [0, 2, 4])])
def test_the_best_the_middle_and_the_worst_forecast_are_drawn(count: int, drawn: list[int]) -> None:
    assert [course.error for course in drawn_courses(courses(count)[::-1])] == drawn


def test_forecasts_are_drawn_as_a_picture(tmp_path: Path) -> None:
    draw_forecasts(tmp_path / "forecast.png", [replace(course, name="AEP") for course in courses()])
    content = (tmp_path / "forecast.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    assert (width, height) == (2100, 720)


def test_only_the_promised_t_is_stated_for_any_number_of_rounds() -> None:
    records = make_records(3, strong_privacy=6)
    summary = summarised(records)
    page = run_page(summary, client_names(), records, "run")
    assert "no client can be singled out by adding and subtracting sums (T = 2)</h1>" in page
    assert "T = 2 promised for any number of rounds, T = 6 so far; nobody exposed" in page
    lucky = run_page(summarised(records, cohort__policy="random"), client_names(), records, "run")
    assert "singled out" not in lucky[lucky.index("<h1>") : lucky.index("</h1>")]
    assert "no T promised, T = 6 so far" in lucky


@given(st.integers(2, 60), st.integers(1, 20), st.sampled_from(["multi-round", "partition", "random"]))
def test_what_is_promised_is_the_smallest_circle_of_the_roster(clients: int, privacy: int, policy: str) -> None:
    privacy = min(privacy, clients)
    cohort = max(2, privacy) if policy == "partition" else clients
    settings = {"clients.count": clients, "cohort.size": cohort, "cohort.privacy": privacy, "cohort.policy": policy}
    kind = POLICIES[policy]
    circles = kind.compose(PolicySettings(np.zeros(clients), cohort, privacy), np.random.default_rng(0))
    assert promised(make_config(settings)).privacy == circles.privacy


LARGE: dict[str, object] = {"clients__count": 100, "cohort__size": 100}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (LARGE, True),
        ({**LARGE, "aggregation__topology": "auto"}, False),
        ({**LARGE, "aggregation__threshold": 51}, False),
        ({**LARGE, "aggregation__threat": "active-server"}, False),
        ({**LARGE, "aggregation__kind": "plain"}, False),
        ({**LARGE, "aggregation__dropout": 0.9, "aggregation__collusion": 0.4}, False),
        ({}, False),
    ],
)
def test_a_large_complete_graph_shows_what_a_sparse_one_saves(settings: dict[str, object], said: bool) -> None:
    summary = summarised(make_records(3), **settings)
    assert ("aggregation.topology = auto, a client would share its secrets with" in words(summary)) is said


def test_a_run_that_has_not_begun_has_words_and_a_page() -> None:
    summary = summarised([], rounds=5)
    assert "not evaluated yet" in words(summary)
    assert "This run was interrupted" in run_page(summary, client_names(), [], "run")


def test_the_page_escapes_what_it_is_given() -> None:
    page = run_page(summarised(make_records()), client_names(), make_records(), HOSTILE)
    body = page[page.index("<body>") :]
    assert "<script>window" not in body
    assert "&lt;script&gt;window" in body


def test_many_rounds_make_no_large_page() -> None:
    few, many = (make_records(count) for count in (100, 3000))
    sizes = [len(run_page(summarised(records), client_names(), records, "run")) for records in (few, many)]
    assert sizes[1] - sizes[0] < 600_000


def watched(
    records: list[RoundRecord], yardstick: Yardstick = ACCURACY, /, *, terminal: bool, **settings: object
) -> str:
    summary = summarised(records, yardstick, **settings)
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=240, highlight=False)
    watcher = Watcher(console)
    start = RunStart(
        summary.config, client_path(), client_names(), 1234, records[:1], summary.yardstick, summary.promise
    )
    watcher.begin(start)
    for record in records[1:]:
        watcher.step(record.round, "mask", 3, 6)
        watcher.after_round(record)
    watcher.end(summary)
    return " ".join(output.getvalue().split())


def client_path() -> Path:
    return Path("runs") / "[bold]odd"


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    ("fields", "settings", "said"),
    [
        ({}, {}, "nobody exposed"),
        ({"epsilon": 2.5}, {"aggregation__kind": "secure"}, "2.5"),
        ({}, {"cohort__policy": "random"}, "no T promised"),
        (ALONE, {"training__algorithm": "centralised"}, "baseline"),
        ({}, {"aggregation__kind": "plain"}, "sees every update"),
    ],
)
def test_the_console_shows_every_round(
    terminal: bool, fields: dict[str, object], settings: dict[str, object], said: str
) -> None:
    records = make_records(12, **fields)
    shown = watched(records, terminal=terminal, rounds=13, **settings)
    assert "[bold]odd" in shown  # a folder's name is no markup
    assert "coterie resume" in shown
    if terminal:
        assert "round 12/13" in shown
        assert said in shown
    else:
        assert [f"round {number}/13 " in shown for number in range(2, 13)] == [True] * 11


@pytest.mark.parametrize("terminal", [True, False])
def test_brackets_in_names_are_text_on_the_console(terminal: bool) -> None:
    """The names of clients and of a file of features are the user's. rich would take ``[red]`` for a style."""
    reason = "site[red], site[/x] left, and additive sharing tolerates no dropout"
    records = [*make_records(2), RoundRecord(round=3, outcome=Outcome.ABORTED_BEFORE_REVEAL, reason=reason)]
    shown = watched(records, terminal=terminal, data__features="faces[red].npz")
    assert f"aborted before reveal: {reason}" in shown
    assert "on faces[red].npz: " in shown


def test_names_of_emoji_are_text_on_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise rich shows a picture in place of the name of a client."""
    record = RoundRecord(round=1, outcome=Outcome.ABORTED_BEFORE_REVEAL, reason="site :smile: left")
    summary, watcher = summarised([record]), Watcher()
    watcher.begin(RunStart(summary.config, client_path(), client_names(), 1, [], summary.yardstick, summary.promise))
    watcher.after_round(record)
    assert "site :smile: left" in capsys.readouterr().out


def test_a_line_has_no_epsilon_that_only_a_paper_claims() -> None:
    """The report says beside it that the claim is not sound."""
    record = extend(
        RoundRecord(round=3, outcome=Outcome.COMPLETED),
        ("refused", "claimed_epsilon"),
        {"refused": 4.0, "claimed_epsilon": 1.31},
    )
    assert "refused 4" in line(record, 10)
    assert "1.31" not in line(record, 10)


def test_a_line_says_why_there_is_no_result() -> None:
    skipped = RoundRecord(round=3, outcome=Outcome.SKIPPED, reason="too few clients are available")
    assert "skipped: too few clients are available" in line(skipped, 10)
    aborted = RoundRecord(round=3, outcome=Outcome.ABORTED_BEFORE_REVEAL, reason="lost")
    assert "aborted before reveal: lost" in line(aborted, 10)


def test_curves_are_drawn_with_block_characters() -> None:
    assert curve([0.0, 0.5, 1.0], 0.0, 1.0) == "▁▅█"
    assert len(curve([0.5] * 1000, 0.0, 1.0)) == 40
    assert curve([3.0], 3.0, 3.0) == "▁"


def test_promises_are_in_the_introduction() -> None:
    assert "T = 2 promised" in watched(make_records(3), terminal=False)
    assert promised(make_config({"cohort.policy": "random"})).privacy == 1


@pytest.mark.parametrize(("rounds", "whole"), [(3, True), (12, True), (40, False)])
def test_few_rounds_have_a_tick_each_and_none_in_between(rounds: int, whole: bool) -> None:
    assert (cohorts(make_records(rounds)).layout["xaxis"].get("dtick") == 1) == whole
