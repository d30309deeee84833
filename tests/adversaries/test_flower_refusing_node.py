"""A limit that hardening.md states: a node that refuses all moves of confined descent hides its circle less.

Of two nodes one refuses all moves. Its change is constant, so the difference of two sums is about the other node alone.
After ``tau`` moves it contributes zeros, and the sum is the other's change.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from tests.support.confined import RATE, World, start
from tests.support.homes import home as home

from coterie.transports.flower import Confinement

CENTRES = np.array([[2.0, 1.0, 1.5], [-2.0, -1.0, -0.5]])
STEP = np.array([0.25, 0.125, 0.125], np.float32)
MOVES = 1
TAU, ROUNDS = 3, 6


class Walking(FedAvg):
    """A server that moves away from the node that refuses, and records what it learns in each round."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.sums: list[NDArray[Any]] = []

    def aggregate_train(self, server_round: int, replies: Any) -> Any:  # noqa: ANN401
        (reply,) = replies
        now = (server_round - 1) * -STEP
        self.sums.append(len(CENTRES) * (reply.content.array_records["arrays"]["w"].numpy() - now))
        return ArrayRecord({"w": Array(np.asarray(server_round * -STEP, np.float32))}), None


def test_a_node_that_refuses_all_moves_weakens_the_privacy_of_its_circle(home: Path) -> None:
    walking = Walking()
    confined = Confinement(norm=8.0, tau=TAU)
    World(centres=CENTRES.copy()).run(ROUNDS, confined, strategy=walking, own_aggregation=True)

    def change(number: int) -> NDArray[Any]:
        model = start(home, MOVES, np.zeros(3), confined.spread) - number * STEP
        return np.asarray(-RATE * (model - CENTRES[MOVES]))

    for number in range(1, TAU):
        difference = walking.sums[number] - walking.sums[number - 1]
        assert difference == pytest.approx(change(number) - change(number - 1), abs=1e-5), number
    for number in range(TAU, ROUNDS):
        assert walking.sums[number] == pytest.approx(change(number), abs=1e-5), number
