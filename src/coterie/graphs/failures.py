"""Failures on an assignment graph: what can go wrong, and bounds on how likely it is.

The adversary is the server together with at most ``c`` colluding clients; at most ``d`` clients drop out, at any
step of the session. Who they are must not depend on the graph, which is drawn from a seed that nobody can steer.
All probabilities are over the graph alone and therefore hold for every such pair of sets, uniformly random ones
among them. (A server that picks those who drop out *after* it has seen a sparse graph is outside this model; on
the complete graph nothing is random and it gains nothing.)

Three things can go wrong:

* **split**: the honest survivors do not form a connected graph. Removing the masks can then open the sums of
  its parts, not only the total (Choi et al. 2020, Theorem 2). Colluders know their masks, so they join nobody.
* **exposed**: the adversary obtains ``threshold`` shares of both secrets of an honest client. Honest holders give out
  the one kind that the survivor set calls for, of which there is one (a passive server announces one; an active one
  needs a quorum for it), so the other must come from colluding neighbours: ``colluding >= t``.
* **starved**: fewer than ``threshold`` holders of a client's secrets are left (Theorem 1). A client that stays
  holds one of its own shares, so ``t - 1`` neighbours must stay with it; for one that drops out, ``t`` must.
* **lonely**, against an active server: a client is left with at most ``min(c, t - 1)`` neighbours, who may all collude.

Privacy fails if the honest survivors are split or an honest client is exposed. Reliability fails if a client is
starved, or where clients refuse the sum: a client is lonely, all survivors, colluders included, are split, or, against
an active server, fewer than ``q`` survivors are left to sign, ``2 q > n + c``. The bounds are the sums of the
probabilities of these events over all clients (union bound). They are rounded up at every step
(:mod:`coterie.graphs.tails`), so that a printed bound is never below what was proven.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coterie.errors import ConfigError
from coterie.graphs.guarantees import quorum_of
from coterie.graphs.tails import (
    Logs,
    at_least,
    at_most,
    log_binomial,
    log_choose_ratio,
    log_cuts,
    log_hypergeometric,
    log_sum,
    rounded_up,
    to_log2,
)
from coterie.graphs.topology import Complete, ErdosRenyi, Harary, Topology, edge_probability

FEWEST_CLIENTS = 3
"""Of two clients, each can tell the other's input from the sum."""


