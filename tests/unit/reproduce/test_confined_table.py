"""Tables of confined descent, at sizes that take a moment, with descents that must agree as their own oracle."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from tests.support.jobs import experiment_of
from tests.support.reports import checked_report

from coterie.confined.claims import sound_epsilon
from coterie.errors import ConfigError
from coterie.reports.findings import Judgement
from coterie.reports.markdown import write_findings
from coterie.reproduce.confined_table.drops import DropCase, count_misses, count_windows, drop_table
from coterie.reproduce.confined_table.experiment import ConfinedTable
from coterie.reproduce.confined_table.grid import (
    GridCase,
    begin,
    draw_subset,
    load_rows,
    play,
    spread_members,
    try_settings,
)
from coterie.reproduce.confined_table.outcomes import Evaluation, Finding, RowTrials
from coterie.reproduce.confined_table.report import DISPLACEMENT, learner_claims
from coterie.reproduce.confined_table.settings import LearnerClaim, LearnerRow
from coterie.reproduce.declarations import FULL, QUICK, Declaration, declared, read_declaration
from coterie.reproduce.experiment import Job, JobContext
from coterie.reproduce.runner import Run

SHIPPED = (
    *("cgd-accuracy", "cgd-fairness", "cgd-lambda", "cgd-mu", "cgd-scale", "cgd-scale-cifar10"),
    *("cgd-algorithm1", "cgd-packet-drops"),
)
SMALL = msgspec.toml.decode(
    """
