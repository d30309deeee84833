"""Permanent properties of a node's contribution: weight, configuration, arrays and their ranges."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st
from tests.support.flower import FakeGrid, configured, initial_arrays, make_app, make_grid
from tests.support.flower_strategies import QUIET, results_of, sums_of

from coterie.cohorts.roster import Roster
from coterie.deployment.credentials import check_roster
from coterie.deployment.first_use import check_unchanged
from coterie.deployment.node import Node, NodeSettings
from coterie.deployment.roster_folder import RosterFolder
from coterie.errors import ConfigError, PeerProtocolError
from coterie.transports.flower import PrivateStrategy, private_mod

VALUES = st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3) | st.booleans()


def play(
    grid: FakeGrid,
    arrays: ArrayRecord | None = None,
    config: dict[str, Any] | None = None,
    inner: FedAvg | None = None,
    rounds: int = 1,
    **settings: Any,  # noqa: ANN401
) -> PrivateStrategy:
    kept = PrivateStrategy(inner or FedAvg(**QUIET), **{"deadline": 1, "resume": False, "empty_rounds": 0, **settings})
    kept.start(grid, arrays or initial_arrays(), rounds, timeout=1, train_config=ConfigRecord(config or {}))
    return kept


def total_of(kept: PrivateStrategy) -> object:
    mean = results_of(kept)[-1].value
    return mean.metrics["num-examples"] if mean else None


def kept_by(number: int, name: str) -> bytes | None:
    node = Node(NodeSettings.read({"partition-id": number}))
    with node.memory() as file:
        return file.of(node.client).fixed(name)


def reporting(sizes: list[float], metric: str = "num-examples") -> ClientApp:
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        metrics = MetricRecord({metric: sizes[int(context.node_config["partition-id"])]})
        arrays = message.content.array_records["arrays"]
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({metric: 1000, "accuracy": 0.5})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def test_the_first_reported_weight_is_kept_and_later_ones_are_logged_and_ignored(
    log: pytest.LogCaptureFixture,
) -> None:
    sizes: list[float] = [3, 4]
    grid = make_grid(reporting(sizes), 2)
    assert total_of(play(grid)) == 7
    assert "keeps its first weight" not in log.text
    sizes[:] = [5, 4]
    assert total_of(play(grid)) == 7
    lines = [line for line in log.messages if "keeps its first weight" in line]
    assert lines == ["Coterie: num-examples has changed; this node keeps its first weight"]
    assert kept_by(0, "weight train") == b"3"


def test_a_scale_far_too_wide_for_the_weights_is_logged_once_with_its_cost(
    log: pytest.LogCaptureFixture,
) -> None:
    PrivateStrategy(FedAvg(**QUIET), deadline=1).start(make_grid(reporting([3, 4]), 2), initial_arrays(), 3, timeout=1)
    lines = [line for line in log.messages if "is rounded to about" in line]
    assert len(lines) == 1
    assert "about 4e-04 of its range (clip), because most_examples is 10,000 and the mean weight" in lines[0]
    assert "of a node is 3.5." in lines[0]


def test_a_scale_that_fits_the_weights_is_not_mentioned(log: pytest.LogCaptureFixture) -> None:
    assert total_of(play(make_grid(reporting([3, 4]), 2), most_examples=4)) == 7
    assert "is rounded to about" not in log.text
    assert "a node counts for" not in log.text


def test_a_node_logs_that_it_counts_for_less_than_it_reports(log: pytest.LogCaptureFixture) -> None:
    assert total_of(play(make_grid(reporting([3, 50_000]), 2))) == 10_003
    lines = [line for line in log.messages if "a node counts for" in line]
    assert lines == ["Coterie: num-examples is more than a node counts for at most (most_examples)"]


def test_training_and_evaluation_have_a_weight_each() -> None:
    grid = make_grid(reporting([3, 4]), 2)
    kept = PrivateStrategy(FedAvg(), deadline=1, evaluate_metrics={"accuracy": (0, 1)})
    kept.start(grid, initial_arrays(), 1, timeout=1)
    assert total_of(kept) == 2000
    assert (kept_by(0, "weight train"), kept_by(0, "weight evaluate")) == (b"3", b"1000")


def test_a_weight_is_on_disk_before_the_contribution_leaves() -> None:
    seen: list[bytes | None] = []

    def listen(message: Message, answer: Any) -> Message:  # noqa: ANN401
        reply: Message = answer(message)
        if "arrays" in message.content:
            seen.append(kept_by(message.metadata.dst_node_id - 100, "weight train"))
        return reply

    play(make_grid(reporting([3, 4]), 2, listen))
    assert seen == [b"3", b"4"]


def test_a_weight_set_by_the_operator_replaces_the_apps_number(log: pytest.LogCaptureFixture) -> None:
    grid = make_grid(reporting([3, 4]), 2)
    grid.nodes[100].node_config["coterie-weight"] = 50
    grid.nodes[101].node_config["coterie-weight"] = 10**6
    assert total_of(play(grid, most_examples=100)) == 50 + 100
    assert "keeps its first weight" not in log.text
    grid.nodes[100].node_config.pop("coterie-weight")
    assert total_of(play(grid, most_examples=100)) == 50 + 100
    grid.nodes[100].node_config["coterie-weight"] = 51
    assert total_of(play(grid, most_examples=100)) is None
    assert "coterie-weight is not the weight that this node had before" in log.text


def test_an_app_without_the_metric_fails_also_if_the_operator_sets_the_weight() -> None:
    grid = make_grid(reporting([3, 4], "batches"), 2, config={"coterie-weight": 5})
    assert total_of(play(grid)) is None


def test_a_failed_contribution_fixes_no_configuration() -> None:
    """If the first attempt contributes nothing because of a bug in the app, the next may have another configuration."""
    assert total_of(play(make_grid(reporting([3, 4], "batches"), 2), config={"lr": 0.1})) is None
    assert kept_by(0, "task train.default") is None
    assert total_of(play(make_grid(reporting([3, 4]), 2), config={"lr": 0.2})) == 7


@pytest.mark.parametrize("where", ["message", "run"])
def test_a_configuration_stays_as_it_was_and_the_log_names_what_changed(
    where: str, log: pytest.LogCaptureFixture
) -> None:
    def grid(**config: Any) -> FakeGrid:  # noqa: ANN401
        made = make_grid(reporting([3, 4]), 2)
        for node in made.nodes.values():
            node.run_config.update(config if where == "run" else {})
        return made

    def session(**config: Any) -> object:  # noqa: ANN401
        return total_of(play(grid(**config), config=config if where == "message" else {}, varying=["lr"]))

    assert session(lr=0.1, epochs=1) == 7
    assert session(lr=0.2, epochs=1) == 7  # varies
    assert session(lr=0.2, epochs=2) is None
    named = "'epochs' of the run" if where == "run" else "'epochs' of 'config'"
    assert f"differently than the first time: {named}. The configuration is fixed" in log.text
    assert "varying=... names the keys that have to change" in log.text
    assert session(lr=0.2) is None
    assert session(lr=0.2, epochs=1, momentum=0.9) is None
    assert session(epochs=1) == 7


def test_a_resumed_run_may_have_another_number_of_rounds() -> None:
    grid = make_grid(reporting([3, 4]), 2)
    for rounds in (3, 2):
        for node in grid.nodes.values():
            node.run_config["num-server-rounds"] = rounds
        kept = play(grid, rounds=rounds)
        assert sums_of(kept) == [2] * rounds


@pytest.mark.parametrize(
    "other",
    [
        {"running_var": np.zeros(3), "v": np.zeros(3)},
        {"w": np.zeros(3), "v": np.zeros(3), "b": np.zeros(1)},
        {"w": np.zeros(4), "v": np.zeros(3)},
        {"w": np.zeros(3, np.int64), "v": np.zeros(3)},
        {"w": np.zeros(3, np.float32), "v": np.zeros(3)},
        {"v": np.zeros(3), "w": np.zeros(3)},
        {},
    ],
    ids=["renamed", "another", "longer", "of whole numbers", "of another type", "in another order", "none"],
)
def test_names_shapes_types_and_order_of_arrays_cannot_change(other: dict[str, Any]) -> None:
    grid = make_grid(reporting([3, 4]), 2)
    first = ArrayRecord({"w": Array(np.zeros(3)), "v": Array(np.zeros(3))})
    assert total_of(play(grid, first)) == 7
    assert total_of(play(grid, ArrayRecord({name: Array(array) for name, array in other.items()}))) is None
    later = ArrayRecord({"w": Array(np.ones(3)), "v": Array(np.zeros(3))})
    assert total_of(play(grid, later)) == 7


@given(
    st.dictionaries(st.text(max_size=4), VALUES),
    st.dictionaries(st.text(max_size=4), VALUES),
    st.sets(st.text(max_size=4)),
)
def test_two_configurations_are_treated_as_equal_only_if_they_are(
    one: dict[str, Any], other: dict[str, Any], varying: set[str]
) -> None:
    def fixed(config: dict[str, Any]) -> dict[str, str]:
        return {key: repr(value) for key, value in config.items() if key not in varying}

    first, second = (configured(config, RecordDict(), tuple(varying)) for config in (one, other))
    assert (first == second) == (fixed(one) == fixed(other))
    check_unchanged(None, first)
    check_unchanged(first, first)
    if first != second:
        with pytest.raises(PeerProtocolError, match="differently than the first time"):
            check_unchanged(first, second)


def test_each_function_of_an_app_has_its_own_configuration() -> None:
    records = RecordDict({"config": ConfigRecord({"lr": 0.1})})
    metrics = RecordDict({"config": MetricRecord({"lr": 0.1})})
    assert configured({}, records, ()) != configured({}, metrics, ())
    assert configured({}, metrics, ()) != configured({}, RecordDict({"config": MetricRecord({"lr": 0.2})}), ())
    assert configured({}, RecordDict(), ()) != configured({}, RecordDict({"flag": ConfigRecord()}), ())
    assert configured({}, records, ()) != configured({"lr": 0.1}, RecordDict(), ())
    grid = make_grid(make_app([private_mod]), 2)
    PrivateStrategy(FedAvg(), deadline=1, evaluate_metrics={"accuracy": (0, 1)}).start(
        grid,
        initial_arrays(),
        2,
        timeout=1,
        train_config=ConfigRecord({"lr": 0.1}),
        evaluate_config=ConfigRecord({"batch-size": 5}),
    )
    assert kept_by(0, "task train.default") != kept_by(0, "task evaluate.default")


def test_a_roster_of_an_older_version_is_refused_by_server_and_nodes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = make_grid(reporting([3, 4]), 2)
    found = Roster.found
    with monkeypatch.context() as old:
        old.setattr(Roster, "found", lambda clients, circles, privacy, _recipe: found(clients, circles, privacy))
        with pytest.raises(ConfigError, match="older version of Coterie founded this roster"):
            play(grid)
    folder = RosterFolder(home / "server" / "rosters")
    assert folder.latest is not None
    assert folder.latest.recipe == b""
    with pytest.raises(ConfigError, match="found another population: a new COTERIE_HOME"):
        play(grid)
    node = Node(NodeSettings.read({"partition-id": 0}))
    with node.memory() as file:
        memory = file.of(node.client)
        with pytest.raises(ConfigError, match="older version"):
            check_roster(node.settings, memory, [folder.latest], {})
        memory.trust(folder.latest)  # as an older version of the node did
        with pytest.raises(ConfigError, match="older version"):
            check_roster(node.settings, memory, [], {})


def counting(batches: int) -> ClientApp:
    """Return an app whose model has the state of a batch normalisation: a counter, a variance and a weight."""
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
        # As load_state_dict and state_dict do: every value that arrives becomes an integer, and is sent back as one.
        arrays["bn.num_batches_tracked"] = np.asarray(arrays["bn.num_batches_tracked"]).astype(np.int64) + batches
        arrays["seen"] = np.asarray(arrays["seen"]).astype(np.int64) + 10 * batches
        arrays["bn.running_var"] = np.full_like(arrays["bn.running_var"], 4617)
        arrays["w"] = arrays["w"] + np.asarray([0, 5, 0.5], dtype=np.float32)
        reply = ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
        return Message(RecordDict({"arrays": reply, "m": MetricRecord({"num-examples": 30})}), reply_to=message)

    return app


def normalised() -> ArrayRecord:
    return ArrayRecord(
        {
            "w": Array(np.zeros(3, np.float32)),
            "bn.running_var": Array(np.ones(2, np.float32)),
            "bn.num_batches_tracked": Array(np.array(0)),
            "seen": Array(np.zeros(2, np.int64)),
        }
    )


@pytest.mark.parametrize("kind", [FedAvg, strategy.FedAvgM, strategy.FedProx], ids=["FedAvg", "FedAvgM", "FedProx"])
def test_counters_and_running_statistics_survive_every_round(
    kind: Any,  # noqa: ANN401
    log: pytest.LogCaptureFixture,
) -> None:
    inner = kind(**QUIET, **({"proximal_mu": 0.1} if kind is strategy.FedProx else {}))
    found: list[tuple[float, float, float]] = []

    def evaluate(_number: int, arrays: ArrayRecord) -> None:
        state = {name: array.numpy() for name, array in arrays.items()}
        found.append((float(state["bn.num_batches_tracked"]), state["bn.running_var"][0], state["seen"][0]))

    kept = PrivateStrategy(inner, deadline=1)
    kept.start(make_grid(counting(15), 4), normalised(), 3, timeout=1, evaluate_fn=evaluate)
    exactly = 1e-9 if kind is strategy.FedAvgM else 0  # the momentum of FedAvgM has its own arithmetic
    assert [count for count, _, _ in found] == pytest.approx([0, 15, 30, 45], abs=exactly)
    assert [seen for _, _, seen in found] == pytest.approx([0, 150, 300, 450], abs=exactly)
    assert [round(float(var)) for _, var, _ in found] == [1, 4617, 4617, 4617]
    warned = [line for line in log.messages if "were clipped" in line]
    assert len(warned) == 3
    assert all("33.3 % of w." in line and "running_var" not in line for line in warned)
