"""A lying Flower server varies how contributions are made, and solves for single ones, with each defence off and on.

One circle of four, active mode, no colluder. Every sum is over the whole circle, so that the participation matrix shows
nothing, and the audit of the ledger finds T = 4 in all cases.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from tests.support.flower import FakeGrid, make_grid
from tests.support.flower import identity as identity
from tests.support.flower_strategies import QUIET, last_mean
from tests.support.homes import home as home
from typer.testing import CliRunner

from coterie.cli.audit import audit as audit_command
from coterie.cohorts.memory import ClientMemory
from coterie.cohorts.roster import Roster
from coterie.deployment import aggregator, contribution, responder
from coterie.deployment.form import Form, Mean, form_under
from coterie.deployment.recipe import RosterRecipe
from coterie.errors import ConfigError, InputError
from coterie.transports.flower import PrivateStrategy, private_mod

LENGTH = 6
SIZES = (23, 37, 58, 90)
CAPS = (5, 10, 20, 30, 40, 50, 60, 70, 80, 100)
BATCHES = (1, 2, 3, 5, 7, 11, 16, 25, 40, 64)
UPDATES = np.random.default_rng(4).uniform(-0.9, 0.9, (len(SIZES), LENGTH))
CLASS_SEVEN = (0, 5, 0.5, 3)
SETTINGS: dict[str, Any] = {
    "privacy": 4,
    "deadline": 1,
    "most_examples": 100,
    "precision": 40,
    "resume": False,
    "empty_rounds": 0,
}


class World:
    """Four nodes whose update is a function of their data, the model and the configuration alone."""

    def __init__(self, sizes: tuple[float, ...] = SIZES) -> None:
        self.sizes = list(sizes)
        self.called: list[int] = []
        self.run_config: dict[str, Any] = {}
        app = ClientApp(mods=[private_mod])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            return self._train(message, context)

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            self.called.append(int(context.node_config["partition-id"]))
            measured = MetricRecord({"num-examples": 1, "accuracy": 0.1 * self.called[-1]})
            return Message(RecordDict({"metrics": measured}), reply_to=message)

        self.app = app

    def _train(self, message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        self.called.append(place)
        config = {**context.run_config, **message.content.config_records["config"]}
        size = self.sizes[place]
        batch = config.get("batch-size")
        # One step of gradient descent for each batch, with so small a rate that gradients do not change.
        steps = 1.0 if batch is None else 0.01 * math.ceil(size / float(batch))  # type: ignore[arg-type]
        moved = message.content.array_records["arrays"]["w"].numpy() + UPDATES[place] * steps
        metrics = MetricRecord({"num-examples": size, "class-seven": CLASS_SEVEN[place]})
        arrays = ArrayRecord({"w": Array(np.asarray(moved))})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    def grid(self) -> FakeGrid:
        grid = make_grid(self.app, len(SIZES))
        for node in grid.nodes.values():
            node.run_config.update(self.run_config)
        return grid


def session(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    *,
    believed: bool = False,
    strategy: FedAvg | None = None,
    config: Mapping[str, Any] | None = None,
    **settings: Any,  # noqa: ANN401
) -> PrivateStrategy:
    """Play one session with a model of zeros, by a server that does not compare its recipe with its roster's."""
    kept = PrivateStrategy(strategy or FedAvg(**QUIET), **{**SETTINGS, **settings})

    def forged(roster: Roster, message_type: str) -> Form:
        return replace(form_under(roster, message_type), recipe=kept._settings.recipe)

    monkeypatch.setattr(RosterRecipe, "check_kept", lambda *_: None)
    monkeypatch.setattr(aggregator, "form_under", forged)
    monkeypatch.setattr(responder, "form_under", forged if believed else form_under)
    arrays = ArrayRecord({"w": Array(np.zeros(LENGTH))})
    kept.start(world.grid(), arrays, 1, timeout=1, train_config=ConfigRecord(dict(config or {})))
    return kept


