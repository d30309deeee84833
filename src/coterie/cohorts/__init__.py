"""Who takes part, over many rounds: fixed circles, selection policies, and what they cost.

One secure aggregation hides every client in a sum; many sums, subtracted from each other, can single clients
out again. Here cohorts are unions of fixed batches of at least T clients, so that no number of rounds separates
a client from its batch (So et al. 2023, Multi-RoundSecAgg).
"""

from typing import TYPE_CHECKING

from coterie.cohorts.circles import (
    Batches,
    batch_sizes,
    batches_per_round,
    random_batches,
    similar_batches,
)
from coterie.cohorts.policies import (
    POLICIES,
    BalancedHalves,
    Iid,
    MultiRound,
    Policy,
    Random,
    WeightedRandom,
    make_policy,
    mixed_dropout,
    partition,
    simulate,
)
from coterie.cohorts.roster import Client, Roster, RosterPin
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
    "Batches",
    "Client",
    "Forecast",
    "Iid",
    "Ledger",
    "MultiRound",
    "Policy",
    "Random",
    "Roster",
    "RosterPin",
    "TradeOff",
    "WeightedRandom",
    "batch_sizes",
    "batches_per_round",
    "family_size",
    "forecast",
    "intact_share",
    "make_policy",
    "mixed_dropout",
    "partition",
    "random_batches",
    "selection_rates",
    "selection_variance",
    "similar_batches",
    "simulate",
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
