"""Convergence bounds of So et al. 2023 (Multi-RoundSecAgg): what T costs in rounds of training.

*Theorem 2.* All L_i are ρ-smooth and μ-strongly convex, clients take E local steps in a round, and the step sizes are
2 / (μ (γ + j)) in step j. Then

    E[L(x_J)] - L* <= ρ / (γ + (C/K) E J - 1) · (2 (α + β) / μ² + (γ/2) E||x_0 - x*||²),
    α = (1/N) Σ σ_i² + 6 ρ Γ + 8 (E - 1)² G²,   β = 4 E² G² (N - K) / (K (N - 1)),   γ = max(8 ρ/μ, E).

:func:`printed_bound` is this formula. :func:`convergence_bound` corrects three points:

* Γ is L* minus the *mean* of the L_i*; the paper prints their sum.
* β is the variance of drawing K single clients. But whole circles are drawn, so it must be that of drawing k of D
  circles, which is T times as much or a little more: :func:`~coterie.cohorts.theory.selection_variance`.
* The number R of rounds that are not skipped is random. The paper puts its mean (C/K) J into the bound. The bound is
  convex in R, so its mean over R is larger (Jensen).

The bound needs uniform selection, and clients that are all available equally often.

*Theorem 3.* :func:`full_rank_probability`. *Appendix I.* :func:`strongly_convex_rate`, :func:`convex_rate` and
:func:`nonconvex_rate`: orders of growth, whose constants the paper leaves open.

:func:`slowdown` is what ``coterie plan`` uses. The constants of a problem are unknown before the first round, so it
returns a range that holds for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.cohorts.theory import TradeOff, selection_variance
from coterie.errors import ConfigError
from coterie.graphs.tails import log_binomial


@dataclass(frozen=True)
class ConvexProblem:
    """The constants of a strongly convex problem in Theorem 2 of So et al. 2023."""

    smoothness: float
    """ρ: the smoothness; an upper bound on the curvature of every client's loss."""
    convexity: float
    """μ: the strong convexity; a lower bound on the curvature of every client's loss."""
    noise: float
    """(1/N) Σ σ_i²: the variance of stochastic gradients, a mean over clients."""
    gradient: float
    """G²: an upper bound on the mean square of a stochastic gradient."""
    heterogeneity: float
    """Γ: the minimum of the common loss, minus the mean of the clients' own minima."""
    distance: float
    """E||x_0 - x*||²: the squared distance of the first model from the best."""
    steps: int = 1
    """E: the local steps of a client in a round."""

    def __post_init__(self) -> None:
        if not 0 < self.convexity <= self.smoothness < math.inf:
            raise ConfigError(
                f"strong convexity is above 0 and at most the smoothness {self.smoothness:g}, not {self.convexity:g}"
            )
        others = (self.noise, self.gradient, self.heterogeneity, self.distance)
        if self.steps < 1 or not all(0 <= value < math.inf for value in others):
            raise ConfigError(
                f"a problem has at least 1 local step and finite constants that are not negative, not {self}"
            )

    @property
    def offset(self) -> float:
        """γ = max(8 ρ/μ, E): the offset of the step number in the step sizes."""
        return max(8 * self.smoothness / self.convexity, float(self.steps))

    @property
    def drift(self) -> float:
        """α: the part of the bound that does not depend on the selection."""
        return self.noise + 6 * self.smoothness * self.heterogeneity + 8 * (self.steps - 1) ** 2 * self.gradient

    @property
    def selection_unit(self) -> float:
        """4 E² G²: the unit of β."""
        return 4 * self.steps**2 * self.gradient

    def step_size(self, step: int) -> float:
        """Return the step size that the theorem prescribes for a local step, counted from 0 over all rounds."""
        return 2 / (self.convexity * (self.offset + step))

    def excess(self, variance: float) -> float:
        """Return the second factor of the bound; ``variance`` is β in units of 4 E² G²."""
        noise = self.drift + self.selection_unit * variance
        return 2 * noise / self.convexity**2 + self.offset / 2 * self.distance


def printed_bound(problem: ConvexProblem, population: int, cohort: int, share: float, rounds: int) -> float:
    """Return the bound of Theorem 2 as printed, for single clients; ``share`` is C/K. Γ is taken from the problem."""
    _check(share, rounds)
    played = share * problem.steps * rounds
    variance = selection_variance(population, cohort)
    return problem.smoothness / (problem.offset + played - 1) * problem.excess(variance)


def convergence_bound(problem: ConvexProblem, variance: float, share: float, rounds: int) -> float:
    """Return the corrected bound of Theorem 2.

    ``variance`` is β in units of 4 E² G². Each round is played with probability ``share``, independently, so that the
    number of rounds played is binomial.
    """
    _check(share, rounds)
    played = np.arange(rounds + 1)
    weights = np.exp(log_binomial(rounds, share))
    falling = float(weights @ (1 / (problem.offset + problem.steps * played - 1)) / weights.sum())
    return problem.smoothness * falling * problem.excess(variance)


def _check(share: float, rounds: int) -> None:
    if not 0 <= share <= 1 or rounds < 0:
        raise ConfigError(f"a bound is for at least 0 rounds, a share from 0 to 1 of them played: {rounds}, {share}")


class Slowdown(NamedTuple):
    """The ratio of the rounds that two T need for the same bound: from ``least`` to ``most``."""

    least: float
    most: float


