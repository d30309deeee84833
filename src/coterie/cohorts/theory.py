"""The cost of a choice of T, computed before the first round.

Everything follows from one distribution: the number M of circles that are complete in a round. A round is skipped if
M < k; otherwise k of the M complete circles are chosen uniformly. Theorem 1 of So et al. 2023 covers N/T equal circles
and one dropout probability, where M is binomial. Here circles and dropout probabilities may differ, so M is
Poisson-binomial.

Two terms are kept apart. A client is **absent** if it is unavailable when a round begins: its circle is not selected.
A client is **lost** if it drops out in the round, after it was selected: its circle is left out of the sum. The
paper's dropout is absence.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coterie.cohorts.circles import Circles, Indices, Reals, circle_sizes, circles_per_round
from coterie.cohorts.counted_sums import Needs, sum_chances
from coterie.errors import ConfigError
from coterie.graphs.tails import log_binomial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KEPT_SHARE = 0.95
"""A recommended T aggregates at least this share of the clients that the best T aggregates."""
USEFUL_SHARE = 0.5
"""No T is recommended unless one aggregates this share of the cohort on average."""
LEAST_HONEST = 2
"""A recommended T leaves at least this many honest members in every circle: a single one would not be hidden."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """Long-run metrics of uniform selection over one partition.

    ``rates`` holds each circle's probability of being selected in a round. Losses in the round are not considered:
    ``cardinality`` is the average number of clients selected.
    """

    rates: Reals
    cardinality: float
    fairness_gap: float
    skipped: float


@dataclass(frozen=True)
class TradeOff:
    """The benefits and costs of one value of T: one row of the plan.

    A cohort has ``chosen`` of the ``circles``. ``selected`` circles are selected: more than ``chosen`` if
    over-selection compensates for loss in the round. Sessions have from ``fewest_clients`` to ``most_clients``.
    ``family`` is the number of different cohorts of ``chosen`` circles. ``cardinality`` is C, the average number of
    clients selected in a round. ``skipped`` is the share of rounds without enough complete circles; they count as 0 in
    C. ``aggregated`` is what loss in the round leaves of C, in rounds that do not end without a result. ``convergence``
    is ``aggregated`` as a share of the cohort K: each round counts for this much in the convergence bound. ``variance``
    is :func:`expected_variance`. ``fairness_gap`` is F under uniform selection. ``over_selection`` is the factor 1/s^T
    that would compensate for the loss. If unequal circles leave fewer than ⌊K/T⌋ in a cohort, ``cohort_needed`` is the
    larger K that would hold ⌊K/T⌋ of them; otherwise it is K.

    ``privacy`` is T. At most ``colluders`` members of a circle collude, so ``honest`` = T - c are left.
    """

    privacy: int
    colluders: int
    honest: int
    circles: int
    chosen: int
    selected: int
    fewest_clients: int
    most_clients: int
    family: int
    cardinality: float
    aggregated: float
    convergence: float
    skipped: float
    fairness_gap: float
    variance: float
    over_selection: float
    cohort_needed: int
    recommended: bool = False

    @property
    def protects(self) -> bool:
        """Whether every circle has enough honest members to hide each of them."""
        return self.honest >= LEAST_HONEST


def selection_rates(availability: Reals, chosen: int, wanted: int | None = None) -> Reals:
    """Return each circle's probability of being selected if k = ``chosen`` complete circles are drawn uniformly.

    If more than k circles are ``wanted``, w, a round with k complete circles selects w of them, or all if there are
    fewer: min(w, m + 1) then replaces the second k below.

    Circle b is complete with probability a_b. It is then one of m + 1 complete circles, where m counts the others, so
    its rate is a_b · E[1{m + 1 >= k} · k / (m + 1)]. The Poisson-binomial m has the characteristic function
    ∏_{c≠b} (1 - a_c + a_c e^{iω}), and its discrete Fourier transform gives the distribution exactly (Hong 2013). The
    expectation is taken before transforming back (Parseval), so each distinct a_b costs one pass. Rounding errors are
    about 1e-13 for 1,000 circles and 1e-11 for 100,000.
    """
    values, inverse, counts = np.unique(availability, return_inverse=True, return_counts=True)
    # An odd number of frequencies avoids ω = π, the only one at which a factor (with a = 1/2) can vanish.
    length = (availability.size + 1) | 1
    roots = np.exp(2j * np.pi * np.arange(length) / length)
    log_all = sum(n * np.log(1.0 - a + a * roots) for a, n in zip(values, counts, strict=True))
    together = np.exp(log_all)
    complete = np.arange(1, length + 1)
    drawn = np.minimum(chosen if wanted is None else wanted, complete)
    weights = np.fft.fft(np.where(complete >= chosen, drawn / complete, 0.0))
    expected = [(together / (1.0 - a + a * roots) @ weights).real / length for a in values]
    rates: Reals = (values * expected)[inverse].clip(0.0, 1.0)
    return rates


def forecast(circles: Circles, cohort: int, absent: float | Reals) -> Forecast:
    """Return C, F and the share of skipped rounds for uniform selection from these circles.

    With N/T circles of T clients and one probability p of being absent this is Theorem 1 of So et al. 2023:
    C = K · (1 - Σ_{i > N/T - K/T} C(N/T, i) q^i (1-q)^{N/T-i}), q = 1 - (1-p)^T, and F = 0. In general
    C = Σ_b |b| r_b and F = max r_b - min r_b with the rates r_b of :func:`selection_rates`.

    Fairness-aware selection skips the same rounds, so with equal circles its C is the same. Its F is lower and has no
    closed form.
    """
    everyone = np.broadcast_to(_probability(absent), (circles.span,))
    return _forecast(circles.sizes, circles.availability(everyone), circles_per_round(circles.sizes, cohort))


def family_size(population: int, cohort: int, privacy: int) -> int:
    """Return the exact number of different cohorts, C(N/T, K/T).

    For N = 120, K = 12, T = 3 it is 91,390; the 91,389 printed in Table 1 of So et al. is a truncated float.
    """
    sizes = circle_sizes(population, privacy)
    return math.comb(sizes.size, circles_per_round(sizes, cohort))


def selection_variance(circles: int, chosen: int) -> float:
    """Return β/(4E²G²) = (D - k) / (k (D - 1)) of the convergence bound, for k of D circles.

    Theorem 2 of So et al. prints (N - K) / (K (N - 1)), the variance of drawing K *individual* clients without
    replacement. But whole circles are drawn. If members of a circle are as similar as the bound must allow, the
    variance is that of drawing k of D circles, (N - K) T / (K (N - T)) for equal ones: 0.474 instead of 0.076 at
    N = 120, K = 12, T = 6.
    """
    return 0.0 if chosen == circles else (circles - chosen) / (chosen * (circles - 1))


def expected_variance(circles: int, selected: int, intact: float) -> float:
    """Return the average :func:`selection_variance` if each selected circle stays complete with probability ``intact``.

    Rounds in which no circle stays complete are left out: they change nothing.
    """
    whole = np.arange(1, selected + 1)
    weights = np.exp(log_binomial(selected, intact, whole))
    variances = [selection_variance(circles, int(number)) for number in whole]
    return float(np.average(variances, weights=weights)) if weights.sum() > 0 else selection_variance(circles, 1)


def intact_share(sizes: Indices, survival: float) -> float:
    """Return the share of the selected clients that circle-aligned unmasking keeps: s^T for circles of T.

    A client that survives the round with probability s = ``survival`` is aggregated only if all other members of its
    circle survive too. Of K selected clients K·s^T are aggregated on average; selecting 1/s^T times as many
    compensates for it.
    """
    return float(np.average(sum_chances(sizes, 1, survival, None), weights=sizes))


def expected_aggregated(
    sizes: Indices, availability: Reals, chosen: int, selected: int, survival: float, needs: Needs | None
) -> float:
    """Return the average number of clients aggregated in a round that selects ``chosen`` to ``selected`` circles.

    Rounds whose sum is too small, or has too few clients left to confirm it, count as 0;
    :func:`~coterie.cohorts.counted_sums.sum_chances` describes the losses considered and its bounds. If over-selection
    leads to more than 16 different numbers of circles, neighbouring numbers share the probability of the smallest.
    """
    numbers = np.unique(np.linspace(chosen, selected, min(16, selected - chosen + 1) if needs else 1).astype(int))
    least = [selection_rates(availability, int(number), selected) for number in numbers]  # by number of circles
    found = 0.0
    for place, number in enumerate(numbers.tolist()):
        rates = least[place] - least[place + 1] if place + 1 < len(least) else least[place]
        found += float((sizes * sum_chances(sizes, number, survival, needs)) @ rates)
    return found


def circles_wanted(sizes: Indices, cohort: int, survival: float) -> int:
    """Return how many circles to select so that a cohort is left after expected losses; all if there are too few.

    With ``survival`` = 1 it is the number of circles in a cohort.
    """
    chosen, intact = circles_per_round(sizes, cohort), intact_share(sizes, survival)
    return math.ceil(chosen / intact) if intact * sizes.size > chosen else int(sizes.size)


def trade_off(
    population: int,
    cohort: int,
    absent: float | Reals,
    *,
    lost: float = 0.0,
    over_select: bool = False,
    colluders: Callable[[int], int] = lambda _: 0,
    playable: Callable[[int], bool] = lambda _: True,
    needs: Needs | None = None,
    levels: Iterable[int] | None = None,
    compose: Callable[[int], Circles] | None = None,
) -> list[TradeOff]:
    """Return one row for each feasible T in ``levels`` (by default 1..K), ascending in T (So et al., Figure 3).

    T is feasible if a circle fits into the cohort. ``absent`` is one probability, or one for each client; in the latter
    case ``compose`` groups the clients for a given T. ``lost`` is the probability that a selected client is lost in the
    round. ``over_select`` selects more circles to compensate, as :class:`~coterie.cohorts.policies.MultiRound` does.
    ``colluders`` returns how many members of a circle of T may collude. ``needs`` returns how many clients a session's
    sum needs, and how many must confirm it; sums with fewer aggregate no client.

    At most one row is recommended. The criterion is the average number of clients aggregated in a round, up to K: the
    recommended T is the largest that aggregates at least :data:`KEPT_SHARE` of what the best T does. Only those T are
    considered that leave :data:`LEAST_HONEST` honest members in every circle, and whose sessions are ``playable`` with
    their number of clients. If even the best does not aggregate :data:`USEFUL_SHARE` of K, none is recommended.
    """
    if not 1 <= cohort <= population:
        raise ConfigError(f"a cohort of {cohort} cannot be drawn from {population} clients")
    if compose is None and np.ndim(absent):
        raise ConfigError("clients that are absent with different probabilities need a way to compose circles")
    if not 0.0 <= lost < 1.0:
        raise ConfigError(f"the probability of being lost in a round lies in [0, 1), not {lost}")
    rows = []
    for privacy in sorted(range(1, cohort + 1) if levels is None else levels):
        sizes = circle_sizes(population, privacy)
        if sizes.max() > cohort:
            continue
        if compose is None:
            availability = (1.0 - _probability(absent)) ** sizes
        else:
            circles = compose(privacy)
            sizes = circles.sizes
            availability = circles.availability(np.broadcast_to(_probability(absent), (circles.span,)))
        rows.append(
            _row(privacy, sizes, availability, cohort, lost, over_select, min(colluders(privacy), privacy), needs)
        )
    able = {
        row.privacy: min(row.aggregated, cohort)
        for row in rows
        if row.protects and playable(row.fewest_clients) and playable(row.most_clients)
    }
    most = max(able.values(), default=0.0)
    enough = [privacy for privacy, aggregated in able.items() if aggregated >= KEPT_SHARE * most]
    best = max(enough, default=None) if most >= USEFUL_SHARE * cohort else None
    return [replace(row, recommended=row.privacy == best) for row in rows]


def _probability(absent: float | Reals) -> Reals:
    checked = np.asarray(absent, dtype=np.float64)
    if not np.all((checked >= 0.0) & (checked <= 1.0)):
        raise ConfigError("absent must be a probability from 0 to 1, or one for each client")
    return checked


def _row(
    privacy: int,
    sizes: Indices,
    availability: Reals,
    cohort: int,
    lost: float,
    over_select: bool,
    colluders: int,
    needs: Needs | None,
) -> TradeOff:
    chosen, survival = circles_per_round(sizes, cohort), 1.0 - lost
    selected = circles_wanted(sizes, cohort, survival) if over_select else chosen
    ahead = _forecast(sizes, availability, chosen, selected)
    aggregated = expected_aggregated(sizes, availability, chosen, selected, survival, needs)
    intact = intact_share(sizes, survival)
    largest = np.sort(sizes)[::-1]
    return TradeOff(
        privacy=privacy,
        colluders=colluders,
        honest=privacy - colluders,
        circles=sizes.size,
        chosen=chosen,
        selected=selected,
        fewest_clients=int(largest[-chosen:].sum()),
        most_clients=int(largest[:selected].sum()),
        family=math.comb(sizes.size, chosen),
        cardinality=ahead.cardinality,
        aggregated=aggregated,
        convergence=aggregated / cohort,
        skipped=ahead.skipped,
        fairness_gap=ahead.fairness_gap,
        variance=expected_variance(sizes.size, selected, intact),
        over_selection=1.0 / max(intact, sys.float_info.min),  # s^T of a large T may underflow
        cohort_needed=max(cohort, int(largest[: cohort // privacy].sum())),
    )


def _forecast(sizes: Indices, availability: Reals, chosen: int, selected: int | None = None) -> Forecast:
    plain = selection_rates(availability, chosen)
    rates = plain if selected in (None, chosen) else selection_rates(availability, chosen, selected)
    return Forecast(
        rates=rates,
        cardinality=float(sizes @ rates),
        fairness_gap=float(np.ptp(rates)),
        # A round that is not skipped selects exactly k circles, so the rates add up to k · P(not skipped).
        skipped=float((1.0 - plain.sum() / chosen).clip(0.0, 1.0)),
    )
