"""Confined descent on Flower: own models stay on their nodes, and public ones follow from sums over whole circles."""

import hashlib
import stat
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from tests.support.confined import ANCHOR, CENTRES, LOOSE, World, change, folders, loss, own, places, start
from tests.support.flower import FakeGrid, initial_arrays
from tests.support.flower_strategies import last_mean, private_grid, sums_of
from tests.support.homes import latest_roster

from coterie.cohorts.ledger import Ledger
from coterie.deployment.checkpoint import CheckpointFile
from coterie.deployment.confined import own_state
from coterie.deployment.confinement import Confinement
from coterie.deployment.displacement import Displacement
from coterie.deployment.engine import SHOW, Arrays, Trip, TripReply
from coterie.deployment.home import server_home
from coterie.errors import CarrierError, ConfigError, InputError, NothingTrained
from coterie.transports.flower import PrivateStrategy
from coterie.transports.flower.carrier import FlowerCarrier
from coterie.transports.flower.confined import with_displacement
from coterie.transports.flower.records import DESCENT, MISSED, pack

NODES = len(CENTRES)


def check_descent(home: Path, world: World, confined: Confinement) -> None:
    """Check that each public step is the mean over all nodes, and that each own model follows from the node's loss."""
    walks = [list(places(home, world, node, confined, world.models)) for node in range(NODES)]
    for number, (before, after) in enumerate(pairwise(world.models)):
        changes = [change(world, node, confined, *walks[node][number]) for node in range(NODES)]
        assert after - before == pytest.approx(np.mean(changes, axis=0), abs=2e-5), number
    for node in range(NODES):
        assert own(home, node) == pytest.approx(walks[node][-1][0], abs=1e-12), node


@pytest.mark.parametrize(
    "confined",
    [Confinement(), LOOSE, Confinement(spread=0.0), Confinement(spread=2.0, norm=0.3), Confinement(threshold=0.5)],
    ids=str,
)
def test_own_models_follow_the_accepted_public_steps(home: Path, confined: Confinement) -> None:
    world = World()
    world.run(6, confined)
    check_descent(home, world, confined)
    assert all(np.any(after != before) for before, after in pairwise(world.models))


@pytest.mark.parametrize("protocol", ["papers", "two-trips"])
@pytest.mark.parametrize("mode", ["active-server", "honest-but-curious"])
def test_confined_descent_runs_over_every_protocol(home: Path, protocol: str, mode: str) -> None:
    world = World()
    world.run(2, None, world.grid(**{"coterie-mode": mode}), protocol=protocol, mode=mode)
    check_descent(home, world, Confinement())


def test_starts_differ_between_nodes_and_stay_the_same_for_a_node(home: Path) -> None:
    world = World()
    world.run(1)
    check_descent(home, world, Confinement())
    first = [start(home, node, ANCHOR, 0.1) for node in range(NODES)]
    assert len({tuple(model) for model in first}) == NODES
    world.run(1, anchor=ANCHOR + 1)
    check_descent(home, world, Confinement())
    assert [start(home, node, ANCHOR, 0.1) for node in range(NODES)] == [pytest.approx(model) for model in first]


def test_a_node_may_have_its_own_spread(home: Path) -> None:
    world = World()
    grid = world.grid()
    grid.nodes[100].node_config["coterie-spread"] = 0
    grid.nodes[101].node_config["coterie-spread"] = 3.0
    world.run(1, LOOSE, grid)
    step = world.models[1] - world.models[0]
    for node, spread in enumerate([0.0, 3.0, 0.1, 0.1]):
        assert own(home, node) == pytest.approx(start(home, node, ANCHOR, spread) + step, abs=1e-6)


def test_files_of_a_node_are_readable_only_by_its_user(home: Path) -> None:
    World().run(2)
    for folder in folders(home):
        found = [path for path in (folder / "confined").iterdir() if not path.name.endswith(".lock")]
        assert {path.suffix for path in found} == {".model"}
        assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}


class Disturbed(FedAvg):
    """A strategy that calls a function before each round."""

    def __init__(self, disturb: Callable[[int], object]) -> None:
        super().__init__(fraction_evaluate=0.0)
        self._disturb = disturb

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:  # noqa: ANN401
        self._disturb(server_round)
        return super().configure_train(server_round, arrays, config, grid)


def check_own_models(home: Path, world: World) -> None:
    for node in range(NODES):
        *_, (model, _) = places(home, world, node, Confinement(), world.models)
        assert own(home, node) == pytest.approx(model, abs=1e-12)