def slowdown(row: TradeOff, base: TradeOff, steps: int = 1, *, confirmed: bool = False) -> Slowdown:
    """Return the rounds that a choice of T needs, relative to ``base``, for the same small bound of Theorem 2.

    The number of rounds is in proportion to (x + β) / s, where s is the share of rounds that are played, β the
    variance of selection, and x all other terms of the bound, in the same units. β differs between two T, and x does
    not. x is unknown before training. The ratio of (x + β) lies between 1 (x is large: noise of gradients and the
    start dominate) and its value at the least x, which is 2 (E - 1)² / E² because of α. More local steps E therefore
    make selection count for less. ``confirmed`` is as in :func:`played_share`.
    """
    if steps < 1:
        raise ConfigError(f"a client takes at least 1 local step in a round, not {steps}")
    played = played_share(row, confirmed=confirmed)
    ratio = played_share(base, confirmed=confirmed) / played if played > 0 else math.inf
    least = 2 * (steps - 1) ** 2 / steps**2
    if row.variance == base.variance:
        noise = 1.0
    else:
        noise = (least + row.variance) / (least + base.variance) if least + base.variance > 0 else math.inf
    return Slowdown(ratio * min(1.0, noise), ratio * max(1.0, noise))


def played_share(row: TradeOff, *, confirmed: bool = False) -> float:
    """Return the share of rounds that change the model: not skipped, and with at least one circle left.

    If sums must be ``confirmed``, as against a malicious server, it is a lower bound: the clients aggregated on
    average, divided by the most that a round has.
    """
    if confirmed:
        return min(1.0, row.aggregated / row.most_clients)
    return (1 - row.skipped) * (1 - (1 - 1 / row.over_selection) ** row.chosen)


def full_rank_probability(population: int, probability: float) -> float:
    """Bound from below the probability that N rounds of i.i.d. participation expose all clients (Theorem 3, eq. (32)).

    Each of the N clients takes part in each of N rounds with probability t, independently. The matrix is of full rank,
    and the server can compute every update, with probability at least

        1 - 2 N (1-t)^N - (1 + o(1)) N (N-1) (t² + (1-t)²)^N.

    The terms are for rows or columns of zeros, and for two equal rows or columns. The o(1), which the paper does not
    specify, is taken as 0, so the number is an estimate for large N: 0.9992 for N = 120 and t = 0.1.
    """
    if population < 1 or not 0 < probability < 1:
        raise ConfigError(
            f"population must be 1 or more and probability between 0 and 1, not {population} and {probability}"
        )
    zeros = 2 * population * (1 - probability) ** population
    twins = population * (population - 1) * (probability**2 + (1 - probability) ** 2) ** population
    return max(0.0, 1 - zeros - twins)


@dataclass(frozen=True)
class RateConstants:
    """The constants of Appendix I (after Karimireddy et al. 2020), for K of N clients in circles of T."""

    population: int
    cohort: int
    privacy: int
    smoothness: float
    """ρ."""
    noise: float
    """σ²: the variance of stochastic gradients."""
    gradient: float
    """G²: with B, a bound on the differences between clients: (1/N) Σ ||∇L_i(x)||² <= G² + B² ||∇L(x)||²."""
    dissimilarity: float = 1.0
    """B², at least 1."""
    distance: float = 1.0
    """D: the distance of the first model from the best."""
    gap: float = 1.0
    """F: the excess loss of the first model over the best."""
    steps: int = 1
    """E: the local steps of a client in a round."""
    server_step: float = 1.0
    """η_g: the server's step size."""

    @property
    def variance(self) -> float:
        """M² = σ² (1 + K/η_g²) + E T (1 - K/N) G².

        The paper prints it without T, for single clients. Drawing k of D circles has the variance (1 - k/D) / k, which
        is T times (1 - K/N) / K.
        """
        drawn = self.privacy * (1 - self.cohort / self.population)
        return self.noise * (1 + self.cohort / self.server_step**2) + self.steps * drawn * self.gradient

    def updates(self, played: float) -> float:
        """Return J E K for this number of played rounds: the local steps of all clients together."""
        return played * self.steps * self.cohort


def strongly_convex_rate(constants: RateConstants, convexity: float, played: float) -> float:
    """Return the order of E[L(x_J)] - L* for μ-strongly convex losses; ``played`` is J, without skipped rounds."""
    one = constants
    late = math.exp(-convexity * played / (16 * (1 + one.dissimilarity) * one.smoothness))
    return (
        one.variance / (convexity * one.updates(played))
        + one.smoothness * one.gradient / (convexity * played) ** 2
        + convexity * one.distance**2 * late
    )


def convex_rate(constants: RateConstants, played: float) -> float:
    """Return the order of E[L(x_J)] - L* for convex losses."""
    one = constants
    second: float = one.distance ** (4 / 3) * (one.smoothness * one.gradient) ** (1 / 3) / (played + 1) ** (2 / 3)
    return (
        math.sqrt(one.variance / one.updates(played)) * one.distance
        + second
        + one.dissimilarity * one.smoothness * one.distance**2 / played
    )


def nonconvex_rate(constants: RateConstants, played: float) -> float:
    """Return the order of the mean squared gradient norm for non-convex losses."""
    one = constants
    second: float = one.gap ** (2 / 3) * (one.smoothness * one.gradient) ** (1 / 3) / (played + 1) ** (2 / 3)
    return (
        one.smoothness * math.sqrt(one.variance * one.gap / one.updates(played))
        + second
        + one.dissimilarity * one.smoothness * one.gap / played
    )
