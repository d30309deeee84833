"""``coterie plan --population --rounds``: one command from the numbers of a deployment to settings that run."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support import plans
from tests.support.plans import refusal
from tests.support.records import record_of
from typer.testing import CliRunner

from coterie.bench import machine, operations
from coterie.cli import app
from coterie.planning.session import recommend

RUNNER = CliRunner()
shown = partial(plans.shown, columns=200)
SMALL = ("--population", "40", "--cohort", "8", "--absent", "0.1", "--lost", "0.01", "--rounds", "2")


def as_json(*arguments: str) -> dict[str, Any]:
    return plans.as_json(*arguments, "--no-calibrate")


@pytest.mark.parametrize("more", [(), ("--epsilon", "8", "--over-select"), ("--active", "--epsilon", "8")])
def test_the_settings_that_it_writes_run(tmp_path: Path, more: tuple[str, ...]) -> None:
    pytest.importorskip("torch", reason="training needs coterie[train]")
    file = tmp_path / "my.toml"
    plan = as_json(*SMALL, *more, "--config", str(file))
    done = record_of("run", file, "--out", tmp_path / "run")
    assert done["rounds"] == 2
    assert (tmp_path / "run" / "config.toml").read_text("utf-8").count(f"privacy = {plan['privacy']}\n") == 1
    if "--epsilon" in more:
        assert done["epsilon"] is not None
        assert done["epsilon"] <= 8


def test_everything_that_was_asked_for_is_in_the_answer() -> None:
    text = shown(*SMALL, "--epsilon", "8", "--no-calibrate")
    for expected in ("→ T =", "graph", "over-selection", "a client sends", "a session fails", "8 at delta = 1e-05"):
        assert expected in text
    assert "not measured (--no-calibrate)" in text
    found = as_json(*SMALL, "--epsilon", "8")
    assert found["seconds"] is None
    assert found["epsilon"] == 8
    assert found["noise_multiplier"] > 0


def test_this_machine_is_measured() -> None:
    result = RUNNER.invoke(app, ["plan", *SMALL, "--json"])
    seconds = json.loads(result.stdout)["seconds"]
    assert seconds["client"] > 0
    assert seconds["server"] > 0


def test_long_vectors_are_measured_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*works: object) -> list[float]:
        return [20.0] * len(works)

    for module in (machine, operations):
        monkeypatch.setattr(module, "best_seconds", measured)
    found = operations.operation_seconds(recommend(8, 0.0, length=1 << 26))
    assert (found.agreement, found.verification, found.sealing) == (1, 1, 1)
    assert (found.expansion, found.checksum) == (1 << 10, 1 << 10)
    assert (found.sharing, found.opening) == (1, 20)  # many secrets are shared at once, and opened one by one


def test_the_page_is_written(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    assert str(file) in shown(*SMALL, "--no-calibrate", "--threat-model", str(file))
    assert "Threat model of a planned deployment" in file.read_text("utf-8")


def test_options_of_a_deployment_need_its_numbers() -> None:
    rounds = ("--population", "40", "--cohort", "8", "--absent", "0.1")
    assert "--epsilon can only be given with --population and --rounds" in refusal(*rounds, "--epsilon", "8")
    assert "--length with --population needs --rounds" in refusal(*rounds, "--length", "10")
    assert "--plot is for the table of all T" in refusal(*SMALL, "--plot", "x.png")
    assert "give --population, not --clients" in refusal("--clients", "9", "--lost", "0.1", "--rounds", "2")
    assert "epsilon must be a number above 0" in refusal(*SMALL, "--epsilon", "0")
    assert "no T can be recommended" in refusal(*SMALL[:4], "--absent", "0.9", "--rounds", "2")
