"""Confined descent on Flower: own models stay on their nodes, and public ones follow from sums over whole circles."""

import stat
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
from tests.support.confined import ANCHOR, CENTRES, LOOSE, World, change, folders, loss, own, places, start

from coterie.cohorts.ledger import Ledger
from coterie.deployment.confinement import Confinement
from coterie.deployment.roster_folder import RosterFolder
from coterie.errors import ConfigError, NothingTrained
from coterie.transports.flower import PrivateStrategy

NODES = len(CENTRES)


def check_descent(home: Path, world: World, confined: Confinement) -> None:
    """Every public step is the mean over all nodes, and every own model is what the node's own loss makes of them."""
    walks = [list(places(home, world, node, confined, world.models[:-1])) for node in range(NODES)]
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
def test_own_models_move_by_public_steps_that_nodes_take(home: Path, confined: Confinement) -> None:
    world = World()
    world.run(6, confined)
    check_descent(home, world, confined)
    assert np.linalg.norm(world.models[-1] - CENTRES.mean(axis=0)) < np.linalg.norm(
        world.models[0] - CENTRES.mean(axis=0)
    )


def test_starts_differ_between_nodes_and_stay_the_same_for_a_node(home: Path) -> None:
    world = World()
    world.run(1)
    first = [own(home, node) for node in range(NODES)]
    assert len({tuple(model) for model in first}) == NODES
    assert first == [pytest.approx(start(home, node, ANCHOR, 0.1)) for node in range(NODES)]
    world.run(1, anchor=ANCHOR + 1)
    again = [own(home, node) for node in range(NODES)]
    assert again == [pytest.approx(model + 1) for model in first]


def test_files_of_a_node_are_its_own(home: Path) -> None:
    World().run(2)
    for folder in folders(home):
        found = [path for path in (folder / "confined").iterdir() if not path.name.endswith(".lock")]
        assert {path.suffix for path in found} == {".key", ".model"}
        assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}


def test_a_node_that_was_away_judges_every_model_it_missed(home: Path) -> None:
    world = World()
    everything = world.grid()
    here = dict(everything.nodes)

    class Leaving(FedAvg):
        """Two nodes are away in rounds 2 to 4."""

        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:  # noqa: ANN401
            away = mates(home, 0) if 2 <= server_round <= 4 else set()
            everything.nodes = {number: node for number, node in here.items() if number - 100 not in away}
            return super().configure_train(server_round, arrays, config, grid)

    strategy = PrivateStrategy(
        Leaving(fraction_evaluate=0.0), confined=Confinement(), deadline=2, most_examples=1, clip=4.0
    )

    def note(server_round: int, arrays: ArrayRecord) -> None:
        world.models.append(arrays["w"].numpy().copy())

    strategy.start(everything, ArrayRecord({"w": Array(ANCHOR.copy())}), 6, evaluate_fn=note)
    assert strategy.grid is not None
    assert [len(result.revealed) for result in strategy.grid.results] == [4, 2, 2, 2, 4, 4]
    for node in range(NODES):
        *_, (model, _) = places(home, world, node, Confinement(), world.models[:-1])
        assert own(home, node) == pytest.approx(model, abs=1e-12)
    sizes = [
        len([name for name in message.content if name.startswith("coterie-missed")]) for message in everything.sent
    ]
    assert max(sizes) == 3, "the models of three rounds were sent again"


def mates(home: Path, node: int) -> set[int]:
    """The nodes in the circle of one."""
    roster = RosterFolder(home / "server" / "rosters").latest
    assert roster is not None
    (circle,) = [circle for circle in roster.circles if roster.names.index(f"partition-{node}") in circle]
    return {int(roster.names[number].removeprefix("partition-")) for number in circle}


def test_a_server_that_was_killed_goes_on_with_its_chain(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def stop(event: object) -> None:
        if getattr(event, "step", "") == "mask" and getattr(event, "round", 0) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.run(5, observer=stop)
    assert list((home / "server").glob("*.descent"))
    before = [own(home, node) for node in range(NODES)]
    world.run(5)
    check_descent(home, world, Confinement())
    assert all(not np.array_equal(then, own(home, node)) for node, then in enumerate(before))
    assert not list((home / "server").glob("*.descent")), "a finished run leaves no chain"


def test_evaluation_is_of_the_nodes_own_models_and_moves_none(home: Path) -> None:
    world = World()
    strategy = world.run(3, evaluates=True)
    check_descent(home, world, Confinement())
    losses = [loss(own(home, node).astype(np.float32), CENTRES[node]) for node in range(NODES)]
    assert strategy.grid is not None
    mean = strategy.grid.results[-1].value
    assert mean is not None
    assert mean.metrics["train_loss"] == pytest.approx(np.mean(losses), abs=1e-4)
    assert [kind for kind, node in world.calls if node == 0] == [
        *["train", "evaluate"],
        *["train", "train", "evaluate"],
        *["train", "train", "evaluate"],
    ]


def test_a_poisoned_step_is_refused_and_stays_refused(home: Path) -> None:
    world = World(poison={3: np.full(3, -4.0)})
    world.run(4, Confinement(norm=20.0))
    check_descent(home, world, Confinement(norm=20.0))
    assert world.models[-1].max() < 0, "the public model went where the poison led it"
    for node in range(3):
        assert np.linalg.norm(own(home, node) - CENTRES[node]) < 2, "and honest models did not"


def test_without_the_check_poison_is_taken(home: Path) -> None:
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
    assert max(refused for walk in walks for _, refused in walk) >= 2, "nobody came to the bound"


def test_a_decision_shows_in_no_message(home: Path) -> None:
    """As many calls of the app and as many bytes, whether moves are taken or refused."""
    seen = []
    for poison in ({}, {3: np.full(3, -4.0)}):
        world = World(poison=poison)
        grid = world.grid()
        world.run(3, Confinement(norm=20.0), grid, resume=False)
        traffic = [(message.metadata.dst_node_id, sorted(message.content)) for message in grid.sent]
        seen.append((world.calls, traffic))
    assert seen[0] == seen[1]


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
def test_a_confinement_that_cannot_work_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"confined: {next(iter(wrong))}"):
        Confinement(**wrong)


def test_what_is_no_confinement_is_refused() -> None:
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


def test_an_app_that_reports_no_loss_is_named(home: Path) -> None:
    world = World()
    with pytest.raises(NothingTrained, match="lacks the loss that confined descent judges"):
        world.run(3, Confinement(loss="error"), empty_rounds=1)


def test_settings_of_confined_descent_are_fixed_by_the_roster(home: Path) -> None:
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


def test_a_damaged_model_is_refused_and_named(home: Path) -> None:
    world = World()

    def stop(event: object) -> None:
        if getattr(event, "outcome", "") == "completed" and getattr(event, "round", 0) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.run(3, observer=stop)
    for folder in folders(home):
        (path,) = (folder / "confined").glob("*.model")
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(NothingTrained, match="cannot use its settings"):
        world.run(3, empty_rounds=1)
