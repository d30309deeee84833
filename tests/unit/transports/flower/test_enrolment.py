from pathlib import Path

import msgspec
import pytest
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import FakeGrid, FakeNode, initial_arrays, make_app, make_grid

from coterie.cohorts import Ledger
from coterie.deployment.credentials import Voucher
from coterie.deployment.enrolment import VoucherFile
from coterie.deployment.roster_folder import RosterFolder
from coterie.errors import ConfigError
from coterie.transports.flower import PrivateStrategy, private_mod


def play(grid: FakeGrid, rounds: int = 1, privacy: int = 2, deadline: float = 2) -> PrivateStrategy:
    kept = PrivateStrategy(FedAvg(fraction_evaluate=0.0), privacy=privacy, deadline=deadline)
    kept.start(grid, initial_arrays(), rounds)
    return kept


def rosters(home: Path) -> RosterFolder:
    return RosterFolder(home / "server" / "rosters")


def test_the_connected_nodes_found_the_roster(home: Path) -> None:
    play(make_grid(make_app([private_mod]), 5))
    roster = rosters(home).latest
    assert roster is not None
    assert roster.names == tuple(f"partition-{number}" for number in range(5))
    assert sorted(map(len, roster.circles)) == [2, 3]


def test_newcomers_wait_until_they_are_a_circle(home: Path) -> None:
    app = make_app([private_mod])
    play(make_grid(app, 4))
    kept = play(make_grid(app, 5))
    latest = rosters(home).latest
    assert latest is not None
    assert [latest.names[number] for number in latest.queue] == ["partition-4"]
    assert kept.grid is not None
    assert len(kept.grid.results[-1].revealed) == 4
    kept = play(make_grid(app, 6))
    latest = rosters(home).latest
    assert latest is not None
    assert latest.circles[-1] == (4, 5)
    assert kept.grid is not None
    assert len(kept.grid.results[-1].revealed) == 6


def test_a_newcomer_is_enrolled_in_the_middle_of_a_run(home: Path) -> None:
    grid = make_grid(make_app([private_mod]), 4)
    kept = PrivateStrategy(FedAvg(fraction_evaluate=0.0), deadline=2)

    def arrives(number: int, _arrays: object) -> None:
        if number == 1:
            grid.nodes[900] = FakeNode(grid.nodes[100].app, {"partition-id": 8})
            grid.nodes[901] = FakeNode(grid.nodes[100].app, {"partition-id": 9})

    kept.start(grid, initial_arrays(), 2, evaluate_fn=arrives)
    assert kept.grid is not None
    assert [len(result.revealed) for result in kept.grid.results] == [4, 6]


def test_a_node_under_another_number_is_recognised() -> None:
    app = make_app([private_mod])
    play(make_grid(app, 4))
    grid = make_grid(app, 4)
    grid.nodes = {number + 500: node for number, node in grid.nodes.items()}
    kept = play(grid)
    assert kept.grid is not None
    assert len(kept.grid.results[-1].revealed) == 4


def test_a_circle_that_is_not_complete_sits_out(home: Path) -> None:
    app = make_app([private_mod])
    play(make_grid(app, 6))
    grid = make_grid(app, 6)
    del grid.nodes[100]
    kept = play(grid)
    roster = rosters(home).latest
    assert kept.grid is not None
    assert roster is not None
    alone = {client.name for client in roster.circle_of("partition-0") or ()}
    assert set(kept.grid.results[-1].revealed) == set(roster.names) - alone


def test_too_few_nodes_are_refused() -> None:
    with pytest.raises(ConfigError, match="1 node enrolled within"):
        play(make_grid(make_app([private_mod]), 1), deadline=0.5)


def test_a_roster_promises_one_privacy_for_good() -> None:
    app = make_app([private_mod])
    play(make_grid(app, 4))
    with pytest.raises(ConfigError, match="T = 2"):
        play(make_grid(app, 4), privacy=4)


def test_an_impostor_under_a_known_name_takes_no_part(home: Path) -> None:
    app = make_app([private_mod])
    play(make_grid(app, 4))
    (home / "nodes" / "partition-0" / "identity.key").unlink()
    (home / "nodes" / "partition-0" / "memory.sqlite").unlink()
    kept = play(make_grid(app, 4))
    assert kept.grid is not None
    assert "partition-0" not in kept.grid.results[-1].revealed
    assert len(kept.grid.results[-1].revealed) == 2


def test_a_server_killed_after_the_reveal_does_not_take_the_row_back(home: Path) -> None:
    app = make_app([private_mod])

    class Stop(BaseException):
        pass

    asked = {"steps": 0}

    def dies(message: object, answer: object) -> object:
        asked["steps"] += 1
        if asked["steps"] > 3 * 4:  # four clients said hello, twice, and contributed: now they are asked to reveal
            raise Stop
        return answer(message)  # type: ignore[operator]

    grid = make_grid(app, 4)
    grid.deliver = dies  # type: ignore[assignment]
    with pytest.raises(Stop):
        play(grid)
    with Ledger.inspect(home / "server" / "ledger.sqlite") as ledger:
        assert len(ledger.revealed(1)) == 4
    kept = play(make_grid(app, 4))
    assert kept.grid is not None
    assert kept.grid.results[-1].number == 2


def test_a_circle_retired_during_a_run_is_out_of_it_from_the_next_round(home: Path) -> None:
    grid = make_grid(make_app([private_mod]), 6)
    kept = PrivateStrategy(FedAvg(fraction_evaluate=0.0), deadline=2)

    def retires(number: int, _arrays: object) -> None:
        if number == 1:
            folder = rosters(home)
            assert folder.latest is not None
            folder.add(folder.latest.leave(["partition-0"]))
            for newcomer in (8, 9):  # a second new version in the same gap
                grid.nodes[900 + newcomer] = FakeNode(grid.nodes[100].app, {"partition-id": newcomer})

    kept.start(grid, initial_arrays(), 2, evaluate_fn=retires)
    assert kept.grid is not None
    first, second = (set(result.revealed) for result in kept.grid.results)
    assert "partition-0" in first
    assert "partition-0" not in second
    assert {"partition-8", "partition-9"} <= second
    assert len(second) == 6


def test_a_population_may_grow_several_times_in_a_run() -> None:
    app = make_app([private_mod])
    play(make_grid(app, 2))
    grid = make_grid(app, 2)
    kept = PrivateStrategy(FedAvg(fraction_evaluate=0.0), deadline=2)

    def arrive(number: int, _arrays: object) -> None:
        for newcomer in (2 * number + 2, 2 * number + 3):
            grid.nodes[900 + newcomer] = FakeNode(app, {"partition-id": newcomer})

    kept.start(grid, initial_arrays(), 3, evaluate_fn=arrive)
    assert kept.grid is not None
    assert [len(result.revealed) for result in kept.grid.results] == [4, 6, 8]


def test_vouchers_of_nodes_that_never_enrolled_are_removed(tmp_path: Path) -> None:
    vouchers = VoucherFile(tmp_path / "vouchers")
    vouchers.add("ann", Voucher(b"squatter", b"signature"))
    vouchers.add("ann", Voucher(b"ann", b"signature"))
    kept = msgspec.msgpack.decode(VoucherFile(tmp_path / "vouchers").to_bytes(), type=dict[str, Voucher])
    assert kept == {"ann": Voucher(b"ann", b"signature")}
    (tmp_path / "vouchers").write_bytes(b"junk")
    with pytest.raises(ConfigError, match="damaged"):
        VoucherFile(tmp_path / "vouchers")