@dataclass(frozen=True, slots=True)
class ThreatModel:
    """What a session must withstand, and how rarely it may fail.

    At most ``floor(dropout * clients)`` clients drop out of the session and at most
    ``floor(collusion * clients)`` collude with the server; privacy may fail with probability
    ``2^-privacy_bits``, reliability with ``2^-reliability_bits``. ``active`` means a server that deviates from
    the protocol. Where whole circles are aggregated or not at all, a client that drops out takes its circle with it.
    """

    clients: int
    dropout: float
    collusion: float = 0.0
    privacy_bits: float = 40.0
    reliability_bits: float = 20.0
    active: bool = False

    def __post_init__(self) -> None:
        if self.clients < FEWEST_CLIENTS:
            raise ConfigError(f"at least {FEWEST_CLIENTS} clients are needed, not {self.clients}")
        for name in ("dropout", "collusion"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is a fraction in [0, 1), not {getattr(self, name)}")
        for name in ("privacy_bits", "reliability_bits"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is a finite number of bits, at least 0, not {getattr(self, name)}")
        if self.honest_survivors < 2:
            raise ConfigError(
                f"of {self.clients} clients, {self.dropped} dropping out and {self.colluding} colluding leave "
                f"{max(self.honest_survivors, 0)} honest: a sum hides nobody unless two or more are in it; "
                "lower the dropout or the collusion, or take more clients"
            )

    @property
    def dropped(self) -> int:
        """The most clients that drop out."""
        return part_of(self.dropout, self.clients)

    @property
    def colluding(self) -> int:
        """The most clients that collude with the server."""
        return part_of(self.collusion, self.clients)

    @property
    def quorum(self) -> int:
        """The signatures on one survivor set that clients of a lying server ask for."""
        return quorum_of(self.clients, self.colluding)

    @property
    def thresholds(self) -> range:
        """All thresholds worth considering: one share alone opens nothing, and ``n - d`` holders are left."""
        return range(2, self.clients - self.dropped + 1)

    @property
    def honest_survivors(self) -> int:
        """The least number of clients that neither drop out nor collude."""
        return self.clients - self.dropped - self.colluding


class Law(ABC):
    """The failure bounds of one random graph under one threat model, as functions of the threshold."""

    def __init__(self, model: ThreatModel, topology: Topology, degree: float) -> None:
        self.model = model
        self.topology = topology
        self.degree = degree

    @abstractmethod
    def neighbours(self, marked: int) -> Logs:
        """Return the law of how many of a client's neighbours lie in a fixed set of ``marked`` others."""

    @abstractmethod
    def split(self, lost: int) -> float:
        """Bound the log probability that the graph is disconnected once at most ``lost`` clients are taken out."""

    def privacy(self, threshold: int) -> float:
        """Bound log2 of the probability that the honest survivors are split or an honest client is exposed.

        All ``n`` clients are counted, not ``n - c``: so the bound grows with ``c`` and covers fewer colluders.
        """
        exposed = at_least(self._colluding, threshold)
        return _log2_total(self._honest_split, math.log(self.model.clients) + exposed)

    def reliability(self, threshold: int) -> float:
        """Bound log2 of the probability that the survivors are split or a client is starved or lonely.

        Fewer dropouts only add holders, neighbours and signers, so the bound covers them.
        """
        dropped, stayed = self.model.dropped, self.model.clients - self.model.dropped
        too_few = threshold - 2
        if self.model.active:
            if stayed < self.model.quorum:
                return 0.0
            too_few = max(too_few, min(self.model.colluding, threshold - 1))
        return _log2_total(
            self._survivor_split,
            math.log(stayed) + at_most(self._around_survivor, too_few),
            math.log(dropped) + at_most(self._around_dropped, threshold - 1) if dropped else -math.inf,
        )

    @property
    def connected(self) -> bool:
        """Whether a split of the honest survivors alone is as rare as privacy asks."""
        return _log2_total(self._honest_split) <= -self.model.privacy_bits

    def private(self, threshold: int) -> bool:
        """Whether the privacy target is met."""
        return self.privacy(threshold) <= -self.model.privacy_bits

    def reliable(self, threshold: int) -> bool:
        """Whether the reliability target is met."""
        return self.reliability(threshold) <= -self.model.reliability_bits

    def window(self) -> range:
        """Return all thresholds that meet both targets; privacy grows with them, reliability shrinks."""
        thresholds = self.model.thresholds
        first = bisect_left(thresholds, True, key=self.private)
        end = bisect_left(thresholds, True, key=lambda threshold: not self.reliable(threshold))
        return thresholds[first:end]

    @cached_property
    def _colluding(self) -> Logs:
        return self.neighbours(self.model.colluding)

    @cached_property
    def _around_survivor(self) -> Logs:
        return self.neighbours(self.model.clients - self.model.dropped - 1)

    @cached_property
    def _around_dropped(self) -> Logs:
        return self.neighbours(self.model.clients - self.model.dropped)

    @cached_property
    def _honest_split(self) -> float:
        return self.split(self.model.dropped + self.model.colluding)

    @cached_property
    def _survivor_split(self) -> float:
        return self.split(self.model.dropped)


class RegularLaw(Law):
    """A Harary graph on a uniformly permuted ring, or the complete graph."""

    def __init__(self, model: ThreatModel, topology: Complete | Harary) -> None:
        most = model.clients - 1
        self.regular_degree = min(topology.degree, most) if isinstance(topology, Harary) else most
        super().__init__(model, topology, self.regular_degree)

    def neighbours(self, marked: int) -> Logs:
        """Return a hypergeometric law: on a uniformly permuted ring, neighbours are a uniform subset."""
        return log_hypergeometric(self.model.clients - 1, marked, self.regular_degree)

    def split(self, lost: int) -> float:
        """Bound a split of the ring by two runs of lost clients, each of length ``k/2`` or more.

        Two clients left with fewer than ``k/2`` lost ones between them are neighbours, so a split needs two
        cuts: two windows of ``k/2`` places each, all lost, and not adjacent since somebody is left on either
        side. There are ``n (n-k-1) / 2`` such pairs of windows. With ``b`` clients lost, their places are a uniform
        subset of the ring, so a given pair is lost with probability
        ``C(n-k, b-k) / C(n, b) = C(b, k) / C(n, k)``, which grows with ``b``.
        """
        clients, degree = self.model.clients, self.regular_degree
        if degree == clients - 1 or lost < degree:
            return -math.inf
        pairs = math.log(clients * (clients - degree - 1) / 2)
        one_pair = log_choose_ratio(lost, clients, degree)
        return min(0.0, rounded_up(pairs + one_pair, pairs, one_pair))


class RandomLaw(Law):
    """An Erdős–Rényi graph."""

    def __init__(self, model: ThreatModel, topology: ErdosRenyi) -> None:
        self.probability = topology.probability
        super().__init__(model, topology, self.probability * (model.clients - 1))

    def neighbours(self, marked: int) -> Logs:
        """Return a binomial law: every pair is joined independently."""
        return log_binomial(marked, self.probability)

    @cached_property
    def _colluding(self) -> Logs:
        """More edges help everything but this, and graphs have a few more than asked for: never fewer."""
        return log_binomial(self.model.colluding, edge_probability(self.probability))

    def split(self, lost: int) -> float:
        """Bound a split of the ``m = n - lost`` or more clients left, as Theorem 6 of CCESA does.

        With ``r = 1 - p``, the union bound over all ways to part ``m`` clients in two with no edge between is
        ``B(m) = 1/2 sum_{k=1..m-1} C(m,k) r^(k(m-k))``. Pascal's rule gives
        ``B(m+1) = r^m + 1/2 sum_k C(m,k) r^(k(m-k)) (r^k + r^(m-k))``; the bracket is at most
        ``r + r^(m-1)`` by convexity, and ``r^m <= (2r/m) B(m)`` from the terms ``k = 1, m-1``. So ``B`` falls with
        ``m`` from where ``r (1 + 2/m) + r^(m-1) <= 1`` on, and ``B(n - lost)`` covers smaller losses
        too. Where that does not hold, nothing is promised.
        """
        size, absent = self.model.clients - lost, 1 - self.probability
        if absent * (1 + 2 / size) + absent ** (size - 1) > 1:
            return 0.0
        part = np.arange(1, size)
        return min(0.0, log_sum(log_cuts(size, part, self.probability)) - math.log(2))


def _log2_total(*logs: float) -> float:
    return to_log2(log_sum(np.array(logs)))


def part_of(fraction: float, total: int) -> int:
    """Return how many of ``total`` clients a fraction of them is, rounded down."""
    # The summand undoes the rounding of products such as 0.29 * 100, whose floor is 28.
    return math.floor(fraction * total + 1e-9)