def missed(grid: FakeGrid) -> int:
    """Return the largest number of earlier models that were sent with a model."""
    return max(sum(name.startswith(MISSED) for name in message.content) for message in grid.sent)


def test_a_node_that_was_away_judges_every_model_it_missed(home: Path) -> None:
    world = World()
    grid = world.grid()
    here = dict(grid.nodes)

    def leave(server_round: int) -> None:
        away = mates(home, 0) if 2 <= server_round <= 4 else set()
        grid.nodes = {number: node for number, node in here.items() if number - 100 not in away}

    assert sums_of(world.run(6, None, grid, strategy=Disturbed(leave))) == [4, 2, 2, 2, 4, 4]
    check_own_models(home, world)
    assert missed(grid) == 3, "the models of three rounds were sent again"


def test_a_node_that_lost_its_model_makes_it_again(home: Path) -> None:
    world = World()
    grid = world.grid()

    def lose(server_round: int) -> None:
        if server_round == 3:
            (model,) = (home / "nodes" / "partition-1" / "confined").glob("*.model")
            model.unlink()

    strategy = world.run(5, None, grid, strategy=Disturbed(lose))
    assert sums_of(strategy) == [4, 4, 2, 4, 4], "its circle is left out once, until it was sent all models"
    check_own_models(home, world)
    assert missed(grid) == 3


def test_circles_that_take_turns_judge_all_models(home: Path) -> None:
    world = World()
    assert sums_of(world.run(6, cohort=2)) == [2] * 6
    check_own_models(home, world)


def mates(home: Path, node: int) -> set[int]:
    """Return the nodes in the circle of this node."""
    circle = latest_roster(home / "server").circle_of(f"partition-{node}") or ()
    return {int(client.name.removeprefix("partition-")) for client in circle}


def interrupt(world: World, rounds: int, **attributes: object) -> None:
    """Begin a run, and interrupt it at the first event with these attributes."""

    def stop(event: object) -> None:
        if all(getattr(event, name, None) == value for name, value in attributes.items()):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.run(rounds, observer=stop)


def test_a_killed_server_continues_its_chain(home: Path) -> None:
    world = World()
    interrupt(world, 5, step="contribute", round=3)
    assert list((home / "server").glob("*.descent"))
    before = [own(home, node) for node in range(NODES)]
    world.run(5)
    check_descent(home, world, Confinement())
    assert all(not np.array_equal(then, own(home, node)) for node, then in enumerate(before))
    assert not list((home / "server").glob("*.descent")), "a finished run leaves no chain"


def test_a_failed_run_beside_another_leaves_no_chain(home: Path) -> None:
    """It has no checkpoint, so no later run can resume its descent."""

    def stop(event: object) -> None:
        assert list((home / "server").glob("*.descent"))
        raise KeyboardInterrupt

    name = f"app-{hashlib.sha256().hexdigest()[:16]}.checkpoint"
    with CheckpointFile.hold(server_home() / name, resume=False), pytest.raises(KeyboardInterrupt):
        World().run(2, resume=False, observer=stop)
    assert not list((home / "server").glob("*.descent"))


def test_evaluation_uses_the_nodes_own_models_and_moves_none(home: Path) -> None:
    world = World()
    strategy = world.run(3, evaluates=True)
    check_descent(home, world, Confinement())
    before = [list(places(home, world, node, Confinement(), world.models[:-1]))[-1][0] for node in range(NODES)]
    losses = [loss(model.astype(np.float32), CENTRES[node]) for node, model in enumerate(before)]
    assert last_mean(strategy).metrics["train_loss"] == pytest.approx(np.mean(losses), abs=1e-4)
    assert [kind for kind, node in world.calls if node == 0] == [
        *["train", "train", "evaluate"],
        *["train", "train", "evaluate"],
        *["train", "train", "evaluate"],
        *["train", "train"],
    ], "twice in a round, and twice for the last model"


def test_a_poisoned_step_is_refused_and_stays_refused(home: Path) -> None:
    world = World(poison={3: np.full(3, -4.0)})
    world.run(4, Confinement(norm=20.0))
    check_descent(home, world, Confinement(norm=20.0))
    assert world.models[-1].max() < 0, "the public model followed the poison"
    for node in range(3):
        assert np.linalg.norm(own(home, node) - CENTRES[node]) < 2, "honest models did not follow it"


def test_without_the_check_poison_is_accepted(home: Path) -> None:
    loose = Confinement(norm=20.0, threshold=None)
    world = World(poison={3: np.full(3, -4.0)})
    world.run(4, loose)
    check_descent(home, world, loose)
    assert all(np.linalg.norm(own(home, node) - CENTRES[node]) > 3 for node in range(3))


