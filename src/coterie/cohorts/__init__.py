"""Cohorts over many rounds: fixed circles, the policies that select them, and what they cost.

One secure aggregation hides every client in a sum; many sums, subtracted from each other, can single clients
out again. Here cohorts are unions of fixed circles of at least T clients, so that no number of rounds separates
a client from its circle (So et al. 2023, Multi-RoundSecAgg).
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
        """Import the ledger when it is asked for: its database takes longer to import than everything else here."""
        if name == "Ledger":
            from coterie.cohorts.ledger import Ledger

            return Ledger
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
