"""Strategies that learn from many clients."""

from coterie.training.strategies.base import (
    Strategy,
    StrategyState,
    Weighting,
    check_shapes,
    pack,
    plain_round,
    unpack,
    weighted_mean,
)
from coterie.training.strategies.baselines import POOLED, LocalOnly, centralised
from coterie.training.strategies.confined import Confined
from coterie.training.strategies.ditto import Ditto
from coterie.training.strategies.fedavg import FedAvg
from coterie.training.strategies.private import PrivateDescent

__all__ = [
    "POOLED",
    "Confined",
    "Ditto",
    "FedAvg",
    "LocalOnly",
    "PrivateDescent",
    "Strategy",
    "StrategyState",
    "Weighting",
    "centralised",
    "check_shapes",
    "pack",
    "plain_round",
    "unpack",
    "weighted_mean",
]