def test_a_node_that_refuses_too_long_contributes_no_change(home: Path) -> None:
    strict = Confinement(norm=20.0, tau=2)
    world = World(poison={3: np.full(3, -4.0)})
    world.run(5, strict)
    check_descent(home, world, strict)
    walks = [list(places(home, world, node, strict, world.models)) for node in range(NODES)]
    assert max(refused for walk in walks for _, refused in walk) >= 2, "no node reached the bound"


def test_no_message_reveals_a_decision(home: Path) -> None:
    """Taken and refused moves cause the same calls of the app and replies of the same size."""
    World().run(1, Confinement(norm=20.0))  # nodes say hello and leave their first prekeys
    seen = []
    for poison in ({}, {3: np.full(3, -4.0)}):
        world, sizes = World(poison=poison), list[tuple[str, int, int]]()
        grid = world.grid()
        grid.deliver = partial(measure, sizes)
        world.run(3, Confinement(norm=20.0), grid)
        refused = [list(places(home, world, node, Confinement(norm=20.0), world.models))[-1][1] for node in range(3)]
        seen.append((world.calls, [size for step, *size in sizes if step != "hello"], max(refused)))
    assert seen[0][2] == 0
    assert seen[1][2] > 0, "poison was refused"
    assert seen[0][:2] == seen[1][:2]


def measure(
    sizes: list[tuple[str, int, int]], message: Message, answer: Callable[[Message], Message]
) -> Message | None:
    """Record the kind of a request, its node and the size of the reply."""
    reply = answer(message)
    size = sum(len(array.data) for record in reply.content.array_records.values() for array in record.values())
    kind = str(message.content.config_records["coterie"]["kind"])
    sizes.append((kind, message.metadata.dst_node_id, size))
    return reply


def test_sums_are_over_whole_circles(home: Path) -> None:
    World().run(3)
    with Ledger.open(home / "server" / "ledger.sqlite") as ledger:
        ledger.verify()
        assert [len(row) for _, row in ledger.rows()] == [NODES] * 3


@pytest.mark.parametrize(
    "wrong",
    [{"loss": ""}, {"loss": 3}, {"spread": -1.0}, {"spread": float("nan")}, {"norm": 0}, {"norm": "1"},
     {"threshold": -0.1}, {"threshold": float("inf")}, {"threshold": True}, {"tau": 0}, {"tau": 1.5}],
    ids=str,
)  # fmt: skip
def test_the_error_names_the_part_of_a_confinement_that_cannot_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"confined: {next(iter(wrong))}"):
        Confinement(**wrong)


def test_an_invalid_confinement_is_refused() -> None:
    with pytest.raises(ConfigError, match="confined is a Confinement"):
        PrivateStrategy(FedAvg(), confined=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "array"),
    [("steps", np.zeros(2, np.int64)), ("bn.running_var", np.ones(2, np.float32))],
    ids=["integers", "statistics"],
)
def test_a_model_with_more_than_parameters_is_refused_before_anything_is_sent(name: str, array: Any) -> None:  # noqa: ANN401
    grid = World().grid()
    arrays = ArrayRecord({"w": Array(ANCHOR.copy()), name: Array(array)})
    with pytest.raises(ConfigError, match=name):
        PrivateStrategy(FedAvg(), confined=LOOSE).start(grid, arrays, 1)
    assert not grid.sent


def test_the_reason_says_that_an_app_reports_no_loss() -> None:
    world = World()
    with pytest.raises(NothingTrained, match="lacks the loss by which confined descent"):
        world.run(3, Confinement(loss="error"), empty_rounds=1)


def test_settings_of_confined_descent_are_fixed_by_the_roster() -> None:
    world = World()
    world.run(1)
    for other in (Confinement(spread=0.2), Confinement(threshold=None)):
        with pytest.raises(ConfigError, match=r"confined is .* and the roster was founded with .spread 0.1"):
            world.run(1, other)
    with pytest.raises(ConfigError, match="confined is 'none'"):
        PrivateStrategy(FedAvg(fraction_evaluate=0.0), most_examples=1, clip=4.0, deadline=2).start(
            world.grid(), ArrayRecord({"w": Array(ANCHOR.copy())}), 1
        )


def test_only_the_last_few_descents_are_kept(home: Path) -> None:
    world = World()
    for _ in range(5):
        world.run(1)
    assert {len(list((folder / "confined").glob("*.model"))) for folder in folders(home)} == {3}


