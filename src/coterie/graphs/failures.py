"""Failures on an assignment graph, and bounds on their probabilities.

The adversary is the server together with at most ``c`` colluding clients. Clients drop out at any step of the session:
at most ``d`` of them, or each with a probability, independently of the others. The sum is over a set ``A`` of clients:
the survivors or, if only whole circles are aggregated, the circles without a dropout. One dropout removes a whole
circle from ``A``, so many more clients can be missing from ``A`` than drop out. Clients bound their number: they refuse
a sum of fewer than ``m`` clients (``minimum`` of the session's terms). So at most ``n - m`` clients are *missing* from
any opened sum, for all circles and any number of dropouts.

The sets of dropouts, colluders and circles must not depend on the graph, which is drawn from a seed that no party
controls. All probabilities are over the graph alone and therefore hold for all such sets, including uniformly random
ones. (A server that chooses the dropouts *after* it has seen a sparse graph is outside this model. On the complete
graph nothing is random, and it gains nothing. Clients that leave because they have too few neighbours are outside it
too, because they depend on the graph. That happens at most as often as a client is starved.)

Four things can go wrong:

* **split**: the honest clients in ``A`` do not form a connected graph. Removing the masks can then open the sums of
  its parts, not only the total (Choi et al. 2020, Theorem 2). Colluders know their masks, so they do not connect
  others. Clients can check that ``A`` is connected, but not its honest part, because they do not know the colluders.
* **exposed**: the adversary obtains ``threshold`` shares of both secrets of an honest client. Honest holders reveal
  only the kind that the survivor set requires. There is one survivor set (a passive server announces one; an active
  one needs a quorum for it), so the other kind must come from colluding neighbours: ``colluding >= t``.
* **starved**: fewer than ``threshold`` holders of a client's secrets are left (Theorem 1). A client that stays
  holds one of its own shares, so ``t - 1`` neighbours must stay with it; for one that drops out, ``t`` must stay.
  Members of a broken circle that stay are holders like all others, although they are not in ``A``.
* **lonely**, against an active server: a client has at most ``min(c, t - 1)`` neighbours in ``A``, which may all
  collude.

**Privacy** fails if the honest part of an ``A`` that clients accept is split, or an honest client is exposed. Clients
accept an ``A`` of ``m`` clients or more. At most ``n - m`` clients are not in it, and at most ``c`` of it collude, so
the honest part is what is left of the graph when some set of at most ``n - m + c`` clients is taken out, and this set
does not depend on the graph. :meth:`Law.split` bounds the probability that such a rest is disconnected, and does not
decrease with the number of clients taken out; so its value at ``n - m + c`` is a bound for every ``A``, for all
circles, and for every distribution of dropouts.

**Reliability** fails if a client is starved, or if clients refuse the sum: a client is lonely, ``A``, colluders
included, is split, or, against an active server, fewer than ``q`` survivors are left to sign, ``2 q > n + c``. These
bounds are for at least ``m`` clients in ``A``; :mod:`coterie.graphs.losses` bounds how often there are fewer, in which
case clients refuse the sum.

The bounds are the sums of the probabilities of these events over all clients (union bound). They are rounded up at
every step (:mod:`coterie.graphs.tails`), so that a printed bound is never below the proven one.
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
    COMPUTED,
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
"""With two clients, each could compute the other's input from the sum."""


