"""Cohorts over many rounds: fixed circles, selection policies, the ledger of participation, and their theory.

One secure aggregation hides every client in a sum. Differences of many sums can isolate single clients again. Here a
cohort is a union of fixed circles of at least T clients, so no number of rounds separates a client from its circle
(So et al. 2023, Multi-RoundSecAgg).

* :mod:`~coterie.cohorts.circles` and :mod:`~coterie.cohorts.roster`: circles, and a population that changes.
* :mod:`~coterie.cohorts.policies`: which clients take part in a round. Start with :data:`POLICIES`.
* :mod:`~coterie.cohorts.ledger` (server) and :mod:`~coterie.cohorts.memory` (client): the durable history, and the
  checks against it before a sum is opened.
* :mod:`~coterie.cohorts.theory`: skipped rounds, fairness and cohort sizes, computed in advance.
"""

from typing import TYPE_CHECKING

from coterie.cohorts.availability import mixed_dropout
from coterie.cohorts.circles import (
    Circles,
    circle_sizes,
    circles_per_round,
    partition_circles,
    random_circles,
    similar_circles,
    single_circles,
)
from coterie.cohorts.policies import (
    POLICIES,
    BalancedHalves,
    Iid,
    MultiRound,
    Policy,
    PolicyKind,
    PolicySettings,
    Random,
    WeightedRandom,
    make_policy,
    simulate,
)
from coterie.cohorts.roster import Client, Roster
from coterie.cohorts.theory import (
    Forecast,
    TradeOff,
    family_size,
    forecast,
    intact_share,
    selection_rates,
    selection_variance,
    trade_off,
)

__all__ = [
    "POLICIES",
    "BalancedHalves",
    "Circles",
    "Client",
    "Forecast",
    "Iid",
    "Ledger",
    "MultiRound",
    "Policy",
    "PolicyKind",
    "PolicySettings",
    "Random",
    "Roster",
    "TradeOff",
    "WeightedRandom",
    "circle_sizes",
    "circles_per_round",
    "family_size",
    "forecast",
    "intact_share",
    "make_policy",
    "mixed_dropout",
    "partition_circles",
    "random_circles",
    "selection_rates",
    "selection_variance",
    "similar_circles",
    "simulate",
    "single_circles",
    "trade_off",
]

if TYPE_CHECKING:
    from coterie.cohorts.ledger import Ledger
else:

    def __getattr__(name: str) -> object:
        """Import the ledger on first use: importing its database takes longer than all the rest of this package."""
        if name == "Ledger":
            from coterie.cohorts.ledger import Ledger

            return Ledger
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