def sum_of(kept: PrivateStrategy) -> tuple[int, NDArray[np.float64]] | None:
    """Return what the server learns: the sum of the weights, and the weighted sum of the updates."""
    assert kept.grid is not None
    mean: Mean | None = kept.grid.results[-1].value
    if mean is None:
        return None
    total = mean.metrics["num-examples"]
    assert isinstance(total, int)
    return total, total * np.asarray(mean.arrays["w"], dtype=np.float64)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes use the reported weight and the given configuration in every session, and remember nothing."""
    monkeypatch.setattr(ClientMemory, "fix", lambda _memory, values: dict(values))


def audit(home: Path) -> int:
    app = typer.Typer()
    app.command()(audit_command)
    return CliRunner().invoke(app, [str(home / "server" / "ledger.sqlite"), "--require", "4"]).exit_code


def sizes_behind(totals: list[int]) -> list[int]:
    """Solve for the sizes: the sum of the weights grows with the cap by one for each node that is larger than it."""
    found: list[int] = []
    steps = zip(pairwise(CAPS), pairwise(totals), strict=True)
    for (low, high), (before, after) in reversed(list(steps)):
        rest = after - before - len(found) * (high - low)
        found += [low + rest] if rest else []
    return sorted(found)


def test_ten_caps_on_the_weights_reveal_all_updates_of_a_circle(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)
    world = World()
    sums = [sum_of(session(world, monkeypatch, believed=True, most_examples=cap)) for cap in CAPS]
    heard = [found for found in sums if found is not None]
    assert len(heard) == len(CAPS)
    sizes = sizes_behind([total for total, _ in heard])
    assert tuple(sizes) == SIZES
    weights = np.minimum(np.array(sizes), np.array(CAPS)[:, None])
    solved, *_ = np.linalg.lstsq(weights.astype(float), np.array([total for _, total in heard]), rcond=None)
    assert np.abs(solved - UPDATES).max() < 1e-6
    assert audit(home) == 0  # the audit of the history finds nothing


def test_nodes_refuse_another_cap_before_their_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)  # this defence needs nothing that nodes remember
    world = World()
    assert sum_of(session(world, monkeypatch, most_examples=CAPS[0])) is not None
    world.called.clear()
    assert [sum_of(session(world, monkeypatch, most_examples=cap)) for cap in CAPS[1:]] == [None] * 9
    assert world.called == []
    assert sum_of(session(world, monkeypatch, most_examples=CAPS[0])) is not None


def test_nodes_that_remember_their_weight_contribute_the_same_under_every_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second defence: even if the caps were accepted, each weight would still be permanent."""
    world = World()
    sums = [sum_of(session(world, monkeypatch, believed=True, most_examples=cap)) for cap in sorted(CAPS)[4:]]
    heard = [found for found in sums if found is not None]
    assert len(heard) == 6
    assert {total for total, _ in heard} == {23 + 37 + 40 + 40}
    assert np.ptp([total for _, total in heard], axis=0).max() < 1e-6


