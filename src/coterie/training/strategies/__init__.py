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
from coterie.training.strategies.fedavg import FedAvg

__all__ = [
    "POOLED",
    "FedAvg",
    "LocalOnly",
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
