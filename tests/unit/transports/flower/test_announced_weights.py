"""Weights that nodes announce before the roster is founded give its scale: small nodes keep precision."""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st
from tests.support.flower import FakeGrid, make_grid
from tests.support.flower_strategies import QUIET, last_mean
from tests.support.homes import latest_roster

from coterie.arithmetic.quantize import MARGIN
from coterie.cohorts.memory import MemoryFile
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.signing import Identity
from coterie.deployment.credentials import introduce, read_introduction
from coterie.deployment.form import Form
from coterie.deployment.home import server_home
from coterie.deployment.node import Node, NodeSettings
from coterie.deployment.recipe import RosterRecipe
from coterie.deployment.settings import MOST_ANNOUNCED, MOST_EXAMPLES, PrivateSettings
from coterie.errors import ConfigError, PeerProtocolError
from coterie.transports.flower import PrivateStrategy, private_mod

LENGTH = 2_000


def moving() -> ClientApp:
    """Move a model by a tenth on the first node and by two tenths on the second, and so on."""
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        number = int(context.node_config["partition-id"])
        moved = np.asarray(message.content.array_records["arrays"]["w"].numpy() + 0.1 * (number + 1))
        metrics = MetricRecord({"num-examples": 1})  # the operator's number counts
        return Message(RecordDict({"arrays": ArrayRecord({"w": Array(moved)}), "metrics": metrics}), reply_to=message)

    return app


def announcing(weights: list[int], *, silent: int | None = None) -> FakeGrid:
    grid = make_grid(moving(), len(weights))
    for number, weight in enumerate(weights):
        grid.nodes[100 + number].node_config["coterie-weight"] = weight
        grid.nodes[100 + number].node_config["coterie-announce-weight"] = number != silent
    return grid


def start(grid: FakeGrid, rounds: int = 1, **settings: Any) -> PrivateStrategy:  # noqa: ANN401
    kept = PrivateStrategy(FedAvg(**QUIET), **{"deadline": 1, "resume": False, "empty_rounds": 0, **settings})
    kept.start(grid, ArrayRecord({"w": Array(np.zeros(LENGTH))}), rounds, timeout=1)
    return kept


def founded() -> RosterRecipe:
    return RosterRecipe.of(latest_roster(server_home()))


def outcome(kept: PrivateStrategy, weights: list[int]) -> tuple[int, float]:
    """Return the sum of weights, and the largest error of the mean."""
    mean = last_mean(kept)
    exact = sum(0.1 * (number + 1) * weight for number, weight in enumerate(weights)) / sum(weights)
    return int(mean.metrics["num-examples"]), float(np.abs(mean.arrays["w"] - exact).max())


def test_small_nodes_keep_precision_if_all_announce(log: pytest.LogCaptureFixture) -> None:
    weights = [3, 4]
    total, error = outcome(start(announcing(weights)), weights)
    assert (total, founded().most_weight) == (7, 7)
    assert error < 2e-6
    assert "most_examples is 7: from the weights that nodes announce, the largest by " in log.text
    assert "is rounded to about" not in log.text


def test_small_nodes_lose_precision_if_one_announces_nothing(log: pytest.LogCaptureFixture) -> None:
    weights = [3, 4]
    total, error = outcome(start(announcing(weights, silent=1)), weights)
    assert (total, founded().most_weight) == (7, MOST_EXAMPLES)
    assert error > 5e-4
    assert "most_examples is 10,000: 1 of 2 nodes announce no weight (coterie-announce-weight)" in log.text
    assert "is rounded to about" in log.text


def test_large_nodes_weigh_more() -> None:
    weights = [50_000, 200_000]
    total, error = outcome(start(announcing(weights)), weights)
    assert (total, founded().most_weight) == (250_000, 2**18 - 1)
    assert error < 4e-6


def test_a_given_limit_overrides_announced_weights_and_clamps_them(log: pytest.LogCaptureFixture) -> None:
    kept = start(announcing([50, 200]), most_examples=100)
    mean = last_mean(kept)
    assert mean.metrics["num-examples"] == 150
    assert "coterie-weight is more than a node counts for at most (most_examples)" in log.text
    assert "from the weights" not in log.text


