"""``coterie audit``: further questions, several runs, windows of time, and output paths."""

import csv
import json
from pathlib import Path

import pytest
from tests.support.audits import run
from tests.unit.cli.test_audit import SAFE

EXPOSING = "round,client\n1,ann\n1,bob\n1,cyd\n2,ann\n2,bob\n3,cyd\n3,dan\n3,eve\n"
RUNS = "seed,round,client\n7,1,a\n7,1,b\n8,1,a\n8,1,b\n8,2,b\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text(EXPOSING)
    return tmp_path / "log.csv"


@pytest.fixture
def safe(tmp_path: Path) -> Path:
    (tmp_path / "safe.csv").write_text(SAFE)
    return tmp_path / "safe.csv"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / "runs.csv").write_text(RUNS)
    return tmp_path / "runs.csv"


def test_answers_are_in_the_text_the_json_the_page_and_the_summary(safe: Path, tmp_path: Path) -> None:
    questions = ("--colluders", "a", "--forecast", "--what-if", "circles=2", "--seed", "3")
    pages = ("--html", tmp_path / "page.html", "--summary", tmp_path / "summary.html")
    shown = run(safe, *questions, *pages)
    assert shown.exit_code == 0, shown.output
    assert "strong T of the others is 1" in " ".join(shown.output.split())
    found = json.loads(run(safe, *questions, "--json").stdout)
    assert found["colluders"] == {
        "names": ["a"],
        "strong_privacy": 1,
        "exposed": [],
        "by_collusion": 0,
    }
    assert found["forecast"]["seed"] == found["what_if"]["seed"] == 3
    assert found["what_if"]["strong_privacy"] == 2
    assert found["evidence"]["options"]["--what-if"] == "circles=2"
    for text in (shown.output, (tmp_path / "page.html").read_text("utf-8")):
        for title in ("Named colluders", "Forecast", "With circles"):
            assert title in text
    summary = (tmp_path / "summary.html").read_text("utf-8")
    for title in (
        "If 1 named participant helped the server",
        "If rounds go on as before",
        "If only whole circles of 2 had been added up",
    ):
        assert title in summary
    assert "somebody took part in rounds like nobody else" in summary


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (["--what-if", "circles=99"], "circles of this log may have 2 to"),
        (["--colluders", "zoe"], "the log has no client zoe"),
        (["--forecast"], "a forecast is for up to 2 clients"),
    ],
)
def test_a_question_that_has_no_answer_is_refused_before_the_work(
    safe: Path, question: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def audit(*_: object, **__: object) -> None:
        pytest.fail("the audit began")

    monkeypatch.setattr("coterie.auditing.auditor.audit", audit)
    monkeypatch.setattr("coterie.auditing.forecast.MOST_CLIENTS", 2)
    refused = run(safe, *question)
    assert refused.exit_code == 2
    assert said in " ".join(refused.output.split())


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--colluders", "a"], 0),
        (["--colluders", "a,b,c", "--require", "2"], 1),  # d has no companion left
        (["--colluders", "a", "--require", "2"], 1),
        (["--colluders", "e,f", "--require", "2"], 0),
        (["--colluders", "any 2"], 0),  # weak T is 4
        (["--colluders", "any 3"], 1),
        (["--colluders", "any 3", "--report-only"], 0),
        (["--colluders", "zoe"], 2),
        (["--what-if", "circles=99"], 2),
        (["--what-if", "rings=4"], 2),
        (["--window", "day"], 2),
    ],
)
def test_the_exit_status_counts_colluders(safe: Path, arguments: list[str], status: int) -> None:
    result = run(safe, *arguments)
    assert result.exit_code == status, result.output


def test_all_runs_are_judged_and_the_worst_decides(runs: Path, tmp_path: Path) -> None:
    refused = run(runs)
    assert refused.exit_code == 2
    assert "--all-runs" in refused.output
    shown = run(runs, "--all-runs", "--exposed", tmp_path / "exposed.csv")
    assert shown.exit_code == 1
    assert "seed=7" in shown.stdout
    with (tmp_path / "exposed.csv").open() as file:
        assert list(csv.DictReader(file)) == [
            {"run": "seed=8", "client": "a", "since_round": "2"},
            {"run": "seed=8", "client": "b", "since_round": "2"},
        ]
    found = json.loads(run(runs, "--all-runs", "--json").stdout)["runs"]
    assert [(one["run"], one["status"], one["level"]) for one in found] == [
        ({"seed": "7"}, 0, "safe"),
        ({"seed": "8"}, 1, "danger"),
    ]
    assert run("-", "--all-runs", "--report-only", stdin=RUNS).exit_code == 0
    assert run("-", "--all-runs", stdin=RUNS + "8,,\n").exit_code == 2
    assert run(runs, "--all-runs", "--html", tmp_path / "page.html").exit_code == 2


def test_a_day_is_a_round(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("at,client\n2025-03-31T10:00,a\n2025-03-31T23:00,b\n2025-04-01T01:00,b\n")
    found = json.loads(run(tmp_path / "log.csv", "--round-column", "at", "--window", "day", "--json").stdout)
    assert found["series"]["round"] == ["2025-03-31", "2025-04-01"]
    assert found["evidence"]["options"]["--window"] == "day"


@pytest.mark.parametrize("option", ["--exposed", "--html", "--summary"])
def test_an_output_path_is_checked_before_the_log_is_read(
    log: Path, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the log was read")

    monkeypatch.setattr("coterie.cli.audit_input.LogInput.read", fail)
    for path, complaint in ((tmp_path / "no" / "file", "there is no folder"), (log, "is also the log")):
        result = run(log, option, path)
        assert result.exit_code == 2, result.output
        assert complaint in " ".join(result.output.split())
    assert log.read_text() == EXPOSING


def test_two_outputs_need_two_files(log: Path, tmp_path: Path) -> None:
    result = run(log, "--html", tmp_path / "one.html", "--summary", tmp_path / "one.html")
    assert result.exit_code == 2
    assert "is also the file of --html" in " ".join(result.output.replace("│", " ").split())


def test_a_summary_needs_its_package(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.cli.audit.find_spec", lambda _: None)
    result = run(log, "--summary", tmp_path / "summary.html")
    assert result.exit_code == 2
    assert "--summary needs more packages" in " ".join(result.output.replace("│", " ").split())
