"""The cost of a choice of T, computed before the first round.

Everything follows from one distribution: the number M of circles that are complete in a round. A round is
skipped when M < k; otherwise k of the M complete circles are chosen uniformly. Theorem 1 of So et al. 2023
treats N/T equal circles and one dropout probability, where M is binomial; here circles and dropout
probabilities may differ, so M is Poisson-binomial.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coterie.cohorts.circles import Circles, Indices, Reals, circle_sizes, circles_per_round
from coterie.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RECOMMENDED_CONVERGENCE = 0.95
"""The share of the cohort, C/K, that a recommended T keeps."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """Long-run metrics of uniform selection over one partition.

    ``rates`` holds, for each circle, the probability of being selected in a round.
    """

    rates: Reals
    cardinality: float
    fairness_gap: float
    skipped: float


@dataclass(frozen=True)
class TradeOff:
    """What one value of T gives and costs: one row of the plan.

    ``privacy`` is T, ``chosen`` of the ``circles`` form a round's cohort, ``family`` is the number of
    different cohorts, ``cardinality`` is C, ``convergence`` is C/K, ``skipped`` is the expected share of
    rounds skipped, ``fairness_gap`` is F under uniform selection, ``variance`` is
    :func:`selection_variance`, ``aggregated`` is what in-round losses leave of C on average, and
    ``over_selection`` is the factor that makes up for them. Where unequal circles leave fewer than ⌊K/T⌋ in
    a cohort, ``cohort_needed`` is the larger K that would hold ⌊K/T⌋ of them; otherwise it is K.
    """

    privacy: int
    circles: int
    chosen: int
    family: int
    cardinality: float
    convergence: float
    skipped: float
    fairness_gap: float
    variance: float
    aggregated: float
    over_selection: float
    cohort_needed: int
    recommended: bool = False


def selection_rates(availability: Reals, chosen: int) -> Reals:
    """Probability that each circle is selected when k = ``chosen`` complete circles are drawn uniformly.

    Circle b is complete with probability a_b, and then it is one of m + 1 complete circles where m counts the
    others, so its rate is a_b · E[1{m + 1 >= k} · k / (m + 1)]. The Poisson-binomial m has the
    characteristic function ∏_{c≠b} (1 - a_c + a_c e^{iω}), and its discrete Fourier transform gives the
    distribution exactly (Hong 2013); the expectation is taken before transforming back (Parseval), so each
    distinct a_b costs one pass. Rounding leaves errors of about 1e-13 for 1,000 circles, 1e-11 for 100,000.
    """
    values, inverse, counts = np.unique(availability, return_inverse=True, return_counts=True)
    # An odd number of frequencies avoids ω = π, the only one at which a factor (with a = 1/2) can vanish.
    length = (availability.size + 1) | 1
    roots = np.exp(2j * np.pi * np.arange(length) / length)
    log_all = sum(n * np.log(1.0 - a + a * roots) for a, n in zip(values, counts, strict=True))
    together = np.exp(log_all)
    complete = np.arange(1, length + 1)
    weights = np.fft.fft(np.where(complete >= chosen, chosen / complete, 0.0))
    expected = [(together / (1.0 - a + a * roots) @ weights).real / length for a in values]
    rates: Reals = (values * expected)[inverse].clip(0.0, 1.0)
    return rates


def forecast(circles: Circles, cohort: int, dropout: float | Reals) -> Forecast:
    """C, F and the share of skipped rounds for uniform selection from these circles.

    With N/T circles of T clients and one dropout probability p this is Theorem 1 of So et al. 2023:
    C = K · (1 - Σ_{i > N/T - K/T} C(N/T, i) q^i (1-q)^{N/T-i}), q = 1 - (1-p)^T, and F = 0. In general
    C = Σ_b |b| r_b and F = max r_b - min r_b with the rates r_b of :func:`selection_rates`.

    Fairness-aware selection skips the same rounds, so with equal circles its C is the same; its F is lower,
    and has no closed form.
    """
    everyone = np.broadcast_to(_probability(dropout), (circles.span,))
    return _forecast(circles.sizes, circles.availability(everyone), cohort)


def family_size(population: int, cohort: int, privacy: int) -> int:
    """Count the different cohorts, C(N/T, K/T), exactly.

    For N = 120, K = 12, T = 3 it is 91,390; the 91,389 printed in Table 1 of So et al. is a truncated float.
    """
    sizes = circle_sizes(population, privacy)
    return math.comb(sizes.size, circles_per_round(sizes, cohort))


def selection_variance(circles: int, chosen: int) -> float:
    """Return β/(4E²G²) = (D - k) / (k (D - 1)) of the convergence bound, for k of D circles.

    Theorem 2 of So et al. prints (N - K) / (K (N - 1)), the variance of drawing K *individual* clients
    without replacement. Whole circles are drawn, and with circle mates as alike as the bound must allow, the
    variance is that of drawing k of D circles, (N - K) T / (K (N - T)) for equal ones: 0.474 instead of
    0.076 at N = 120, K = 12, T = 6.
    """
    return 0.0 if chosen == circles else (circles - chosen) / (chosen * (circles - 1))


def intact_share(sizes: Indices, survival: float) -> float:
    """Share of the selected clients that circle-aligned unmasking keeps, s^T for circles of T.

    A client that survives the round with probability s = ``survival`` is aggregated only if all its circle
    mates survive too. Of K selected clients K·s^T are aggregated on average; selecting 1/s^T times as many
    makes up for it.
    """
    if not 0.0 < survival <= 1.0:
        raise ConfigError(f"the probability of surviving a round lies in (0, 1], not {survival}")
    return float(np.average(survival**sizes, weights=sizes))


def trade_off(
    population: int,
    cohort: int,
    dropout: float | Reals,
    *,
    survival: float = 1.0,
    levels: Iterable[int] | None = None,
    compose: Callable[[int], Circles] | None = None,
) -> list[TradeOff]:
    """One row for each feasible T in ``levels`` (by default 1..K), ascending in T (So et al., Figure 3).

    T is feasible if a circle fits into the cohort. ``dropout`` is one probability, or one for each client; in
    that case ``compose`` says how the clients are grouped for a given T. At most one row is recommended: the
    largest T >= 2 that keeps C/K >= :data:`RECOMMENDED_CONVERGENCE`, because the convergence bound counts
    C/K of a round for each round, while privacy only grows with T. T = 1 protects nobody and is never
    recommended.
    """
    if not 1 <= cohort <= population:
        raise ConfigError(f"a cohort of {cohort} cannot be drawn from {population} clients")
    if compose is None and np.ndim(dropout):
        raise ConfigError("clients with different dropout need a way to compose circles")
    rows = []
    for privacy in sorted(range(1, cohort + 1) if levels is None else levels):
        sizes = circle_sizes(population, privacy)
        if sizes.max() > cohort:
            continue
        if compose is None:
            ahead = _forecast(sizes, (1.0 - _probability(dropout)) ** sizes, cohort)
        else:
            circles = compose(privacy)
            sizes = circles.sizes
            ahead = forecast(circles, cohort, dropout)
        rows.append(_row(privacy, sizes, cohort, ahead, intact_share(sizes, survival)))
    best = max(
        (row.privacy for row in rows if row.privacy > 1 and row.convergence >= RECOMMENDED_CONVERGENCE),
        default=None,
    )
    return [replace(row, recommended=row.privacy == best) for row in rows]


def _probability(dropout: float | Reals) -> Reals:
    checked = np.asarray(dropout, dtype=np.float64)
    if not np.all((checked >= 0.0) & (checked <= 1.0)):
        raise ConfigError("dropout is a probability: it lies between 0 and 1")
    return checked


def _row(privacy: int, sizes: Indices, cohort: int, ahead: Forecast, intact: float) -> TradeOff:
    chosen = circles_per_round(sizes, cohort)
    return TradeOff(
        privacy=privacy,
        circles=sizes.size,
        chosen=chosen,
        family=math.comb(sizes.size, chosen),
        cardinality=ahead.cardinality,
        convergence=ahead.cardinality / cohort,
        skipped=ahead.skipped,
        fairness_gap=ahead.fairness_gap,
        variance=selection_variance(sizes.size, chosen),
        aggregated=ahead.cardinality * intact,
        over_selection=1.0 / intact,
        cohort_needed=max(cohort, int(np.sort(sizes)[::-1][: cohort // privacy].sum())),
    )


def _forecast(sizes: Indices, availability: Reals, cohort: int) -> Forecast:
    chosen = circles_per_round(sizes, cohort)
    rates = selection_rates(availability, chosen)
    return Forecast(
        rates=rates,
        cardinality=float(sizes @ rates),
        fairness_gap=float(np.ptp(rates)),
        # A round that is not skipped selects exactly k circles, so the rates add up to k · P(not skipped).
        skipped=float((1.0 - rates.sum() / chosen).clip(0.0, 1.0)),
    )
