"""Strategies of Flower that tests wrap in a private one, grids for them, and results of their rounds."""

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid, strategy
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import FakeGrid, make_app, make_grid

from coterie.deployment.form import Mean
from coterie.rounds import RoundResult
from coterie.transports.flower import PrivateStrategy, private_mod

QUIET: dict[str, Any] = {"fraction_evaluate": 0.0}
MEANS = [
    FedAvg(**QUIET),
    strategy.FedProx(proximal_mu=0.1, **QUIET),
    strategy.FedAvgM(server_momentum=0.9, **QUIET),
    strategy.FedAdam(**QUIET),
    strategy.FedAdagrad(**QUIET),
    strategy.FedYogi(**QUIET),
]


class Halving(FedAvg):
    """Halves a learning rate in every round and in place, as Flower's tutorials do."""

    def __init__(self, fraction_evaluate: float = 0.0) -> None:
        super().__init__(fraction_evaluate=fraction_evaluate)
        self.seen: list[tuple[int, float]] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        rate = config["lr"]
        assert isinstance(rate, float)
        config["lr"] = rate / 2
        self.seen.append((server_round, rate / 2))
        return super().configure_train(server_round, arrays, config, grid)


def private_grid(config: dict[str, Any] | None = None) -> FakeGrid:
    return make_grid(make_app([private_mod]), 4, config=config)


def results_of(kept: PrivateStrategy) -> list[RoundResult[Mean]]:
    """Return the results of the rounds of a strategy that was started."""
    assert kept.grid is not None
    return kept.grid.results


def sums_of(kept: PrivateStrategy) -> list[int]:
    """Return the number of clients in the sum of each round; 0 for a round without a result."""
    return [len(result.revealed) if result.value is not None else 0 for result in results_of(kept)]


def last_mean(kept: PrivateStrategy) -> Mean:
    """Return the mean of the last round, which must have one."""
    mean = results_of(kept)[-1].value
    assert mean is not None
    return mean


def fresh(like: strategy.Strategy) -> strategy.Strategy:
    copy = type(like)(**QUIET) if not isinstance(like, strategy.FedProx) else strategy.FedProx(proximal_mu=0.1, **QUIET)
    if isinstance(like, strategy.FedAvgM):
        copy = strategy.FedAvgM(server_momentum=0.9, **QUIET)
    return copy
