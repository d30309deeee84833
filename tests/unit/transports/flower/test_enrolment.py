from itertools import count
from pathlib import Path

import msgspec
import pytest
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import Answer, FakeGrid, FakeNode, initial_arrays, make_app, make_grid
from tests.support.flower_strategies import QUIET, results_of, sums_of
from tests.support.homes import latest_roster

from coterie.cohorts import Ledger
from coterie.deployment.credentials import Voucher
from coterie.deployment.enrolment import VoucherFile
from coterie.deployment.roster_folder import RosterFolder
from coterie.errors import ConfigError
from coterie.transports.flower import PrivateStrategy, private_mod


def play(grid: FakeGrid, rounds: int = 1, privacy: int = 2, deadline: float = 2) -> PrivateStrategy:
    kept = PrivateStrategy(FedAvg(**QUIET), privacy=privacy, deadline=deadline)
    kept.start(grid, initial_arrays(), rounds)
    return kept


def test_the_connected_nodes_found_the_roster(home: Path) -> None:
    play(make_grid(make_app([private_mod]), 5))
    roster = latest_roster(home / "server")
    assert roster.names == tuple(f"partition-{number}" for number in range(5))
    assert sorted(map(len, roster.circles)) == [2, 3]


def test_newcomers_wait_until_they_are_a_circle(home: Path) -> None:
    app = make_app([private_mod])
    play(make_grid(app, 4))
    assert sums_of(play(make_grid(app, 5))) == [4]
    waiting = latest_roster(home / "server")
    assert [waiting.names[number] for number in waiting.queue] == ["partition-4"]
    assert sums_of(play(make_grid(app, 6))) == [6]
    assert latest_roster(home / "server").circles[-1] == (4, 5)


def test_a_newcomer_is_enrolled_in_the_middle_of_a_run() -> None:
    grid = make_grid(make_app([private_mod]), 4)
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2)

    def arrives(number: int, _arrays: object) -> None:
        if number == 1:
            grid.nodes[900] = FakeNode(grid.nodes[100].app, {"partition-id": 8})
            grid.nodes[901] = FakeNode(grid.nodes[100].app, {"partition-id": 9})

    kept.start(grid, initial_arrays(), 2, evaluate_fn=arrives)
    assert sums_of(kept) == [4, 6]


def test_a_node_under_another_number_is_recognised() -> None:
    app = make_app([private_mod])
    play(make_grid(app, 4))
    grid = make_grid(app, 4)
    grid.nodes = {number + 500: node for number, node in grid.nodes.items()}
    assert sums_of(play(grid)) == [4]


def test_a_circle_that_is_not_complete_is_left_out(home: Path) -> None:
    app = make_app([private_mod])
    play(make_grid(app, 6))
    grid = make_grid(app, 6)
    del grid.nodes[100]
    kept = play(grid)
    roster = latest_roster(home / "server")
    alone = {client.name for client in roster.circle_of("partition-0") or ()}
    assert set(results_of(kept)[-1].revealed) == set(roster.names) - alone


def test_too_few_nodes_are_refused() -> None:
    with pytest.raises(ConfigError, match="1 node enrolled within"):
        play(make_grid(make_app([private_mod]), 1), deadline=0.5)


def test_the_t_of_a_roster_cannot_be_changed() -> None:
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
    assert "partition-0" not in results_of(kept)[-1].revealed
    assert sums_of(kept) == [2]


def test_a_row_stays_in_the_ledger_if_the_server_is_killed_after_the_reveal(home: Path) -> None:
    app = make_app([private_mod])

    class Stop(BaseException):
        pass

    delivered = count(1)

    def stop(message: Message, answer: Answer) -> Message:
        if next(delivered) > 3 * 4:  # each of four clients got two hellos and the request to contribute
            raise Stop
        return answer(message)

    with pytest.raises(Stop):
        play(make_grid(app, 4, stop))
    with Ledger.inspect(home / "server" / "ledger.sqlite") as ledger:
        assert len(ledger.revealed(1)) == 4
    assert results_of(play(make_grid(app, 4)))[-1].number == 2


def test_a_circle_retired_during_a_run_is_out_of_it_from_the_next_round(home: Path) -> None:
    grid = make_grid(make_app([private_mod]), 6)
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2)

    def retires(number: int, _arrays: object) -> None:
        if number == 1:
            RosterFolder(home / "server" / "rosters").add(latest_roster(home / "server").leave(["partition-0"]))
            for newcomer in (8, 9):  # a second new version in the same gap
                grid.nodes[900 + newcomer] = FakeNode(grid.nodes[100].app, {"partition-id": newcomer})

    kept.start(grid, initial_arrays(), 2, evaluate_fn=retires)
    first, second = (set(result.revealed) for result in results_of(kept))
    assert "partition-0" in first
    assert "partition-0" not in second
    assert {"partition-8", "partition-9"} <= second
    assert len(second) == 6


def test_a_population_may_grow_several_times_in_a_run() -> None:
    app = make_app([private_mod])
    play(make_grid(app, 2))
    grid = make_grid(app, 2)
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2)

    def arrive(number: int, _arrays: object) -> None:
        for newcomer in (2 * number + 2, 2 * number + 3):
            grid.nodes[900 + newcomer] = FakeNode(app, {"partition-id": newcomer})

    kept.start(grid, initial_arrays(), 3, evaluate_fn=arrive)
    assert sums_of(kept) == [4, 6, 8]


def test_a_new_voucher_replaces_an_earlier_one_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    vouchers = VoucherFile(tmp_path / "vouchers")
    vouchers.add("ann", Voucher(b"squatter", b"signature"))
    vouchers.add("ann", Voucher(b"ann", b"signature"))
    kept = msgspec.msgpack.decode(VoucherFile(tmp_path / "vouchers").to_bytes(), type=dict[str, Voucher])
    assert kept == {"ann": Voucher(b"ann", b"signature")}
    (tmp_path / "vouchers").write_bytes(b"junk")
    with pytest.raises(ConfigError, match="damaged"):
        VoucherFile(tmp_path / "vouchers")
