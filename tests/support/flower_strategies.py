"""Strategies of Flower that a private one is put around, and a grid of nodes for it."""

from typing import Any

from flwr.serverapp import strategy
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import FakeGrid, make_app, make_grid

from coterie.transports.flower import private_mod

QUIET: dict[str, Any] = {"fraction_evaluate": 0.0}
MEANS = [
    FedAvg(**QUIET),
    strategy.FedProx(proximal_mu=0.1, **QUIET),
    strategy.FedAvgM(server_momentum=0.9, **QUIET),
    strategy.FedAdam(**QUIET),
    strategy.FedAdagrad(**QUIET),
    strategy.FedYogi(**QUIET),
]


def private_grid(size: int = 4, config: dict[str, Any] | None = None) -> FakeGrid:
    return make_grid(make_app([private_mod]), size, config=config)


def fresh(like: strategy.Strategy) -> strategy.Strategy:
    copy = type(like)(**QUIET) if not isinstance(like, strategy.FedProx) else strategy.FedProx(proximal_mu=0.1, **QUIET)
    if isinstance(like, strategy.FedAvgM):
        copy = strategy.FedAvgM(server_momentum=0.9, **QUIET)
    return copy