@dataclass(frozen=True, slots=True)
class ThreatModel:
    """What a session must tolerate, and the acceptable failure probabilities.

    At most ``floor(dropout * clients)`` clients drop out of the session, or if they are ``independent``, each of them
    with probability ``dropout``. At most ``floor(collusion * clients)`` collude with the server. Privacy may fail with
    probability ``2^-privacy_bits``, reliability with ``2^-reliability_bits``. ``active`` means a server that deviates
    from the protocol. Clients refuse a sum of fewer than ``minimum`` clients. It may be left out (0) if there are no
    circles and the number of dropouts is fixed: then all survivors are in the sum.
    """

    clients: int
    dropout: float
    collusion: float = 0.0
    privacy_bits: float = 40.0
    reliability_bits: float = 20.0
    active: bool = False
    minimum: int = 0
    independent: bool = False

    def __post_init__(self) -> None:
        if self.clients < FEWEST_CLIENTS:
            raise ConfigError(f"at least {FEWEST_CLIENTS} clients are needed, not {self.clients}")
        for name in ("dropout", "collusion"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is a fraction in [0, 1), not {getattr(self, name)}")
        for name in ("privacy_bits", "reliability_bits"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is a finite number of bits, at least 0, not {getattr(self, name)}")
        if self.independent and not self.minimum:
            raise ConfigError("where clients drop out independently, any number may: give the minimum of a sum")
        if self.honest_survivors < 2:
            missing = f"{self.missing} missing from a sum" if self.minimum else f"{self.dropped} dropping out"
            raise ConfigError(
                f"of {self.clients} clients, {missing} and {self.colluding} colluding leave "
                f"{max(self.honest_survivors, 0)} honest: a sum hides no client unless two or more are in it; "
                "lower the dropout or the collusion, or take more clients"
            )
        if not self.independent and self.minimum > self.clients - self.dropped:
            raise ConfigError(
                f"a sum of at least {self.minimum} clients cannot lose {self.dropped} of {self.clients}; "
                "lower the minimum or the dropout"
            )

    @property
    def dropped(self) -> int:
        """The maximum number of clients that drop out; their average number if they drop out independently."""
        return part_of(self.dropout, self.clients)

    @property
    def colluding(self) -> int:
        """The maximum number of clients that collude with the server."""
        return part_of(self.collusion, self.clients)

    @property
    def missing(self) -> int:
        """The maximum number of clients that are not in a sum."""
        return self.clients - self.minimum if self.minimum else self.dropped

    @property
    def quorum(self) -> int:
        """The number of signatures on one survivor set that clients require from an active server."""
        return quorum_of(self.clients, self.colluding)

    @property
    def thresholds(self) -> range:
        """All thresholds to consider: from 2, because one share must not be enough, to the ``n - d`` holders left."""
        return range(2, self.clients - (0 if self.independent else self.dropped) + 1)

    @property
    def honest_survivors(self) -> int:
        """The minimum number of clients in a sum that do not collude."""
        return self.clients - self.missing - self.colluding


class Law(ABC):
    """The failure bounds of one random graph under one threat model, as functions of the threshold."""

    def __init__(self, model: ThreatModel, topology: Topology, degree: float) -> None:
        self.model = model
        self.topology = topology
        self.degree = degree

    @abstractmethod
    def neighbours(self, marked: int) -> Logs:
        """Return the distribution of the number of a client's neighbours in a fixed set of ``marked`` others."""

    @abstractmethod
    def split(self, lost: int) -> float:
        """Bound the log probability that the graph is disconnected after removing at most ``lost`` clients."""

    @abstractmethod
    def few_stay(self, most: int) -> float:
        """Bound the log probability that at most ``most`` of a client's neighbours stay, each with a probability."""

    def privacy(self, threshold: int) -> float:
        """Bound log2 of the probability that the honest part of a sum is split or an honest client is exposed.

        All ``n`` clients are counted, not ``n - c``: so the bound grows with ``c`` and covers fewer colluders.
        """
        exposed = at_least(self._colluding, threshold)
        return _log2_total(self._honest_split, math.log(self.model.clients) + exposed)

    def reliability(self, threshold: int) -> float:
        """Bound log2 of the probability that the sum is split or a client is starved or lonely.

        Fewer dropouts only add holders, neighbours and signers, and more clients in the sum only add neighbours in it,
        so the bound covers them.
        """
        model = self.model
        few_summed = min(model.colluding, threshold - 1) if model.active else -1
        if model.independent:
            lonely = math.log(model.clients) + at_most(self._around_summed, few_summed)
            return _log2_total(self._sum_split, self.starved(threshold), lonely, self._unsigned)
        dropped, stayed = model.dropped, model.clients - model.dropped
        if model.active and stayed < model.quorum:
            return 0.0
        few_holders = threshold - 2
        if model.missing == dropped:  # all clients that stay are in the sum, so one count of neighbours decides both
            few_holders, few_summed = max(few_holders, few_summed), -1
        return _log2_total(
            self._sum_split,
            math.log(stayed) + at_most(self._around_survivor, few_holders),
            math.log(dropped) + at_most(self._around_dropped, threshold - 1) if dropped else -math.inf,
            math.log(stayed) + at_most(self._around_summed, few_summed),
        )

    def starved(self, threshold: int) -> float:
        """Bound the log probability that a client is starved, if each client drops out with a probability.

        Neighbours drop out independently of the graph and of each other. A client that stays needs ``t - 1`` of them,
        one that drops out needs ``t``.
        """
        lost = self.model.dropout
        one = [math.log1p(-lost) + self.few_stay(threshold - 2)]
        if lost:
            one.append(math.log(lost) + self.few_stay(threshold - 1))
        return rounded_up(math.log(self.model.clients) + log_sum(np.array(one)), math.log(self.model.clients))

    @property
    def connected(self) -> bool:
        """Whether the probability of a split of the honest part of a sum alone meets the privacy target."""
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
    def _around_summed(self) -> Logs:
        return self.neighbours(self.model.clients - self.model.missing - 1)

    @cached_property
    def _unsigned(self) -> float:
        """The log probability that fewer than a quorum stay to sign, against an active server."""
        if not self.model.active:
            return -math.inf
        lost = log_binomial(self.model.clients, self.model.dropout)
        return at_least(lost, self.model.clients - self.model.quorum + 1)

    @cached_property
    def _honest_split(self) -> float:
        return self.split(self.model.missing + self.model.colluding)

    @cached_property
    def _sum_split(self) -> float:
        return self.split(self.model.missing)


class RegularLaw(Law):
    """A Harary graph on a uniformly permuted ring, or the complete graph."""

    def __init__(self, model: ThreatModel, topology: Complete | Harary) -> None:
        most = model.clients - 1
        self.regular_degree = min(topology.degree, most) if isinstance(topology, Harary) else most
        super().__init__(model, topology, self.regular_degree)

    def neighbours(self, marked: int) -> Logs:
        """Return a hypergeometric distribution: on a uniformly permuted ring, neighbours are a uniform subset."""
        return log_hypergeometric(self.model.clients - 1, marked, self.regular_degree)

    def few_stay(self, most: int) -> float:
        """Bound a binomial tail: every client has as many neighbours."""
        return at_least(self._leaving, self.regular_degree - most)

    def starved(self, threshold: int) -> float:
        """On the complete graph all clients have the same holders, so either all are starved or none is."""
        clients = self.model.clients
        if self.regular_degree < clients - 1:
            return super().starved(threshold)
        return at_least(log_binomial(clients, self.model.dropout), clients - threshold + 1)

    @cached_property
    def _leaving(self) -> Logs:
        return log_binomial(self.regular_degree, self.model.dropout)

    def split(self, lost: int) -> float:
        """Bound a split of the ring by two runs of lost clients, each of length ``k/2`` or more.

        Two clients with fewer than ``k/2`` lost ones between them are neighbours, so a split needs two cuts: two
        windows of ``k/2`` places each, all lost, and not adjacent because clients are left on either side. There are
        ``n (n-k-1) / 2`` such pairs of windows. With ``b`` clients lost, their places are a uniform subset of the ring,
        so a given pair is lost with probability ``C(n-k, b-k) / C(n, b) = C(b, k) / C(n, k)``, which grows with ``b``.
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
        """Return a binomial distribution: every pair is connected independently."""
        return log_binomial(marked, self.probability)

    def few_stay(self, most: int) -> float:
        """Bound a binomial tail: every other client is a neighbour that stays with the same probability."""
        return at_most(self._staying, most)

    @cached_property
    def _staying(self) -> Logs:
        joined = self.probability * (1 - self.model.dropout)
        return log_binomial(self.model.clients - 1, joined, relative_error=COMPUTED)

    @cached_property
    def _colluding(self) -> Logs:
        """More edges reduce all failures but this one. Graphs have slightly more edges than requested, never fewer."""
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
    """Return how many of ``total`` clients a fraction is, rounded down."""
    # The summand undoes the rounding of products such as 0.29 * 100, whose floor is 28.
    return math.floor(fraction * total + 1e-9)
