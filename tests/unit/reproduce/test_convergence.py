"""Ridge regression with each policy: the bound of Theorem 2 holds, and similar clients in circles scatter more."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.jobs import CONTEXT, experiment_of

from coterie.cohorts.circles import Circles, circle_sizes
from coterie.cohorts.policies import MultiRound, Random
from coterie.cohorts.theory import selection_variance
from coterie.errors import ConfigError
from coterie.planning.convergence import convergence_bound
from coterie.reports.findings import Judgement
from coterie.reproduce.convergence.experiment import Convergence
from coterie.reproduce.convergence.outcomes import Participation
from coterie.reproduce.convergence.ridge import Ridge, RidgeSettings, descend
from coterie.reproduce.convergence.settings import Scheme
from coterie.reproduce.declarations import FULL, QUICK, declared, read_declaration
from coterie.reproduce.experiment import Job

SMALL = RidgeSettings(
    clients=24,
    features=3,
    examples=8,
    group=4,
    differences=0.5,
    noise=0.5,
    least=0.9,
    most=1.9,
    penalty=0.1,
)


def draw(seed: int = 0) -> Ridge:
    return Ridge.draw(SMALL, np.random.default_rng(seed))


def shipped() -> Convergence:
    return experiment_of(Convergence, "multi-round-convergence", QUICK)


@given(st.integers(0, 2**32))
def test_the_constants_are_those_of_the_problem(seed: int) -> None:
    """Curvatures are what was asked for, the optimum has no gradient, and no client does better than by itself."""
    problem = draw(seed)
    constants = problem.constants(2)
    assert constants.convexity == pytest.approx(SMALL.least + SMALL.penalty)
    assert constants.smoothness == pytest.approx(SMALL.most + SMALL.penalty)
    slope = np.einsum("nid,ni->nd", problem.inputs, problem.inputs @ problem.best - problem.targets) / SMALL.examples
    assert np.abs((slope + problem.penalty * problem.best).mean(axis=0)).max() < 1e-9
    assert constants.heterogeneity >= 0
    nearby = problem.best + np.random.default_rng(seed).normal(size=SMALL.features)
    assert problem.losses(nearby).mean() > problem.losses(problem.best).mean()


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4]), st.integers(1, 3))
def test_the_corrected_bound_holds(seed: int, privacy: int, steps: int) -> None:
    """It bounds a mean over runs, and is checked on single runs: it is far above them."""
    problem, rng = draw(seed), np.random.default_rng(seed)
    circles = Circles.cut(np.arange(24), circle_sizes(24, privacy))
    policy = MultiRound(circles, 8, "uniform")
    rounds = [5, 20, 60]
    found = descend(problem, policy, 0.0, steps, 4, rounds, rng)
    constants = problem.constants(steps, found.noise, found.gradient)
    variance = selection_variance(24 // privacy, 8 // privacy)
    for number, excess in zip(rounds, found.excess, strict=True):
        assert excess <= convergence_bound(constants, variance, 1.0, number)


def test_circles_of_similar_clients_scatter_more_than_single_ones() -> None:
    """More than the printed variance, and less than the corrected one; for single clients both are exact."""
    problem, rounds = draw(), [400]
    alike = MultiRound(Circles.cut(np.arange(24), circle_sizes(24, 4)), 8, "uniform")
    single, circles = (
        descend(problem, policy, 0.0, 1, 8, rounds, np.random.default_rng(1)).variance for policy in (Random(8), alike)
    )
    assert single == pytest.approx(selection_variance(24, 8), rel=0.15)
    assert 2 * selection_variance(24, 8) < circles < selection_variance(6, 2)


def test_gradients_are_measured_over_batches() -> None:
    """Whole-batch noise shrinks with the batch, and skipped rounds change nothing."""
    problem = draw()
    noises = [descend(problem, Random(8), 0.0, 1, batch, [1], np.random.default_rng(0)).noise for batch in (1, 4)]
    assert noises[0] == pytest.approx(4 * noises[1])
    skipped = descend(problem, Random(8), 1.0, 1, 4, [3], np.random.default_rng(0))
    assert skipped.played == 0
    assert skipped.excess == [pytest.approx(float((problem.losses(np.zeros(3)) - problem.losses(problem.best)).mean()))]


def test_the_report_prints_bounds_beside_losses() -> None:
    declaration = read_declaration(declared()["multi-round-convergence"])
    changes = {"rounds": [5, 20], "schemes": declaration.settings["schemes"][:1] + declaration.settings["schemes"][-2:]}
    ranks = [{"population": 12, "probability": 0.3, "matrices": 20}]
    small = msgspec.structs.replace(declaration, settings={**declaration.settings, **changes, "ranks": ranks})
    experiment = small.experiment(FULL)
    records = {job: experiment.measure(job, 0, CONTEXT) for job in experiment.jobs(3)}
    found = experiment.findings({job: record for job, record in records.items() if record is not None})
    claims = {claim.says: claim for claim in found.claims}
    for name in ("random", "T=6, alike", "T=12, alike"):
        assert claims[f"Theorem 2, {name}: the loss stays below the corrected bound"].judgement is Judgement.HOLDS
    too_small = claims["Theorem 2, T=12, alike: the variance of selection is at most 0.076, as printed, to 10%"]
    assert too_small.judgement is Judgement.FAILS
    assert not too_small.ours
    assert found.tables[-1].rows[0][0] == "N=12, t=0.3"
    assert experiment.report_again(found.numbers).claims == found.claims


def test_contradictory_settings_are_refused() -> None:
    experiment = shipped()
    for wrong, words in (
        ({"baseline": "nobody"}, "no scheme"),
        ({"rounds": (10, 5)}, "must ascend"),
        ({"schemes": (Scheme(name="random", privacy=50),)}, "cohort"),
        ({"ridge": replace(experiment.ridge, examples=2)}, "examples"),
    ):
        with pytest.raises(ConfigError, match=words):
            msgspec.structs.replace(experiment, **wrong).check()


def test_full_rank_is_counted() -> None:
    experiment = msgspec.structs.replace(
        shipped(), ranks=(Participation(population=20, probability=0.4, matrices=50),), schemes=()
    )
    (case,) = experiment.cases()
    record = experiment.measure(Job(*case, 0), 0, CONTEXT)
    assert record is not None
    assert 45 <= record["full"] <= 50