def test_a_damaged_model_of_a_node_is_refused(home: Path) -> None:
    world = World()
    interrupt(world, 3, outcome="completed", round=2)
    for folder in folders(home):
        (path,) = (folder / "confined").glob("*.model")
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(NothingTrained, match="cannot use its settings"):
        world.run(3, empty_rounds=1)


def show(grid: FakeGrid, records: RecordDict) -> Message:
    """Show a model to node 0 alone, outside a session."""
    about = pack(b"", {"kind": SHOW}, records)
    return grid.nodes[100].answer(Message(about, 100, "train", group_id="show"))


def shown_records(world: World, descent: bytes, models: list[NDArray[Any]]) -> RecordDict:
    arrays: list[Arrays] = [{"w": model} for model in models]
    app = RecordDict({"arrays": ArrayRecord({"w": Array(models[-1])}), "config": ConfigRecord({"server-round": 1})})
    return with_displacement(app, Displacement(descent, 0, descent, tuple(arrays)))


def test_a_model_that_is_only_shown_is_judged_and_answered_with_nothing(home: Path) -> None:
    world = World()
    world.run(1)
    grid, before, place = world.grid(), own(home, 0), own_state(home / "nodes" / "partition-0")
    calls = len(world.calls)
    for step in (0.01 * (CENTRES[0] - before), -100.0 * np.ones(3)):
        models = [*world.models, np.asarray(world.models[-1] + step, np.float32)]
        reply = show(grid, shown_records(world, place.descent, models))
        assert dict(reply.content.config_records) == {"coterie": {}}
        assert not reply.content.array_records
        world.models = models
    assert [len(world.calls) - calls, own_state(home / "nodes" / "partition-0").judged] == [4, 4]
    moved = own(home, 0)
    assert 0 < np.linalg.norm(moved - before) < 0.1, "the first was taken, and the second refused"


def test_a_model_that_is_only_shown_needs_the_usual_configuration(home: Path) -> None:
    world = World()
    world.run(1)
    place = own_state(home / "nodes" / "partition-0")
    records = shown_records(world, place.descent, [*world.models, world.models[-1] + 1])
    records.config_records["config"]["lr"] = 0.5
    calls = len(world.calls)
    assert show(world.grid(), records).error.reason == "configuration"
    assert len(world.calls) == calls
    assert own_state(home / "nodes" / "partition-0") == place


def test_nodes_of_an_unconfined_roster_refuse_shown_models() -> None:
    grid = private_grid()
    PrivateStrategy(FedAvg(fraction_evaluate=0.0)).start(grid, initial_arrays(), 1)
    reply = show(grid, RecordDict({"arrays": initial_arrays(), "config": ConfigRecord({"server-round": 1})}))
    assert reply.error.reason == "form"


def test_a_result_is_not_lost_if_nodes_cannot_be_shown_the_last_model(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send = FlowerCarrier.send

    def fail(self: FlowerCarrier, trip: Trip) -> Iterator[TripReply]:
        if trip.shows:
            raise CarrierError("the SuperLink is gone")
        return send(self, trip)

    monkeypatch.setattr(FlowerCarrier, "send", fail)
    world = World()
    assert sums_of(world.run(2)) == [4, 4]
    assert "nodes were not shown the last model" in caplog.text
    assert own_state(home / "nodes" / "partition-0").judged == 2


BROKEN: dict[str, Callable[[RecordDict], object]] = {
    "first": lambda records: records.config_records[DESCENT].update({"first": True}),
    "name": lambda records: records.config_records[DESCENT].update({"descent": "text"}),
    "link": lambda records: records.config_records[DESCENT].pop("before"),
    "gap": lambda records: records.update({f"{MISSED}7": initial_arrays()}),
    "nothing shown": lambda records: records.config_records[DESCENT].update({"shows": 1}),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_displacement_that_cannot_be_read_is_refused(home: Path, broken: str) -> None:
    world = World()
    world.run(1)
    records = shown_records(world, own_state(home / "nodes" / "partition-0").descent, world.models)
    BROKEN[broken](records)
    before, calls = own(home, 0), len(world.calls)
    reply = show(world.grid(), records)
    assert reply.has_error()
    assert reply.error.reason in ("form", "chain")
    assert len(world.calls) == calls
    assert np.array_equal(own(home, 0), before)


def test_a_server_shows_no_model_that_nodes_would_refuse_for_good() -> None:
    with pytest.raises(InputError, match="beside which their private starts would be lost"):
        World().run(1, anchor=ANCHOR + np.float32(1e6))
