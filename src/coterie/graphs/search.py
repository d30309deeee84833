"""Search for a graph and a threshold that meet a threat model, with proven failure bounds.

:mod:`coterie.graphs.failures` defines and proves the bounds.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace

from coterie.errors import ConfigError
from coterie.graphs.failures import Law, RandomLaw, RegularLaw, ThreatModel
from coterie.graphs.guarantees import (
    majority_threshold,
    paper_parameters,
    privacy_bound_log2,
    reliability_bound_log2,
)
from coterie.graphs.topology import Complete, ErdosRenyi, Harary, Topology

_PROBABILITY_STEPS = 10**6
"""Connection probabilities are searched in steps of one millionth."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A topology and a threshold with the bounds proven for them.

    The failure bounds are base-2 logarithms of probabilities: ``-inf`` means impossible, 0.0 means no guarantee.
    ``degree`` is the number of neighbours of a client; for a random graph, its expectation.
    """

    topology: Topology
    threshold: int
    degree: float
    privacy_failure_log2: float
    reliability_failure_log2: float


def search_complete(model: ThreatModel) -> Guarantee:
    """Return a threshold for the complete graph (Bonawitz et al. 2017).

    Nothing is random there. Every ``t`` from ``c + 1`` to ``n - d`` makes both failures impossible, against an active
    server if ``2 d + c < n``: a quorum must be left to sign. :func:`search_harary` says which of them is taken. Where
    clients drop out independently, chance alone decides whether enough of them are left.
    """
    law = RegularLaw(model, Complete())
    window = law.window()
    if not window and model.independent:
        raise ConfigError(
            f"no graph of {model.clients} clients keeps failed sessions below 2^-{model.reliability_bits:g} if each "
            f"drops out with probability {model.dropout:g}; take more clients, or lower the dropout or the target"
        )
    if not window:
        raise ConfigError(
            "no quorum withstands an active server unless 2 * dropped + colluding < clients, and "
            f"2 * {model.dropped} + {model.colluding} is not below {model.clients}; lower the dropout or the collusion"
        )
    return _choose(law, window)


def search_harary(model: ThreatModel) -> Guarantee:
    """Return the smallest even degree of a Harary graph that meets the targets (Bell et al. 2020).

    For a given degree, larger thresholds improve privacy and smaller ones reliability, so those that meet both targets
    form an interval. The one nearest to a majority of the shares is chosen. Below it, holders that were given two
    different survivor sets could reveal both secrets of a client; above it, each further share only reduces the number
    of dropouts that a session tolerates. A threshold is never below 2.

    If only ``degree >= clients - 1`` meets the targets, the result is equivalent to the complete graph.
    """
    complete = search_complete(model)
    for degree in range(2, model.clients - 1, 2):
        law = RegularLaw(model, Harary(degree))
        if window := law.window():
            return _choose(law, window)
    return replace(complete, topology=Harary(2 * (model.clients // 2)))


def search_erdos_renyi(model: ThreatModel) -> Guarantee:
    """Return the smallest connection probability of an Erdős–Rényi graph that meets the targets.

    For a fixed threshold ``t``, reliability and connectivity only improve with ``p``. Bisection finds the least
    ``p(t)`` that suffices for them, which grows with ``t``. So does the distance, in standard deviations, between the
    ``p c`` colluding neighbours of a client and ``t``. The least ``t`` that is also private at ``p(t)`` gives the least
    ``p``. The threshold is then chosen as in :func:`search_harary`. Reliability uses exact binomial tails, which are 10
    to 20 times smaller than Theorem 5 of CCESA at its own parameters.
    """
    complete = search_complete(model)  # with p = 1 there is a solution if and only if there is one here
    steps = range(1, _PROBABILITY_STEPS + 1)

    def sparsest(threshold: int) -> RandomLaw:
        def suffices(step: int) -> bool:
            law = RandomLaw(model, ErdosRenyi(step / _PROBABILITY_STEPS))
            return law.connected and law.reliable(threshold)

        step = steps[bisect_left(steps, True, key=suffices)]
        return RandomLaw(model, ErdosRenyi(step / _PROBABILITY_STEPS))

    # Where clients drop out independently, the union bound over them leaves fewer thresholds than the complete graph.
    densest, thresholds = RandomLaw(model, ErdosRenyi(1.0)), model.thresholds
    thresholds = thresholds[: bisect_left(thresholds, True, key=lambda t: not densest.reliable(t))]
    place = bisect_left(thresholds, True, key=lambda t: sparsest(t).private(t))
    if place == len(thresholds):
        return replace(complete, topology=densest.topology)
    law = sparsest(thresholds[place])
    return _choose(law, law.window())


def ccesa_rule(model: ThreatModel) -> tuple[Guarantee, str]:
    """Return the parameters of Choi et al. (2020) with failure bounds, and a sentence about both.

    The rule is for clients that do not collude, and for an honest-but-curious server. The bounds are those of
    Theorems 5 and 6, or those of the complete graph if the rule gives no sparse one.
    """
    rule = paper_parameters(model.clients, model.dropout)
    if rule.complete:
        return make_guarantee(RegularLaw(model, Complete()), rule.threshold), (
            f"CCESA's rule gives p* = {rule.connection_probability:.4f}, which is 1 or more: with "
            f"{model.clients} clients and this dropout it allows no sparse graph. The complete graph is used."
        )
    probability = rule.connection_probability
    found = Guarantee(
        ErdosRenyi(probability),
        rule.threshold,
        probability * (model.clients - 1),
        privacy_bound_log2(model.clients, probability, model.dropout),
        reliability_bound_log2(model.clients, probability, model.dropout, rule.threshold),
    )
    return found, (
        "Parameters by CCESA's rule (Remarks 1 and 4), bounds by its Theorems 5 and 6; no client colludes there."
    )


def _choose(law: Law, window: range) -> Guarantee:
    majority = majority_threshold(round(law.degree) + 1)
    return make_guarantee(law, min(max(majority, window[0]), window[-1]))


def make_guarantee(law: Law, threshold: int) -> Guarantee:
    """Return the bounds that a failure law gives for a threshold."""
    return Guarantee(law.topology, threshold, law.degree, law.privacy(threshold), law.reliability(threshold))
