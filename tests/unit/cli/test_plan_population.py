"""``coterie plan --population``: the numbers shown agree with theory and simulation."""

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread
from tests.support.plans import as_json, refusal, shown
from typer.testing import CliRunner

from coterie.cli import app
from coterie.cohorts.theory import KEPT_SHARE, USEFUL_SHARE
from coterie.errors import ConfigError
from coterie.planning.population import plan_population
from coterie.runs.sections.collusion import session_colluders
from coterie.runs.settings.toml import load_config

RUNNER = CliRunner()
PAPER = ("--population", "120", "--cohort", "12")
SMALL = ("--population", "24", "--cohort", "6")


def test_the_papers_population() -> None:
    found = as_json(*PAPER, "--absent", "0.2")
    choices = {choice["privacy"]: choice for choice in found["choices"]}
    assert list(choices) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]  # 120 clients in circles of 11 are circles of 12
    assert found["recommended"] == 6
    assert choices[6]["cardinality"] == pytest.approx(11.777466, abs=1e-6)
    assert choices[3]["family"] == 91_390
    assert choices[6]["fairness_gap"] == pytest.approx(0, abs=1e-12)
    assert choices[1]["variance"] == pytest.approx(0.0756, abs=5e-5)
    assert choices[6]["variance"] == pytest.approx(0.474, abs=5e-4)
    assert (found["absent"], found["lost"], found["collusion"], found["colluders"]) == ([0.2], 0, 0, 0)
    assert choices[6]["convergence"] == pytest.approx(1 - choices[6]["skipped"])
    for choice in choices.values():
        gaps = choice["simulated_fairness_gap"]
        assert gaps["fairest"] <= gaps["uniform"]


def test_the_command_prints_a_table_with_a_recommendation_and_its_rule(tmp_path: Path) -> None:
    plot = tmp_path / "[trade]-off.png"  # a console must not take a part of the name for markup
    output = shown(*PAPER, "--absent", "0.2", "--plot", str(plot))
    assert f"The trade-off is drawn in {plot}." in output
    assert "1.05e16" in output
    assert "91,390" in output
    assert "→ T = 6, which aggregates 11.78 of 12 clients" in output
    assert "the largest T that aggregates at least 95% of the clients that the best T does" in output
    assert "one simulated run of each mode of selection, seed 0" in output
    assert "0.474" in output  # of the variance term, beside
    assert "0.076 for T = 1" in output
    assert imread(plot).ndim == 3


@pytest.mark.parametrize("columns", [80, 120])
def test_every_column_fits_the_terminal(columns: int) -> None:
    arguments = ["plan", "--population", "600", "--cohort", "200", "--absent", "0.1", "--lost", "0.1"]
    for more in ([], ["--collusion", "0.01"], ["--over-select"]):
        lines = RUNNER.invoke(app, [*arguments, *more], env={"COLUMNS": str(columns)}).output.splitlines()
        assert max(map(len, lines)) <= columns
        assert not any("…" in line for line in lines)
        (heading,) = (line for line in lines if "aggregated" in line and "of K" in line and "β" in line)
        assert ("family" in heading) == (columns == 120)


def test_loss_in_the_round_decides_which_t_is_recommended() -> None:
    """At T = 20 only 19.4 of 500 were aggregated, and it was recommended."""
    arguments = ("--population", "60000", "--cohort", "500", "--absent", "0")
    assert as_json(*arguments)["recommended"] == 500
    found = as_json(*arguments, "--lost", "0.15")
    choices = {choice["privacy"]: choice for choice in found["choices"]}
    assert choices[20]["aggregated"] == pytest.approx(19.4, abs=0.05)
    assert found["recommended"] == 2
    assert choices[2]["aggregated"] == pytest.approx(361, abs=0.5)
    output = shown(*arguments, "--lost", "0.15")
    assert "→ T = 2, which aggregates 361." in output
    assert "--over-select" in output
    more = as_json(*arguments, "--lost", "0.15", "--over-select")
    again = {choice["privacy"]: choice for choice in more["choices"]}
    assert again[more["recommended"]]["aggregated"] >= 0.95 * 500
    assert more["recommended"] > 2
    assert "cohort.survival = 0.85" in shown(*arguments, "--lost", "0.15", "--over-select")


def test_old_names_of_absence_and_loss_still_work() -> None:
    new = as_json(*SMALL, "--absent", "0.1,0.2", "--lost", "0.05")
    assert as_json(*SMALL, "--dropout", "0.1,0.2", "--survival", "0.95") == new
    assert "old name of --absent" in refusal(*SMALL, "--absent", "0.1", "--dropout", "0.1")
    assert "old name of --lost" in refusal(*SMALL, "--absent", "0.1", "--lost", "0.1", "--survival", "0.9")
    hidden = RUNNER.invoke(app, ["plan", "--help"], env={"COLUMNS": "200"}).output
    assert "--dropout" not in hidden
    assert "--survival" not in hidden


