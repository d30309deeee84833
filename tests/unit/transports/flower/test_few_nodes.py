"""Few nodes: the log says at the start how many may leave, and the error says what to change if too many left."""

import logging
from collections.abc import Callable

import pytest
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import FakeGrid, initial_arrays, make_app, make_grid
from tests.support.flower_strategies import QUIET, sums_of

from coterie.errors import NothingTrained
from coterie.transports.flower import PrivateStrategy, private_mod


def losing(node: int, nodes: int = 4) -> FakeGrid:
    """Return a grid in which one node's masked contribution is lost."""

    def lose(message: Message, answer: Callable[[Message], Message]) -> Message | None:
        return None if "arrays" in message.content and message.metadata.dst_node_id == node else answer(message)

    return make_grid(make_app([private_mod]), nodes, lose)


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.mark.parametrize("nodes", [4, 5, 6])
def test_by_default_a_round_continues_without_any_one_of_few_nodes(
    nodes: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flwr")
    for node in range(nodes):
        kept = PrivateStrategy(FedAvg(**QUIET), deadline=1, resume=False)
        kept.start(losing(100 + node, nodes), initial_arrays(), 1, timeout=1)
        assert sums_of(kept)[0] > 0
    assert any("any 1 of them may leave" in line for line in lines(caplog, logging.INFO))


def test_against_a_colluder_four_nodes_need_all_and_the_error_says_what_to_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=1, colluders=1)
    with pytest.raises(NothingTrained, match=r"none of them may leave; .*colluders=0 lets 1 leave"):
        kept.start(losing(100), initial_arrays(), 1, timeout=1)
    warned = lines(caplog, logging.WARNING)
    first = next(number for number, line in enumerate(warned) if "none of them may leave" in line)
    assert not any("leaves round" in line for line in warned[: first + 1])
    assert "colluders=0 lets 1 leave" in warned[first + 1]


def test_the_error_says_that_a_single_circle_needs_all_its_nodes() -> None:
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=1)
    with pytest.raises(NothingTrained, match="a second circle needs 3 more nodes"):
        kept.start(losing(101, 3), initial_arrays(), 1, timeout=1)


@pytest.mark.parametrize(("fraction", "expected"), [(0.5, 4), (0.1, 2), (0.76, 6), (1.0, 8)])
def test_a_fraction_of_the_nodes_is_that_share_of_circles(fraction: float, expected: int) -> None:
    grid = make_grid(make_app([private_mod]), 8)
    kept = PrivateStrategy(FedAvg(fraction_train=fraction, **QUIET), deadline=2)
    kept.start(grid, initial_arrays(), 2)
    assert sums_of(kept) == [expected] * 2


def test_a_cohort_that_is_set_wins_over_a_fraction() -> None:
    kept = PrivateStrategy(FedAvg(fraction_train=0.25, **QUIET), deadline=2, cohort=6)
    kept.start(make_grid(make_app([private_mod]), 8), initial_arrays(), 1)
    assert sums_of(kept) == [6]
