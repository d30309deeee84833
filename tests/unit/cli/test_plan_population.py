"""``coterie plan --population``: what is shown is what theory and simulation say."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread
from typer.testing import CliRunner

from coterie.cli import app
from coterie.cohorts.theory import RECOMMENDED_CONVERGENCE
from coterie.errors import ConfigError
from coterie.planning.population import plan_population

RUNNER = CliRunner()
PAPER = ("--population", "120", "--cohort", "12")
SMALL = ("--population", "24", "--cohort", "6")


def shown(*arguments: str) -> str:
    result = RUNNER.invoke(app, ["plan", *arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def as_json(*arguments: str) -> dict[str, Any]:
    result = RUNNER.invoke(app, ["plan", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refusal(*arguments: str) -> str:
    result = RUNNER.invoke(app, ["plan", *arguments])
    assert isinstance(result.exception, ConfigError), result.output
    return str(result.exception)


def test_the_papers_population() -> None:
    found = as_json(*PAPER, "--dropout", "0.2")
    choices = {choice["privacy"]: choice for choice in found["choices"]}
    assert list(choices) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]  # 120 clients in circles of 11 are circles of 12
    assert found["recommended"] == 6
    assert choices[6]["cardinality"] == pytest.approx(11.777466, abs=1e-6)
    assert choices[3]["family"] == 91_390
    assert choices[6]["fairness_gap"] == pytest.approx(0, abs=1e-12)
    assert choices[6]["convergence"] == pytest.approx(1 - choices[6]["skipped"])
    for choice in choices.values():
        gaps = choice["simulated_fairness_gap"]
        assert gaps["fairest"] <= gaps["uniform"]


def test_people_get_a_table_with_a_recommendation_and_its_rule(tmp_path: Path) -> None:
    plot = tmp_path / "trade-off.png"
    output = shown(*PAPER, "--dropout", "0.2", "--plot", str(plot))
    assert "1.05e16" in output
    assert "91,390" in output
    assert "→ T = 6: the largest T of at least 2 that keeps 95% of the cohort" in output
    assert "one simulated run of each mode of selection, seed 0" in output
    assert imread(plot).ndim == 3


def test_levels_compare_ways_of_composing_circles(tmp_path: Path) -> None:
    arguments = (*SMALL, "--dropout", "0.1,0.2,0.3,0.4,0.5")
    found = as_json(*arguments)
    random, similar = (
        {choice["privacy"]: choice for choice in found["choices"] if choice["composition"] == composition}
        for composition in ("random", "similar")
    )
    assert random.keys() == similar.keys()
    for privacy in (2, 3, 6):  # similar circles are complete more often, and less fair
        assert similar[privacy]["cardinality"] > random[privacy]["cardinality"]
        assert similar[privacy]["fairness_gap"] > random[privacy]["fairness_gap"]
    output = shown(*arguments, "--plot", str(tmp_path / "both.png"))
    assert "Random circles" in output
    assert "Similar availability" in output
    assert "The recommendation is for random circles" in output


def test_one_privacy_in_detail(tmp_path: Path) -> None:
    plot = tmp_path / "all.png"
    output = shown(*PAPER, "--dropout", "0.3", "--privacy", "4", "--survival", "0.95")
    assert "the same weight as at least 3 others" in output
    assert "11.83" in output
    assert "18.5% of the cohort" in output  # 1 - 0.95^4
    assert "1.23 times as many, 4 circles instead of 3" in output
    assert "protects nobody" in shown(*SMALL, "--dropout", "0.3", "--privacy", "1", "--plot", str(plot))
    assert plot.exists()
    found = as_json(*PAPER, "--dropout", "0.3", "--privacy", "4", "--survival", "0.95")
    (choice,) = found["choices"]
    assert choice["aggregated"] == pytest.approx(choice["cardinality"] * 0.95**4)


def test_circles_that_do_not_divide_the_population() -> None:
    uneven = ("--population", "25", "--cohort", "6", "--dropout", "0.2")
    output = shown(*uneven)
    assert "K must be 7 (T = 2), 7 (T = 3)" in output
    assert "No T is recommended" in output
    assert "K = 7 would hold one circle more" in shown(*uneven, "--privacy", "3")


def test_large_populations_are_not_simulated() -> None:
    arguments = ("--population", "60000", "--cohort", "500", "--dropout", "0.1")
    found = as_json(*arguments)
    assert [choice["privacy"] for choice in found["choices"]] == [1, 2, 5, 10, 20, 50, 100, 200, 500]
    assert found["choices"][0]["family"] is None
    assert found["choices"][0]["family_log10"] > 1000
    assert all(choice["simulated_fairness_gap"] is None for choice in found["choices"])
    output = shown(*arguments)
    assert "is not simulated here" in output
    assert "Only some T are shown" in output
    assert "simulated once" not in shown(*arguments, "--privacy", "20")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dropout", "0.1"), "either --clients"),
        (("--clients", "100", *PAPER, "--dropout", "0.1"), "either --clients"),
        (("--clients", "100", "--cohort", "12", "--seed", "0", "--dropout", "0.1"), "--cohort, --seed can only be"),
        ((*PAPER, "--collusion", "0.1", "--dropout", "0.1"), "--collusion can only be given with --clients"),
        (("--population", "120", "--dropout", "0.1"), "needs --cohort"),
        (("--clients", "100", "--dropout", "0.1,0.2"), "one --dropout"),
        ((*PAPER, "--dropout", "a tenth"), "such as 0.1"),
        ((*PAPER, "--dropout", "1.5"), "between 0 and 1"),
        ((*PAPER, "--dropout", "0.1", "--privacy", "13"), "more than a cohort of 12"),
        ((*PAPER, "--dropout", "0.1", "--survival", "0"), "surviving"),
        (("--population", "10", "--cohort", "12", "--dropout", "0.1"), "cannot be drawn from 10"),
        ((*SMALL, "--dropout", "0.1", "--plot", "/nowhere/at/all.png"), "cannot write"),
    ],
)
def test_bad_requests_are_refused_in_words(arguments: tuple[str, ...], words: str) -> None:
    assert words in refusal(*arguments)


def test_a_plan_needs_a_dropout() -> None:
    with pytest.raises(ConfigError, match="missing"):
        plan_population(12, 4, [])


@settings(max_examples=12)
@given(st.integers(2, 16), st.data())
def test_every_plan_keeps_its_own_rule(population: int, data: st.DataObject) -> None:
    cohort = data.draw(st.integers(1, population))
    dropout = data.draw(st.lists(st.sampled_from((0.0, 0.1, 0.3, 0.6)), min_size=1, max_size=3))
    plan = plan_population(population, cohort, dropout, seed=data.draw(st.integers(0, 5)))
    kept = {o.expected.privacy: o.expected.convergence for o in plan.main}
    enough = [t for t, share in kept.items() if t > 1 and share >= RECOMMENDED_CONVERGENCE]
    assert (plan.recommended.privacy if plan.recommended else None) == max(enough, default=None)
    for choice in plan.choices:
        assert -1e-9 <= choice.expected.skipped <= 1
        assert choice.expected.cardinality <= cohort + 1e-9
        assert all(0 <= gap <= 1 for gap in choice.gaps.values())
        if not any(dropout):  # nobody is ever missing: the least used take turns
            assert choice.gaps["fairest"] <= 1 / plan.rounds + 1e-12


def test_equal_kinds_of_circles_are_recognised() -> None:
    """Availability of a random circle must not depend on the order of its members, or theory takes forever."""
    from coterie.planning.population import _compose

    dropout = np.resize([0.1, 0.2, 0.3], 3_000)
    circles = _compose("random", dropout, 0, 5)
    assert np.unique(circles.availability(dropout)).size <= 21  # multisets of 5 out of 3 levels