def test_colluders_count_in_many_rounds_too() -> None:
    """Against a malicious server all colluders may be in every session and in one circle."""
    found = as_json(*PAPER, "--absent", "0.05", "--collusion", "0.05", "--active")
    choices = {choice["privacy"]: choice for choice in found["choices"]}
    assert found["colluders"] == 6
    assert [choices[t]["honest"] for t in (1, 6, 8, 12)] == [0, 0, 2, 6]
    assert choices[found["recommended"]]["honest"] >= 2
    assert found["session"]["topology"] == "complete"
    assert found["session"]["quorum"] == 10
    output = shown(*PAPER, "--absent", "0.05", "--collusion", "0.05", "--active")
    assert "T-c" in output
    assert "c = 6 colluders: all colluders of the roster" in output
    assert "aggregation.collusion = 0.05" in output
    assert "10 clients must confirm" in output
    assert "it must cover all colluders among the 120 clients" in shown(*PAPER, "--absent", "0.05", "--active")
    detail = shown(*PAPER, "--absent", "0.05", "--collusion", "0.05", "--active", "--privacy", "12")
    assert "Honest members left: T - c = 6." in detail
    assert "no plan exists for sessions of 12" in refusal(*PAPER, "--absent", "0.1", "--collusion", "0.1", "--active")


def test_rounds_without_a_result_aggregate_no_client() -> None:
    """With c = 6 every sum needs 8 clients: one circle of 5 or 6 that is left of two is not enough, nor is one of 7."""
    arguments = (*PAPER, "--absent", "0.3", "--lost", "0.02", "--collusion", "0.05", "--active")
    found = as_json(*arguments)
    choices = {choice["privacy"]: choice for choice in found["choices"]}
    for privacy in (5, 6):
        selected = choices[privacy]["cardinality"]
        assert choices[privacy]["aggregated"] == pytest.approx(selected * 0.98 ** (2 * privacy))
    eight = choices[7]["aggregated"]  # one of the 17 circles has 8 members, and all of them must confirm
    assert 0 < eight < choices[7]["cardinality"] / 17
    assert found["recommended"] is None
    assert found["needs"] == {"clients": 12, "summed": 8, "quorum": 10}
    output = shown(*arguments)
    assert "every sum needs at least c + 2 = 8 clients, and 10 clients must confirm" in output.replace("Every", "every")
    never = shown("--population", "126", *arguments[2:], "--privacy", "7")
    assert "8 clients, more than there are: no round has a result" in never
    assert "clients aggregated in a round 0 " in never


def test_a_cohort_larger_than_any_session_is_reported() -> None:
    arguments = ("--population", "100000", "--absent", "0.1", "--cohort")
    assert "A session holds at most 65,536 clients" in shown(*arguments, "70000")
    (note,) = as_json(*arguments, "70000", "--privacy", "2")["notes"]
    assert "selects up to 70,000" in note
    assert as_json(*arguments, "65536", "--privacy", "2")["notes"] == []


def test_the_smallest_session_of_a_run_withstands_all_colluders_too(tmp_path: Path) -> None:
    arguments = ["--population", "500", "--cohort", "60", "--absent", "0.1", "--lost", "0.02"]
    arguments += ["--collusion", "0.01", "--active", "--over-select"]
    found = as_json(*arguments)
    best = next(choice for choice in found["choices"] if choice["recommended"])
    assert (best["fewest_clients"], best["most_clients"]) == (60, 80)
    file = tmp_path / "pasted.toml"
    result = RUNNER.invoke(app, ["plan", *arguments])
    file.write_text(result.stdout.split("Settings for coterie run:")[1])
    config = load_config(file)
    played = [session_colluders(config.aggregation, config.clients.count, clients) for clients in (60, 70, 80)]
    assert played == [found["colluders"]] * 3 == [5] * 3


def test_random_circles_of_an_honest_server_spread_the_colluders() -> None:
    arguments = ("--population", "20000", "--cohort", "50", "--absent", "0.05", "--collusion", "0.01")
    found = as_json(*arguments)
    choices = {choice["privacy"]: choice for choice in found["choices"]}
    colluders = choices[20]["colluders"]
    odds = 1_000 * scipy.stats.hypergeom.sf([colluders, colluders - 1], 20_000, 200, 20)
    assert odds[0] <= 2.0**-40 < odds[1]
    assert choices[20]["honest"] == 20 - colluders > 2
    assert as_json(*arguments, "--privacy-bits", "20")["choices"][4]["honest"] > choices[20]["honest"]
    malicious = as_json(*arguments[:-2], "--active", "--collusion", "0.0005")
    assert {choice["privacy"]: choice["honest"] for choice in malicious["choices"]}[20] == 10
    assert "hypergeometric tail" in shown(*arguments)


def test_similar_circles_can_be_steered_by_colluders() -> None:
    found = as_json("--population", "1000", "--cohort", "50", "--absent", "0.1,0.2", "--collusion", "0.02")
    for choice in found["choices"]:
        worst = min(20, choice["privacy"])
        assert choice["colluders"] == worst if choice["composition"] == "similar" else choice["colluders"] <= worst


def test_no_circle_with_two_honest_members() -> None:
    output = shown(*PAPER, "--absent", "0.05", "--collusion", "0.3")
    assert "No T is recommended" in output
    assert "leaves two honest members" in output


