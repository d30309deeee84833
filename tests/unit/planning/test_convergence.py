"""Convergence bounds: the formulas, how they change with T, dropout and rounds, and the range that a plan shows."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cohorts.theory import TradeOff, selection_variance, trade_off
from coterie.errors import ConfigError
from coterie.planning.convergence import (
    ConvexProblem,
    RateConstants,
    convergence_bound,
    convex_rate,
    full_rank_probability,
    nonconvex_rate,
    played_share,
    printed_bound,
    slowdown,
    strongly_convex_rate,
)
from coterie.planning.population import plan_population

PROBLEM = ConvexProblem(
    smoothness=2.0, convexity=1.0, noise=3.0, gradient=20.0, heterogeneity=1.0, distance=4.0, steps=3
)
PLAIN = {"population": 120, "cohort": 12, "smoothness": 2.0, "noise": 1.0, "gradient": 3.0, "steps": 5}
positive = st.floats(0.1, 100.0)


@st.composite
def problems(draw: st.DrawFn) -> ConvexProblem:
    convexity = draw(st.floats(0.1, 10.0))
    return ConvexProblem(
        smoothness=convexity * draw(st.floats(1.0, 50.0)),
        convexity=convexity,
        noise=draw(positive),
        gradient=draw(positive),
        heterogeneity=draw(positive),
        distance=draw(positive),
        steps=draw(st.integers(1, 20)),
    )


def row(privacy: int, absent: float = 0.2, **more: float) -> TradeOff:
    (found,) = trade_off(120, 12, absent, levels=[privacy], **more)  # type: ignore[arg-type]  # one keyword
    return found


def test_the_printed_bound_is_that_of_theorem_2() -> None:
    """Every symbol of Theorem 2 written out."""
    rho, mu, noise, squared_gradient, gamma_gap, distance, local = 2.0, 1.0, 3.0, 20.0, 1.0, 4.0, 3
    alpha = noise + 6 * rho * gamma_gap + 8 * (local - 1) ** 2 * squared_gradient
    beta = 4 * (120 - 12) * local**2 * squared_gradient / (12 * 119)
    gamma = max(8 * rho / mu, local)
    expected = rho / (gamma + 0.5 * local * 100 - 1) * (2 * (alpha + beta) / mu**2 + gamma / 2 * distance)
    assert printed_bound(PROBLEM, 120, 12, 0.5, 100) == pytest.approx(expected)
    assert PROBLEM.step_size(4) == pytest.approx(2 / (mu * (gamma + 4)))


@given(problems(), st.integers(0, 300))
def test_for_single_clients_that_are_always_available_nothing_is_corrected(problem: ConvexProblem, rounds: int) -> None:
    variance = selection_variance(120, 12)
    assert convergence_bound(problem, variance, 1.0, rounds) == pytest.approx(
        printed_bound(problem, 120, 12, 1.0, rounds)
    )


@given(problems(), st.floats(0.0, 1.0), st.integers(0, 300), st.sampled_from([2, 3, 4, 6, 12]))
def test_the_corrected_bound_is_never_below_the_printed_one(
    problem: ConvexProblem, share: float, rounds: int, privacy: int
) -> None:
    """Circles scatter more than single clients, and a convex function of a random number of rounds is larger."""
    variance = selection_variance(120 // privacy, 12 // privacy)
    printed = printed_bound(problem, 120, 12, share, rounds)
    assert convergence_bound(problem, variance, share, rounds) >= printed * (1 - 1e-12)


def test_the_number_of_rounds_played_is_averaged_exactly() -> None:
    """The bound equals a sum over all outcomes of three rounds. It is above the bound at the mean number of rounds."""
    share, factors = 0.3, []
    for outcome in np.ndindex(2, 2, 2):
        chance = math.prod(share if played else 1 - share for played in outcome)
        factors.append(chance * 2.0 / (PROBLEM.offset + PROBLEM.steps * sum(outcome) - 1))
    assert convergence_bound(PROBLEM, 0.2, share, 3) == pytest.approx(sum(factors) * PROBLEM.excess(0.2))
    variance = selection_variance(120, 12)
    assert convergence_bound(PROBLEM, variance, share, 3) > printed_bound(PROBLEM, 120, 12, share, 3)


@given(problems(), st.floats(0.05, 0.95), st.integers(1, 200), st.floats(0.0, 1.0))
def test_more_rounds_and_fewer_skipped_ones_lower_the_bound(
    problem: ConvexProblem, share: float, rounds: int, variance: float
) -> None:
    bound = convergence_bound(problem, variance, share, rounds)
    assert convergence_bound(problem, variance, share, rounds + 1) < bound
    assert convergence_bound(problem, variance, min(1.0, share + 0.05), rounds) < bound
    assert convergence_bound(problem, variance + 0.1, share, rounds) > bound


@pytest.mark.parametrize(
    "wrong", [{"convexity": 3.0}, {"convexity": 0.0}, {"steps": 0}, {"noise": -1.0}, {"distance": math.inf}]
)
def test_impossible_constants_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"convexity|constants"):
        replace(PROBLEM, **wrong)  # type: ignore[arg-type]  # steps are whole


def test_impossible_rounds_are_refused() -> None:
    with pytest.raises(ConfigError, match="share from 0 to 1"):
        convergence_bound(PROBLEM, 0.1, 1.5, 10)
    with pytest.raises(ConfigError, match="at least 1 local step"):
        slowdown(row(6), row(1), 0)
    with pytest.raises(ConfigError, match="probability"):
        full_rank_probability(10, 0.0)


@given(problems(), st.sampled_from([2, 3, 4, 6, 12]), st.floats(0.0, 0.4))
def test_the_slowdown_holds_whatever_the_constants_are(problem: ConvexProblem, privacy: int, absent: float) -> None:
    """Solve the bound for the rounds at which it is small, for T and for single clients: their ratio is in the range.

    For small bounds, rounds are in proportion to excess / share; the number of rounds played is then near its mean.
    """
    circles, single = row(privacy, absent), row(1, absent)
    needed = [problem.excess(one.variance) / (1 - one.skipped) for one in (circles, single)]
    for steps in {1, problem.steps}:
        least, most = slowdown(circles, single, steps)
        assert least * (1 - 1e-9) <= needed[0] / needed[1] <= most * (1 + 1e-9)


def test_the_slowdown_of_the_papers_population_counts_the_variance_of_selection() -> None:
    """The paper's "slows down by C/K" is 2% at T = 6. It leaves out that the variance grows about sixfold."""
    least, most = slowdown(row(6), row(1))
    assert least == pytest.approx(12 / 11.777466, abs=1e-6)
    assert most == pytest.approx(12 / 11.777466 * 0.473684 / 0.075630, rel=1e-4)
    assert slowdown(row(1), row(1)) == (1.0, 1.0)
    assert slowdown(row(6), row(1), 100).most < 1.25  # with many local steps, drift dominates