title = "Small"
paper = "Nobody et al."
kind = "confined-table"
sizes = { full = { trials = 2 } }
[settings.grids]
data = "digits"
hidden = 8
iterations = 12
every = 4
sample = 2
members = 2
[settings.runs]
rounds = 2
"clients.count" = 4
"cohort.size" = 4
"cohort.privacy" = 4
"model.name" = "softmax-regression"
"availability.kind" = "equal"
[[settings.tables]]
name = "few"
grids = { groups = 2 }
[[settings.tables]]
name = "many"
grids = { groups = 40 }
without = ["FedAvg"]
[[settings.rows]]
name = "CGD"
by = "grid"
[[settings.rows]]
name = "local"
by = "grid"
set = { method = "local, own features" }
[[settings.rows]]
name = "FedAvg"
by = "run"
set = { "training.algorithm" = "confined" }
[remarks]
growth = true
paper = { "CGD" = { "few" = 12.34 } }
paper_iterations = 12
claims = [{ says = "it learns", table = "few", row = "CGD", against = "local", least = -100.0 }]
notes = ["Nobody has checked this."]
""",
    type=Declaration,
)


def case(**changes: object) -> GridCase:
    settings = {"data": "digits", "hidden": 8, "iterations": 10, "every": 5, "groups": 1, "members": 1, "rows": 200}
    return msgspec.convert({**settings, **changes}, GridCase)


def found(given: GridCase, seed: int = 0) -> Finding:
    finding = play(given, seed, None, lambda: False)
    assert finding is not None
    return finding


def scores(finding: Finding) -> list[tuple[float, float]]:
    return [(one.score, one.loss) for one in finding.curve]


def table(declaration: Declaration = SMALL, size: str = FULL) -> ConfinedTable:
    return experiment_of(ConfinedTable, declaration, size)


@pytest.mark.parametrize("method", ["local", "local, own features", "centralised"])
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**31))
def test_a_single_participant_learns_as_if_alone_and_as_all_together(method: str, seed: int) -> None:
    confined, other = found(case(), seed), found(case(method=method), seed)
    assert np.allclose(scores(confined), scores(other), atol=2e-3)
    assert other.curve[-1].displacement is None
    assert confined.curve[-1].displacement is not None


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**31), batches=st.sampled_from([2, 5]))
def test_batches_are_gone_through_in_order_together_and_in_one_place(seed: int, batches: int) -> None:
    confined = found(case(batches=batches), seed)
    assert np.allclose(scores(confined), scores(found(case(method="centralised", batches=batches), seed)), atol=2e-3)
    assert scores(confined) != scores(found(case(), seed))


def test_batches_are_refused_with_a_loss_check() -> None:
    with pytest.raises(msgspec.ValidationError, match="only without a loss check"):
        case(batches=2, check="increase")


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**31), members=st.integers(2, 8))
def test_the_number_of_members_does_not_change_what_a_group_learns(seed: int, members: int) -> None:
    assert scores(found(case(groups=4, members=members), seed)) == scores(found(case(groups=4), seed))


def test_few_features_and_falling_steps_learn_less() -> None:
    alone = found(case(groups=4, members=8, method="local", iterations=200, sample=4))
    blind = found(case(groups=4, members=8, method="local, own features", iterations=200, sample=4))
    assert blind.curve[-1].score < alone.curve[-1].score - 0.1
    fallen = found(case(groups=4, mu=0.5, constant=0, iterations=30))
    constant = found(case(groups=4, iterations=30))
    assert fallen.curve[-1].loss > constant.curve[-1].loss


@given(members=st.integers(1, 200), looks=st.integers(1, 50))
def test_evaluated_members_are_spread_over_all_columns(members: int, looks: int) -> None:
    chosen = spread_members(members, looks)
    gaps = np.diff([-members / looks / 2, *chosen, members + members / looks / 2])
    assert all(0 <= member < members for member in chosen)
    assert max(gaps) <= members / looks + 1


def test_a_loss_check_is_kept_and_a_job_can_be_stopped() -> None:
    wild = case(groups=4, alpha=50.0)
    assert found(wild).refused == 0
    refused = found(msgspec.structs.replace(wild, check="increase")).refused
    assert refused is not None
    assert refused > 0
    assert play(case(), 0, None, lambda: True) is None


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**31))
def test_no_step_is_longer_than_the_clipping_norm(seed: int) -> None:
    held = case(groups=2, iterations=1, alpha=1.0, spread=1.0, clip=1e-6)
    assert np.allclose(
        scores(found(held, seed)), scores(found(msgspec.structs.replace(held, alpha=1e-9), seed)), atol=1e-3
    )
    assert scores(found(held, seed)) != scores(found(msgspec.structs.replace(held, clip=None), seed))


def test_theorem_1_is_quoted_for_confined_descent_alone() -> None:
    # 16 participants, lambda = 0.1, T = 2,000, delta = 1e-5, a = 1/2: the value in docs/confined.md.
    assert round(case(groups=4, members=4, iterations=2000).claimed_epsilon) == 85
    assert case(most=0.3).claimed_epsilon == case(spread=0.2).claimed_epsilon
    assert found(case()).claimed == case().claimed_epsilon
    assert found(case(method="local")).claimed is None


# The lines of Algorithm 1.


@settings(deadline=None, max_examples=30)
@given(circles=st.integers(1, 6), circle=st.integers(1, 4), fraction=st.floats(0.2, 1), seed=st.integers(0, 2**31))
def test_a_subset_is_drawn_once_for_all_and_is_a_union_of_circles(
    circles: int, circle: int, fraction: float, seed: int
) -> None:
    groups = circles * circle
    if not round(fraction * circles):
        with pytest.raises(msgspec.ValidationError, match="not whole circles"):
            case(groups=groups, circle=circle, fraction=fraction)
        return
    given_case, rng = case(groups=groups, circle=circle, fraction=fraction), np.random.default_rng(seed)
    for _ in range(5):
        mask = draw_subset(given_case, rng)
        assert mask.sum() == given_case.chosen
        assert {int(part.sum()) for part in mask.reshape(circles, circle)} <= {0, circle}


def test_groups_outside_the_subset_do_not_contribute() -> None:
    """With a loss check that nobody refuses by, the subset is all that a fraction changes."""
    whole, half = found(case(groups=4, iterations=3)), found(case(groups=4, iterations=3, fraction=0.5))
    assert scores(whole) != scores(half)
    assert half.corollary == pytest.approx((half.claimed or 0) / 2)
    assert whole.corollary is UNSET


def test_every_group_starts_at_its_own_lambda() -> None:
    lambdas = (0.0, 0.05, 0.2)
    given_case = case(groups=3, rows=201, lambdas=lambdas)
    descent = begin(given_case, load_rows(given_case, None), 0).descent
    for name, scale in zip(descent.participants, lambdas, strict=True):
        assert np.std(descent.confined(name)[0]) == pytest.approx(scale, rel=0.1)
    assert given_case.claimed_epsilon == pytest.approx(case(groups=3, spread=sum(lambdas) / 3).claimed_epsilon)


def test_noise_gives_an_epsilon_for_one_example_and_changes_the_step() -> None:
    noisy = case(groups=4, members=2, clip=1.0, sigma=0.5, fraction=0.5, circle=2)
    expected = sound_epsilon(0.5, 10, 1e-5, honest=2, norm=1.0, blocks=3)
    assert found(noisy).example_epsilon == noisy.example_epsilon == pytest.approx(expected)
    quiet = msgspec.structs.replace(noisy, sigma=0.0)
    assert quiet.example_epsilon is None
    assert found(quiet).example_epsilon is UNSET
    assert found(noisy).curve[-1].loss > found(quiet).curve[-1].loss


def test_a_threshold_lets_groups_take_steps_that_harm_them_a_little() -> None:
    strict = case(groups=4, alpha=20.0, check="increase", iterations=20)
    refused = [found(msgspec.structs.replace(strict, threshold=threshold)).refused for threshold in (0.0, 1.0, 1e9)]
    assert refused[0] is not None
    assert refused[0] > (refused[1] or 0) >= (refused[2] or 0) == 0


def test_settings_are_chosen_on_separate_examples() -> None:
    given_case = case(groups=4, choose={"alpha": [1e-6, 1.0], "threshold": [0.0, 0.1]}, iterations=30, check="increase")
    rows = load_rows(given_case, None)
    tried = try_settings(given_case, rows, 0, lambda: False)
    assert tried is not None
    assert len(tried) == 4
    others = msgspec.structs.replace(rows, test_x=rows.test_x[::-1], test_y=rows.test_y)
    assert try_settings(given_case, others, 0, lambda: False) == tried
    finding = found(given_case)
    assert isinstance(finding.chosen, dict)
    assert finding.chosen["alpha"] == 1.0
    plain = msgspec.structs.replace(given_case, choose={}, **finding.chosen)
    assert scores(found(plain)) == scores(finding)
    assert play(given_case, 0, None, lambda: True) is None
    with pytest.raises(ConfigError, match="leave none or all"):
        try_settings(msgspec.structs.replace(given_case, validation=0.0), rows, 0, lambda: False)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"lambdas": [0.1]}, "1 numbers for 4 groups"),
        ({"circle": 3}, "not whole circles of 3"),
        ({"fraction": 0.0}, "not whole circles"),
        ({"sigma": 0.1}, "needs clip"),
        ({"choose": {"clip": [1.0]}}, "choose can try alpha and threshold, not clip"),
    ],
)
def test_impossible_cases_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=complaint):
        case(groups=4, **wrong)


# Packet drops.


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(1, 8))
def test_windows_are_counted_one_by_one(flags: list[bool], length: int) -> None:
    expected = sum(all(flags[first : first + length]) for first in range(len(flags) - length + 1))
    assert count_windows(np.array(flags), length) == expected


def test_random_subsets_miss_as_often_as_eq_44_has_it_and_circles_do_not() -> None:
    random = DropCase(participants=30, malicious=0.2, subset=0.2, bound=10, draws=400_000)
    assert count_misses(random, 0) == pytest.approx(random.eq_44, rel=0.1)
    apart = msgspec.structs.replace(random, circle=2)
    assert count_misses(apart, 0) > 1.1 * apart.eq_44  # fewer, larger units: more of them have a malicious member
    table = drop_table([random, apart], 0)
    assert [row[1] for row in table.rows] == ["random", "circles of 2"]
    with pytest.raises(ValueError, match="whole circles"):
        DropCase(participants=30, malicious=0.2, subset=0.2, bound=10, circle=4)


def test_a_run_reports_late_gradients_and_victims_of_packet_drops(tmp_path: Path) -> None:
    experiment = table()
    drops = {"training.algorithm": "confined", "faults.victims": ["client-1"], "rounds": 3, "cohort.size": 4}
    row = LearnerRow(name="drops", by="run", settings={**drops, "cohort.privacy": 2, "confined.late_bound": 1})
    experiment = msgspec.structs.replace(experiment, rows=(row,), tables=experiment.tables[:1], growth=False)
    record = experiment.measure(Job("few", "drops", 0), 0, JobContext(tmp_path, None, lambda: False))
    assert record is not None
    assert record["victim_sums"] == 0.0
    assert 0 < record["other_sums"] <= 1
    assert record["curve"][-1]["victims"] < record["curve"][-1]["score"]
    assert record["late"] == 0
    written = write_findings(experiment.findings({Job("few", "drops", 0): record}))
    assert "| victim in sums |" in written
    assert "*Victims*" in written


# The deviation of the loss.


def test_trials_that_did_not_record_the_deviation_of_the_loss_say_so() -> None:
    experiment = table()
    old = [outcome("CGD", 0.90, 0.91)]
    assert "loss spread" not in write_findings(experiment.report_again({"outcomes": msgspec.to_builtins(old)}))
    about_it = msgspec.structs.replace(experiment, fairness=True)
    assert "| not recorded |" in write_findings(about_it.report_again({"outcomes": msgspec.to_builtins(old)}))
    kept = msgspec.to_builtins(old)[0]["findings"][0]
    assert "loss_spread" not in kept["curve"][0]  # results that are committed stay as they are
    assert not {"corollary", "example_epsilon", "chosen", "late"} & set(kept)
    claim = LearnerClaim(says="so", table="few", row="CGD", measure="loss_spread", most=0.5)
    last = msgspec.structs.replace(old[0].findings[0].curve[0], loss_spread=0.25)
    new = msgspec.structs.replace(
        old[0], findings=tuple(msgspec.structs.replace(one, curve=(last,)) for one in old[0].findings)
    )
    judged = msgspec.structs.replace(experiment, claims=(claim,)).report_again({"outcomes": msgspec.to_builtins([new])})
    assert judged.numbers["claims"][0]["statistic"] == "0.25 to 0.25, 2 trials"
    assert "| 0.25 ± 0 |" in write_findings(judged)


def test_rows_are_dealt_evenly_or_refused() -> None:
    assert len(load_rows(case(groups=7, rows=100), None).y) == 98
    for wrong in (case(rows=10**6), case(groups=300, rows=200)):
        with pytest.raises(ConfigError, match="training examples"):
            load_rows(wrong, None)
    with pytest.raises(ConfigError, match="no labels"):
        load_rows(case(data="energy"), None)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_tables_can_be_run_and_are_about_their_own_rows(name: str) -> None:
    declaration = read_declaration(declared()[name])
    assert {QUICK, FULL} <= set(declaration.sizes)
    full = table(declaration, FULL)
    names, rows = {one.name for one in full.tables}, {row.name for row in full.rows}
    for printed in (full.paper, full.paper_spread):
        assert set(printed) <= rows
        assert all(set(values) <= names for values in printed.values())
    names |= {one.name for size in declaration.sizes for one in table(declaration, size).tables}
    for claim in full.claims:
        assert claim.table in names
        assert {claim.row, claim.against} <= {*rows, "", DISPLACEMENT}
    for size in declaration.sizes:
        experiment = table(declaration, size)
        for job in experiment.jobs(1):
            if experiment.row(job).by == "grid":
                assert experiment.case(job).step_size(1) > 0
            else:
                config = experiment.config(job, 0, None)
                assert config is not None
                assert config.rounds > 0


def test_tables_are_written_and_can_be_rewritten(tmp_path: Path) -> None:
    run = Run("small", SMALL, tmp_path)
    report, text = checked_report(run)
    assert "12.34" in text
    assert [claim["judgement"] for claim in report.numbers["claims"]] == [Judgement.OPEN]  # by two trials
    assert "80 participants" in report.headlines[-1]
    assert {drawing.file for drawing in report.drawings} == {"learning.png", "participants.png", "growth.png"}
    outcomes = {(one["table"], one["row"]): one for one in report.numbers["outcomes"]}
    assert set(outcomes) == {("few", "CGD"), ("few", "local"), ("few", "FedAvg"), ("many", "CGD"), ("many", "local")}
    assert outcomes["few", "FedAvg"]["findings"][0]["curve"][-1]["displacement"] is not None


def outcome(row: str, *values: float, iterations: int = 100, displacement: float | None = None) -> RowTrials:
    findings = tuple(
        Finding(
            curve=(
                Evaluation(iteration=iterations, score=value, loss=1.0, spread=0.01 * value, displacement=displacement),
            ),
            iterations=iterations,
            participants=4,
            rows=10,
            seconds=0.1,
        )
        for value in values
    )
    return RowTrials(table="few", row=row, trials=tuple(range(len(values))), findings=findings)


@pytest.mark.parametrize(
    ("changes", "iterations", "expected"),
    [
        ({"against": "local", "least": 0.0}, 100, Judgement.HOLDS),
        ({"against": "local", "most": 0.0}, 100, Judgement.FAILS),
        ({"against": "local", "least": 20.0}, 100, Judgement.OPEN),
        ({"against": "local", "least": 0.0}, 10, Judgement.OPEN),
        ({"against": "local", "most": 0.0}, 10, Judgement.OPEN),
        ({"against": "local", "least": 0.0, "ours": True}, 10, Judgement.HOLDS),
        ({"against": DISPLACEMENT, "least": 2.0}, 100, Judgement.FAILS),
        ({"least": 80.0}, 100, Judgement.HOLDS),
        ({"measure": "spread", "most": 0.5}, 100, Judgement.FAILS),
    ],
)
def test_claims_are_judged_in_points_over_the_same_seeds(
    changes: dict[str, Any], iterations: int, expected: Judgement
) -> None:
    claim = LearnerClaim(says="so", table="few", row="CGD", **changes)
    experiment = msgspec.structs.replace(table(), claims=(claim,), paper_iterations=100)
    rows = [
        outcome("CGD", 0.90, 0.91, 0.92, iterations=iterations, displacement=0.95),
        outcome("local", 0.70, 0.71, 0.73, iterations=iterations),
    ]
    (judged,) = learner_claims(experiment, rows)
    assert judged.judgement is expected
    assert not list(learner_claims(experiment, rows[1:]))


@pytest.mark.parametrize(
    ("paper", "missing"),
    [
        ({"paper_examples": {"few": 11}}, "10 of 11 examples"),
        ({"paper_participants": {"few": 5}}, "4 of 5 participants"),
        ({"paper_iterations": 101}, "100 of 101 iterations"),
    ],
)
def test_a_smaller_experiment_judges_no_claim(paper: dict[str, Any], missing: str) -> None:
    claim = LearnerClaim(says="so", table="few", row="CGD", least=80.0)
    experiment = msgspec.structs.replace(table(), claims=(claim,), paper_iterations=100)
    rows = [outcome("CGD", 0.90, 0.91, 0.92, iterations=100)]
    (judged,) = learner_claims(experiment, rows)
    assert judged.judgement is Judgement.HOLDS
    (judged,) = learner_claims(msgspec.structs.replace(experiment, **paper), rows)
    assert judged.judgement is Judgement.OPEN
    assert judged.statistic.endswith(missing)


def test_a_table_may_have_its_own_rows_and_names_what_it_reduces() -> None:
    experiment = table()
    own = LearnerRow(name="FedAvg", by="grid", settings={"method": "local"})
    few = msgspec.structs.replace(experiment.tables[0], rows=(own,), fewer="2 of 9 examples")
    experiment = msgspec.structs.replace(experiment, tables=(few, experiment.tables[1]))
    assert experiment.row(Job("few", "FedAvg", 0)) is own
    assert experiment.case(Job("few", "FedAvg", 0)).method == "local"
    assert experiment.row(Job("many", "FedAvg", 0)).by == "run"
    (judged,) = learner_claims(experiment, [outcome("CGD", 0.90, 0.91), outcome("local", 0.70, 0.71)])
    assert judged.statistic == "+20.00 to +20.00 points, 2 trials, 2 of 9 examples"


@pytest.mark.parametrize(
    ("rows", "figures"),
    [
        ([{"spread": 0.1}, {"spread": 0.01, "most": 0.1}], {"lambda.png", "learning.png", "participants.png"}),
        ([{}, {"mu": 0.0, "constant": 4}, {"mu": 0.5, "constant": 4}], {"steps.png"}),
        ([{"method": "local"}, {"check": "increase"}], {"learning.png", "participants.png"}),
    ],
)
def test_the_figure_shows_the_setting_that_rows_differ_in(
    rows: list[dict[str, Any]], figures: set[str], tmp_path: Path
) -> None:
    experiment = table()
    experiment = msgspec.structs.replace(
        experiment,
        growth=False,
        tables=experiment.tables[:1],
        rows=tuple(LearnerRow(name=str(number), by="grid", settings=each) for number, each in enumerate(rows)),
    )
    context = JobContext(tmp_path, None, lambda: False)
    found = {job: experiment.measure(job, 0, context) for job in experiment.jobs(2)}
    report = experiment.findings({job: record for job, record in found.items() if record})
    assert {drawing.file for drawing in report.drawings} == figures
    for drawing in report.drawings:
        drawing.draw(tmp_path / drawing.file)
        assert (tmp_path / drawing.file).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("most", "expected"), [(0.41, Judgement.FAILS), (85.0, Judgement.HOLDS)])
@pytest.mark.parametrize("sound", [None, 2.5])
def test_a_printed_epsilon_is_judged_by_the_theorem_and_drawn_beside_one_that_holds(
    most: float, expected: Judgement, sound: float | None, tmp_path: Path
) -> None:
    """The theorem's value is for the paper's participants and iterations, whatever was run."""
    claim = LearnerClaim(says="so", table="few", row="CGD", measure="epsilon", most=most)
    experiment = msgspec.structs.replace(
        table(),
        claims=(claim,),
        paper_epsilon={"CGD": {"few": 0.54}},
        paper_iterations=2000,
        paper_participants={"few": 16},
        growth=False,
    )
    row = outcome("CGD", 0.90, 0.91)
    findings = [msgspec.structs.replace(finding, epsilon=sound, claimed=99.0) for finding in row.findings]
    row = msgspec.structs.replace(row, findings=tuple(findings))
    (judged,) = learner_claims(experiment, [row])
    written = "84.8 by that theorem with a = 1/2 for 16 participants and 2,000 iterations; it is not sound"
    assert (judged.judgement, judged.statistic) == (expected, written)
    report = experiment.report_again({"outcomes": msgspec.to_builtins([row])})
    assert "| paper's epsilon |" in write_findings(report)
    assert "| 0.54 |" in write_findings(report)
    assert {drawing.file for drawing in report.drawings} == ({"epsilon.png"} if sound else set())
    for drawing in report.drawings:
        drawing.draw(tmp_path / drawing.file)
        assert (tmp_path / drawing.file).read_bytes().startswith(b"\x89PNG")


def test_squared_errors_are_not_shown_as_percentages() -> None:
    experiment = table()
    claim = LearnerClaim(says="so", table="few", row="CGD", against="local", most=0.0)
    few = msgspec.structs.replace(experiment.tables[0], squared_error=True)
    experiment = msgspec.structs.replace(experiment, tables=(few,), claims=(claim,))
    rows = [outcome("CGD", 0.02, 0.03, 0.025), outcome("local", 0.12, 0.14, 0.13)]
    report = experiment.report_again({"outcomes": msgspec.to_builtins(rows)})
    (summary,) = report.numbers["claims"]
    assert summary.items() >= {"statistic": "-0.12 to -0.093, 3 trials", "judgement": "holds"}.items()
    assert "| CGD | 12.34 | 0.025 ± 0.005 |" in write_findings(report)