def test_availability_levels_compare_ways_of_composing_circles(tmp_path: Path) -> None:
    arguments = (*SMALL, "--absent", "0.1,0.2,0.3,0.4,0.5")
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


def test_one_t_is_planned_in_detail(tmp_path: Path) -> None:
    plot = tmp_path / "all.png"
    output = shown(*PAPER, "--absent", "0.3", "--privacy", "4", "--lost", "0.05")
    assert "the same weight as at least 3 others" in output
    assert "11.83" in output
    assert "18.5% of the cohort" in output  # 1 - 0.95^4
    assert "1.23 times as many clients" in output
    over = shown(*PAPER, "--absent", "0.3", "--privacy", "4", "--lost", "0.05", "--over-select")
    assert "4 circles, up to 16 clients" in over
    assert "protects no client" in shown(*SMALL, "--dropout", "0.3", "--privacy", "1", "--plot", str(plot))
    assert plot.exists()
    found = as_json(*PAPER, "--absent", "0.3", "--privacy", "4", "--lost", "0.05")
    (choice,) = found["choices"]
    assert choice["aggregated"] == pytest.approx(choice["cardinality"] * 0.95**4)


def test_circles_that_do_not_divide_the_population() -> None:
    uneven = ("--population", "25", "--cohort", "6", "--dropout", "0.2")
    output = shown(*uneven)
    assert "K must be 7 (T = 2), 7 (T = 3)" in output
    assert "→ T = 5" in output
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
        ((*PAPER, "--roster", "500", "--absent", "0.1"), "--roster can only be given with --clients"),
        (("--clients", "100", "--absent", "0.1"), "--absent can only be given with --population"),
        (("--population", "120", "--absent", "0.1"), "needs --cohort"),
        (PAPER, "needs --absent"),
        (("--clients", "100"), "needs --lost"),
        (("--clients", "100", "--dropout", "0.1,0.2"), "one probability of loss"),
        ((*PAPER, "--dropout", "a tenth"), "such as 0.1"),
        ((*PAPER, "--dropout", "1.5"), "a probability from 0 to 1"),
        ((*PAPER, "--dropout", "0.1", "--privacy", "13"), "more than a cohort of 12"),
        ((*PAPER, "--absent", "0.1", "--lost", "1"), "--lost is the probability that a client is lost in a round"),
        (("--clients", "100", "--lost", "1.5"), "--lost is the probability that a client is lost in a round"),
        (
            (*PAPER, "--absent", "0.1", "--collusion", "1"),
            "collusion is a share of all clients, from 0 to below 1, not 1",
        ),
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
def test_every_recommendation_follows_the_printed_rule(population: int, data: st.DataObject) -> None:
    cohort = data.draw(st.integers(1, population))
    dropout = data.draw(st.lists(st.sampled_from((0.0, 0.1, 0.3, 0.6)), min_size=1, max_size=3))
    plan = plan_population(population, cohort, dropout, seed=data.draw(st.integers(0, 5)))
    kept = {o.expected.privacy: o.expected.aggregated for o in plan.main if o.expected.privacy > 1}
    most = max(kept.values(), default=0.0)
    enough = [t for t, clients in kept.items() if clients >= KEPT_SHARE * most >= KEPT_SHARE * USEFUL_SHARE * cohort]
    assert (plan.recommended.privacy if plan.recommended else None) == max(enough, default=None)
    for choice in plan.choices:
        assert -1e-9 <= choice.expected.skipped <= 1
        assert choice.expected.cardinality <= cohort + 1e-9
        assert all(0 <= gap <= 1 for gap in choice.gaps.values())
        if not any(dropout):  # nobody is ever missing: the least used take turns
            assert choice.gaps["fairest"] <= 1 / plan.rounds + 1e-12


def test_random_circles_have_few_different_availabilities() -> None:
    """Availability of a random circle must not depend on the order of its members, or theory takes forever."""
    from coterie.planning.population import _compose

    dropout = np.resize([0.1, 0.2, 0.3], 3_000)
    circles = _compose("random", dropout, 0, 5)
    assert np.unique(circles.availability(dropout)).size <= 21  # multisets of 5 out of 3 levels


def test_numbers_and_nouns_agree() -> None:
    said = shown("--population", "100000", "--cohort", "60000", "--absent", "0.01", "--privacy", "2", "--lost", "0.01")
    assert "has the same weight as at least 1 other." in said
    assert "e+" not in said
    assert "clients aggregated in a round 58,806" in said
    said = shown(*PAPER, "--absent", "0.3", "--privacy", "7", "--collusion", "0.05")
    assert "in a cohort 1 circle different" in said
    assert "A circle may have 6 colluders, who know their own updates. Honest members left: T - c = 1." in said


@pytest.mark.parametrize("bits", ["nan", "inf", "-1"])
def test_a_target_that_is_no_number_of_bits_is_refused(bits: str) -> None:
    assert "privacy_bits" in refusal(*SMALL, "--absent", "0.1", "--collusion", "0.1", "--privacy-bits", bits)
