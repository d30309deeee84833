"""Algorithms that learn from many clients."""

from coterie.training.strategies.base import (
    State,
    Strategy,
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
    "State",
    "Strategy",
    "Weighting",
    "centralised",
    "check_shapes",
    "pack",
    "plain_round",
    "unpack",
    "weighted_mean",
]