@given(st.sampled_from([1, 2, 3, 6]), st.floats(0.0, 0.5), st.floats(0.01, 0.3))
def test_rounds_are_played_unless_skipped_or_without_a_whole_circle(privacy: int, absent: float, lost: float) -> None:
    """A round counts unless it is skipped or loses every circle; the lower bound for confirmed sums is below that."""
    found = row(privacy, absent, lost=lost)
    whole = (1 - lost) ** privacy
    expected = (1 - found.skipped) * (1 - (1 - whole) ** found.chosen)
    assert played_share(found) == pytest.approx(expected)
    assert played_share(found, confirmed=True) <= expected * (1 + 1e-9)


def test_a_t_that_is_never_played_needs_infinitely_many_rounds() -> None:
    dead = replace(row(12), skipped=1.0, aggregated=0.0)
    assert slowdown(dead, row(1)).most == math.inf
    everybody = replace(row(1), variance=0.0)
    assert slowdown(row(6), everybody).most == math.inf


def test_the_plan_shows_the_slowdown_of_every_t() -> None:
    plan = plan_population(120, 12, [0.2], simulate_gaps=False)
    factors = {one["privacy"]: one["rounds_factor"] for one in plan.as_dict()["choices"]}
    assert factors[1] == [1.0, 1.0]
    assert factors[6] == pytest.approx(list(slowdown(row(6), row(1))))
    (alone,) = plan_population(120, 12, [0.2], privacy=6, simulate_gaps=False).choices
    assert alone.slowdown == pytest.approx(slowdown(row(6), row(1)))


def test_the_bound_of_theorem_3_is_near_1_for_many_clients_and_0_for_few() -> None:
    assert full_rank_probability(120, 0.1) == pytest.approx(0.9992, abs=5e-5)
    assert full_rank_probability(3, 0.5) == 0.0  # the formula says nothing about few clients


@pytest.mark.parametrize(("population", "probability"), [(25, 0.3), (40, 0.2)])
def test_matrices_of_independent_participation_have_full_rank_as_often_as_stated(
    population: int, probability: float
) -> None:
    rng, tries = np.random.default_rng(0), 1000
    drawn = rng.random((tries, population, population)) < probability
    full = sum(int(np.linalg.matrix_rank(one.astype(float)) == population) for one in drawn)
    least = full_rank_probability(population, probability)
    assert full / tries >= least - 3 * math.sqrt(least * (1 - least) / tries)


@given(st.sampled_from([1, 2, 3, 6, 12]), st.floats(10.0, 1e6))
def test_all_three_rates_fall_with_rounds_and_grow_with_t(privacy: int, played: float) -> None:
    circles, single = (RateConstants(privacy=level, **PLAIN) for level in (privacy, 1))  # type: ignore[arg-type]
    for rate in (lambda one, rounds: strongly_convex_rate(one, 0.5, rounds), convex_rate, nonconvex_rate):
        assert rate(circles, 2 * played) < rate(circles, played)
        assert rate(circles, played) >= rate(single, played)


@pytest.mark.parametrize(
    ("rate", "exponent"),
    [(lambda one, rounds: strongly_convex_rate(one, 0.5, rounds), -1.0), (convex_rate, -0.5), (nonconvex_rate, -0.5)],
)
def test_rates_of_long_runs_fall_as_their_leading_terms(rate: object, exponent: float) -> None:
    """The leading terms: 1/J for strongly convex losses, 1/sqrt(J) for the others."""
    assert callable(rate)
    constants = RateConstants(privacy=6, **PLAIN)  # type: ignore[arg-type]
    slope = math.log(rate(constants, 1e12) / rate(constants, 1e11)) / math.log(10)
    assert slope == pytest.approx(exponent, abs=0.01)


def test_the_variance_of_appendix_i_is_printed_for_single_clients() -> None:
    single = RateConstants(privacy=1, server_step=2.0, **PLAIN)  # type: ignore[arg-type]
    assert single.variance == pytest.approx(1.0 * (1 + 12 / 4) + 5 * (1 - 12 / 120) * 3.0)
    circles = RateConstants(privacy=6, server_step=2.0, **PLAIN)  # type: ignore[arg-type]
    assert circles.variance - 4 == pytest.approx(6 * (single.variance - 4))