@pytest.mark.parametrize("remembered", [False, True])
def test_one_more_example_reveals_an_update_unless_weights_are_permanent(
    remembered: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No one lies: one node's number of examples changes from 23 to 24 between two rounds."""
    if not remembered:
        forget(monkeypatch)
    world = World()
    first = sum_of(session(world, monkeypatch))
    world.sizes[0] = 24
    second = sum_of(session(world, monkeypatch))
    assert first is not None
    assert second is not None
    difference = second[1] - first[1]
    if remembered:
        assert second[0] == first[0]
        assert np.abs(difference).max() < 1e-6
    else:
        assert np.abs(difference - UPDATES[0]).max() < 1e-6
    assert audit(home) == 0


def survivors(kept: PrivateStrategy) -> set[str]:
    assert kept.grid is not None
    return set(kept.grid.results[-1].attendance.survivors)


def test_refusing_a_value_would_reveal_which_node_lacks_a_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def strictly(_form: Form, weight: float) -> int:
        if weight != int(weight) or weight < 1:
            raise InputError("a weight must be a whole number of at least 1")
        return int(weight)

    by_class = FedAvg(weighted_by_key="class-seven", **QUIET)
    world = World()
    assert sum_of(session(world, monkeypatch)) is not None  # the recipe names num-examples
    forget(monkeypatch)
    with monkeypatch.context() as off:
        off.setattr(Form, "clamped_weight", strictly)
        told = session(world, off, believed=True, strategy=by_class)
        assert survivors(told) == {"partition-1", "partition-3"}  # the weights of the others are 0 and 0.5
    world.called.clear()
    assert survivors(session(world, monkeypatch, strategy=by_class)) == set()  # every node refuses
    assert world.called == []


def test_a_weight_of_any_value_counts_and_drops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A roster may be founded with such a weight; even then no value lets a node drop out."""
    kept = session(World(), monkeypatch, strategy=FedAvg(weighted_by_key="class-seven", **QUIET))
    assert len(survivors(kept)) == 4
    mean = last_mean(kept)
    assert mean.metrics["class-seven"] == 0 + 5 + 0 + 3


def test_a_round_with_a_total_weight_of_zero_ends_without_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = session(World((0, -1, math.nan, 0.5)), monkeypatch)
    assert len(survivors(kept)) == 4
    assert kept.grid is not None
    result = kept.grid.results[-1]
    assert result.value is None
    assert "all weights are 0" in result.reason


def with_batches(world: World, monkeypatch: pytest.MonkeyPatch, where: str, **settings: Any) -> list[Any]:  # noqa: ANN401
    sums = []
    for size in BATCHES:
        world.run_config = {"batch-size": size} if where == "run" else {}
        config = {"batch-size": size} if where == "message" else {}
        sums.append(sum_of(session(world, monkeypatch, config=config, **settings)))
    return sums


@pytest.mark.parametrize("where", ["message", "run"])
@pytest.mark.parametrize("off", ["not remembered", "named as varying"])
def test_ten_batch_sizes_reveal_all_updates_unless_they_are_fixed(
    where: str, off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a small learning rate an update is rate * steps * gradient, and each node has its own number of steps."""
    world = World()
    if off == "not remembered":
        with monkeypatch.context() as patched:
            patched.setattr(contribution, "check_unchanged", lambda *_: None)
            sums = with_batches(world, patched, where)
    else:
        sums = with_batches(world, monkeypatch, where, varying=["batch-size"])
    steps = np.array([[size * math.ceil(size / batch) for size in SIZES] for batch in BATCHES])
    solved, *_ = np.linalg.lstsq(0.01 * steps, np.array([total for _, total in sums]), rcond=None)
    assert np.abs(solved - UPDATES).max() < 1e-6


@pytest.mark.parametrize("where", ["message", "run"])
def test_another_batch_size_is_refused_before_the_function_is_called(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    sums = with_batches(world, monkeypatch, where)
    assert sums[0] is not None
    assert sums[1:] == [None] * 9
    assert len(world.called) == 4


class Renamed(FedAvg):
    """A server that asks for the same function by its other name."""

    def _construct_messages(self, record: RecordDict, node_ids: list[int], message_type: str) -> list[Message]:
        return list(super()._construct_messages(record, node_ids, f"{message_type}.default"))


def test_one_function_with_two_names_has_one_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    assert sum_of(session(world, monkeypatch, config={"batch-size": 1})) is not None
    world.called.clear()
    assert sum_of(session(world, monkeypatch, config={"batch-size": 2}, strategy=Renamed(**QUIET))) is None
    assert world.called == []
    assert sum_of(session(world, monkeypatch, config={"batch-size": 1}, strategy=Renamed(**QUIET))) is not None


@pytest.mark.parametrize(
    "other",
    [{"clip": 0.1}, {"clips": {"w": 0.1}}, {"precision": 10, "most_examples": 100}, {"train_metrics": {"x": (0, 1)}}],
    ids=["clip", "clips", "precision", "metrics"],
)
def test_other_changes_of_the_recipe_are_refused_before_the_function_is_called(
    other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    assert sum_of(session(world, monkeypatch)) is not None
    world.called.clear()
    assert sum_of(session(world, monkeypatch, **other)) is None
    assert world.called == []


def shares_above(world: World, monkeypatch: pytest.MonkeyPatch, *, believed: bool) -> dict[float, float | None]:
    """Ask for the accuracy in many ranges; each gives the share of a circle above a threshold."""
    share: dict[float, float | None] = {}
    for threshold in (-0.05, 0.05, 0.15, 0.25):
        ranges = {"accuracy": (threshold, threshold + 1e-6)}
        kept = session(
            world, monkeypatch, believed=believed, strategy=FedAvg(fraction_train=0.0), evaluate_metrics=ranges
        )
        assert kept.grid is not None
        mean = kept.grid.results[-1].value
        value = mean.metrics["accuracy"] if mean else None
        share[threshold] = round((value - threshold) / 1e-6, 2) if isinstance(value, float) else None
    return share


def test_changing_ranges_reveal_the_values_of_a_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as off:
        assert shares_above(World(), off, believed=True) == {-0.05: 1.0, 0.05: 0.75, 0.15: 0.5, 0.25: 0.25}


def test_ranges_that_change_are_refused_before_the_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    assert shares_above(world, monkeypatch, believed=False) == {-0.05: 1.0, 0.05: None, 0.15: None, 0.25: None}
    assert len(world.called) == 4


def test_an_honest_server_gets_an_error_before_anything_is_sent() -> None:
    world = World()
    arrays = ArrayRecord({"w": Array(np.zeros(LENGTH))})
    PrivateStrategy(FedAvg(**QUIET), **SETTINGS).start(world.grid(), arrays, 1)
    world.called.clear()
    grid = world.grid()
    with pytest.raises(ConfigError, match=r"^most_examples is '99', and the roster was founded with '100'"):
        PrivateStrategy(FedAvg(**QUIET), **{**SETTINGS, "most_examples": 99}).start(grid, arrays, 1)
    assert {message.metadata.group_id for message in grid.sent} == {"hello"}
    assert world.called == []