def test_the_scale_of_a_roster_does_not_change() -> None:
    """Nodes that trust a roster announce nothing more, and the scale is part of the roster."""
    start(announcing([3, 4]))
    weights = [3, 4, 60, 70]
    grown = announcing(weights)
    total, _ = outcome(start(grown), weights)
    assert (total, founded().most_weight) == (3 + 4 + 7 + 7, 7)
    start(grown, most_examples=7)
    with pytest.raises(ConfigError, match=r"^most_examples is '127', and the roster was founded with '7'"):
        start(grown, most_examples=127)


@given(st.lists(st.integers(1, 2**MOST_ANNOUNCED - 1), min_size=2, max_size=12), st.integers(24, 34))
def test_the_error_of_the_mean_does_not_depend_on_the_size_of_the_nodes(weights: list[int], precision: int) -> None:
    """The scale is less than twice the largest weight, so the mean is rounded as if all nodes had full weight."""
    settings = PrivateSettings(precision=precision)
    recipe = settings.recipe_for([weight.bit_length() for weight in weights])
    form = Form(recipe, len(weights))
    assert all(form.clamped_weight(weight) == weight for weight in weights)
    assert recipe.most_weight < 2 * max(weights)
    levels = (1 << (precision - 1)) - 1 - MARGIN
    assert form.rounding_error(len(weights), sum(weights)) < 2 * math.sqrt(2.5 * len(weights)) / levels
    if max(weights) < 1_000:
        by_default = Form(settings.recipe, len(weights)).rounding_error(len(weights), sum(weights))
        assert by_default > 9 * form.rounding_error(len(weights), sum(weights))


@given(st.lists(st.none() | st.integers(0, 10**9), min_size=1, max_size=5), st.integers(16, 40))
def test_whatever_is_announced_a_recipe_can_be_made(announced: list[int | None], precision: int) -> None:
    settings = PrivateSettings(precision=precision)
    most = settings.recipe_for(announced).most_weight
    assert 1 <= most <= settings.largest_scale
    if None in announced:
        assert most >= MOST_EXAMPLES


def test_a_node_announces_a_power_of_two_and_only_before_it_trusts_a_roster(home: Path) -> None:
    def said(**more: object) -> int | None:
        settings = NodeSettings.read({"partition-id": 0, **{f"coterie-{key}": value for key, value in more.items()}})
        identity = Identity.generate(SystemEntropy())
        with MemoryFile(home / "m.sqlite") as file:
            memory = file.of(Node(settings).client)
            sent = introduce(settings, identity, run=1, node=2, run_config=b"", memory=memory).to_bytes()
        return read_introduction(sent, run=1, node=2, authenticated=b"").weight_bits

    assert said() is None
    assert said(weight=100) is None
    announced = {"weight": 100, "announce-weight": True}
    assert said(**announced) == said(**{**announced, "weight": 127}) == 7
    assert said(**{**announced, "weight": 0}) == 0
    start(announcing([100, 100]))
    with Node(NodeSettings.read({"partition-id": 0})).memory() as file:
        settings = NodeSettings.read({"partition-id": 0, "coterie-weight": 100, "coterie-announce-weight": True})
        node = Node(settings)
        memory = file.of(node.client)
        assert memory.roster is not None
        sent = introduce(settings, node.identity, run=1, node=2, run_config=b"", memory=memory).to_bytes()
    assert read_introduction(sent, run=1, node=2, authenticated=b"").weight_bits is None


def test_a_weight_below_zero_is_refused() -> None:
    settings = NodeSettings.read({"partition-id": 0, "coterie-weight": 9, "coterie-announce-weight": True})
    node = Node(settings)
    with node.memory() as file:
        made = introduce(settings, node.identity, run=1, node=2, run_config=b"", memory=file.of(node.client))
    wrong = msgspec.structs.replace(made, weight_bits=-1).to_bytes()
    with pytest.raises(PeerProtocolError, match="announces a weight below 0"):
        read_introduction(wrong, run=1, node=2, authenticated=b"")
