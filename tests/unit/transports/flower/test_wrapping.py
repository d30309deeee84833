"""Strategies that can be wrapped in a PrivateStrategy, and the one-line error for all others."""

import logging
from collections.abc import Iterable
from typing import Any

import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.server.strategy import FedAvg as OldFedAvg
from flwr.serverapp import strategy
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import initial_arrays
from tests.support.flower_strategies import QUIET, private_grid

from coterie.errors import ConfigError
from coterie.transports.flower import PrivateStrategy


class Saving(FedAvg):
    """A strategy that records each round with a model, like those of apps with their own checkpoints."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(**settings)
        self.saved: list[int] = []
        self.replies: list[int] = []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        listed = list(replies)
        self.replies.append(len(listed))
        arrays, metrics = super().aggregate_train(server_round, listed)
        if arrays is not None:
            self.saved.append(server_round)
        return arrays, metrics

    def best(self) -> int:
        return max(self.saved)


class Middle(strategy.FedMedian):
    """A median under another name."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        return super().aggregate_train(server_round, replies)


def test_a_strategy_that_saves_what_it_aggregates_runs_if_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match=r"^Saving has its own aggregate_train.*own_aggregation=True$"):
        PrivateStrategy(Saving(**QUIET))
    saving = Saving(**QUIET)
    kept = PrivateStrategy(saving, own_aggregation=True)
    assert any("gets one reply in a round" in record.getMessage() for record in caplog.records)
    result = kept.start(private_grid(), initial_arrays(), 2)
    assert saving.saved == [1, 2]
    assert saving.replies == [1, 1]
    assert result.arrays["b"].numpy() != 1


@pytest.mark.parametrize("kind", [Middle(), strategy.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 2)])
def test_strategies_that_need_single_replies_are_always_refused(kind: strategy.Strategy) -> None:
    with pytest.raises(ConfigError, match="cannot run under secure aggregation"):
        PrivateStrategy(kind, own_aggregation=True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (FedAvg, r"^FedAvg is a class; wrap an instance, as in PrivateStrategy\(FedAvg\(\.\.\.\)\)$"),
        (OldFedAvg(), "^FedAvg is a strategy of Flower's old API"),
        (PrivateStrategy(FedAvg()), "a PrivateStrategy already"),
        (None, "^NoneType is not a strategy"),
    ],
    ids=["class", "old API", "twice", "nothing"],
)
def test_an_invalid_strategy_is_refused_in_one_line(wrong: Any, words: str) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match=words) as caught:
        PrivateStrategy(wrong)
    assert "\n" not in str(caught.value)


def test_a_wrapper_around_the_private_strategy_is_refused_before_anything_is_sent() -> None:
    grid = private_grid()
    outside = strategy.DifferentialPrivacyServerSideFixedClipping(PrivateStrategy(FedAvg(**QUIET)), 1.0, 1.0, 2)
    with pytest.raises(ConfigError, match="PrivateStrategy is not the outermost strategy"):
        outside.start(grid, initial_arrays(), 1)
    assert grid.sent == []


def test_methods_of_the_wrapped_strategy_are_reachable() -> None:
    kept: Any = PrivateStrategy(Saving(**QUIET), own_aggregation=True)
    kept.start(private_grid(), initial_arrays(), 2)
    assert kept.best() == 2
    assert kept.fraction_evaluate == 0.0
    with pytest.raises(AttributeError, match="nonsense"):
        _ = kept.nonsense
    with pytest.raises(AttributeError, match="_private"):
        _ = kept._private


def test_a_strategy_that_was_wrapped_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    PrivateStrategy(FedAvg(fraction_evaluate=0.5))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
