"""Faults of real processes: after each, a sum is over the right nodes or none, T holds, and training continues.

Four nodes are two circles of two. If a node leaves before it contributed, its whole circle is left out. If it leaves
later, no node is left out, because three of four are enough to open the sum. In two trips, places are named after the
messages to nodes: the request to contribute, the list of survivors and, if a node left before it contributed, the proof
of the survivors.
"""

import os
import signal
import time
from pathlib import Path

import pytest
from tests.support.homes import latest_roster
from tests.support.loopback import NODES, Hold, HookedFederation, hooked_app

from coterie.bench.loopback import LocalProcess, until

pytestmark = pytest.mark.slow

DEADLINE = 45.0
PATIENT = 150.0
UNREACHABLE = 5.0
LONGEST = 600.0
ALL = {f"node-{number}" for number in range(NODES)}


def without_circle_of(federation: HookedFederation, name: str) -> set[str]:
    roster = latest_roster(federation.server)
    circles = [{roster.names[number] for number in circle} for circle in roster.circles]
    return ALL - next(circle for circle in circles if name in circle)


def check_sums(federation: HookedFederation) -> None:
    """Check that each round moved the model by the mean over exactly the nodes of its row, or not at all."""
    assert federation.rounds()[0]["value"] == 0
    federation.check_moves()


def sums(federation: HookedFederation) -> list[set[str]]:
    return [set(noted["clients"]) for noted in federation.rounds() if noted["outcome"]]


KILLED = [
    ("two-trips", ("contribute", "survivors")),
    ("papers", ("advertise", "share")),
    ("papers", ("mask",)),
    ("papers", ("confirm", "reveal")),
]


@pytest.mark.parametrize(("protocol", "steps"), KILLED, ids=["-".join(steps) for _, steps in KILLED])
def test_a_node_killed_with_its_answer_on_disk_takes_part_again(
    federation: HookedFederation, tmp_path: Path, protocol: str, steps: tuple[str, ...]
) -> None:
    """At the worst moment, the answer is on disk and has not left. A node that is started again takes part again."""
    holds = [federation.hold("node-0", step, "after") for step in steps]
    run = federation.run(hooked_app(tmp_path), rounds=len(steps) + 1, deadline=DEADLINE, protocol=protocol)
    for hold in holds:
        hold.reached(LONGEST)
        federation.nodes["node-0"].kill()
        hold.release()
        federation.start_node(0, NODES)
    federation.finish(run, LONGEST)
    others = without_circle_of(federation, "node-0")
    early = {"advertise", "share", "mask", "contribute"}
    assert sums(federation) == [*(others if step in early else ALL for step in steps), ALL]
    check_sums(federation)
    federation.check_history()


def test_a_slow_node_is_left_out_of_one_round(federation: HookedFederation, tmp_path: Path) -> None:
    hold = federation.hold("node-1", "contribute", "before")
    run = federation.run(hooked_app(tmp_path), rounds=2, deadline=DEADLINE)
    hold.reached(LONGEST)
    until(lambda: len(sums(federation)) == 1, LONGEST, "a round without the slow node")
    hold.release()
    federation.finish(run, LONGEST)
    assert sums(federation) == [without_circle_of(federation, "node-1"), ALL]
    check_sums(federation)
    federation.check_history()


@pytest.mark.parametrize(
    ("protocol", "steps"),
    [("two-trips", ("contribute", "survivors")), ("papers", ("share", "mask")), ("papers", ("confirm", "reveal"))],
    ids=["contribute-survivors", "share-mask", "confirm-reveal"],
)
def test_a_killed_server_resumes_after_its_last_finished_round(
    federation: HookedFederation, tmp_path: Path, protocol: str, steps: tuple[str, ...]
) -> None:
    """The next run continues after the last finished round; a sum that may have been revealed stays in the ledger."""
    app, rounds = hooked_app(tmp_path), 2
    hold = federation.hold("server", "round", "1")
    run = federation.run(app, rounds=rounds, deadline=DEADLINE, protocol=protocol)
    hold.reached(LONGEST)
    for step in steps:
        following = federation.hold("server", step, "after")
        hold.release()
        server = following.reached(LONGEST)
        os.kill(server, signal.SIGKILL)
        run.kill()
        hold = following
        if step == steps[-1]:
            hold.release()
        run = federation.run(app, rounds=rounds, deadline=DEADLINE, protocol=protocol)
    federation.finish(run, LONGEST)
    assert "it goes on after round 1" in run.log
    assert [noted["round"] for noted in federation.rounds()] == [0, 1, *[1] * len(steps), 2]
    assert sums(federation) == [ALL, ALL]
    check_sums(federation)
    assert len(federation.check_history()) == (3 if {"reveal", "survivors"} & set(steps) else 2)


def test_a_run_resumes_after_a_restart_of_the_superlink(federation: HookedFederation, tmp_path: Path) -> None:
    """Flower ends the run; the next one continues from the checkpoint, with nodes that connect again."""
    app = hooked_app(tmp_path)
    noted = federation.hold("server", "round", "1")
    run = federation.run(app, rounds=2, deadline=DEADLINE)
    noted.reached(LONGEST)
    hold = federation.hold("server", "contribute", "after")
    noted.release()
    hold.reached(LONGEST)
    federation.superlink.kill()
    run.kill()
    hold.release()
    federation.start_superlink()
    restart_those_that_ended(federation)
    federation.finish(federation.run(app, rounds=2, deadline=DEADLINE), LONGEST)
    assert sums(federation) == [ALL, ALL]
    check_sums(federation)
    assert len(federation.check_history()) == 2


def hold_answered(federation: HookedFederation, app: Path, *, retries: bool) -> tuple[Hold, LocalProcess]:
    """Start a run of one round, and hold its server when its requests to contribute are sent and answered."""
    hold = federation.hold("server", "contribute", "after")
    run = federation.run(app, rounds=1, deadline=PATIENT, retries=retries)
    hold.reached(LONGEST)
    until(lambda: federation.replies == NODES, LONGEST, "every node's answer is at the SuperLink")
    return hold, run


def wait_for_error(run: LocalProcess) -> None:
    until(lambda: "HTTPStatusError: Server error '500" in run.log, LONGEST, "the server's log has the error")


def test_a_round_survives_failures_of_the_superlink(federation: HookedFederation, tmp_path: Path) -> None:
    """It answers with HTTP 500 after it took the replies, which are lost, and again when it should take requests."""
    hold, run = hold_answered(federation, hooked_app(tmp_path), retries=True)
    following = federation.hold("server", "survivors", "before")
    with federation.failing("DELETE ON message_ins"):
        hold.release()
        wait_for_error(run)
    following.reached(LONGEST)
    with federation.failing("INSERT ON message_ins"):
        following.release()
        until(lambda: run.log.count("the SuperLink failed") == 2, LONGEST, "the server's log has the second error")
    federation.finish(run, LONGEST)
    assert run.log.count("the SuperLink answers again") == 2
    assert sums(federation) == [ALL]
    assert all(federation.answers(name, "contribute") > 1 for name in ALL), "some node was not asked again"
    check_sums(federation)
    assert len(federation.check_history()) == 1


def test_without_retries_a_failure_of_the_superlink_ends_the_run(federation: HookedFederation, tmp_path: Path) -> None:
    hold, run = hold_answered(federation, hooked_app(tmp_path), retries=False)
    with federation.failing("DELETE ON message_ins"):
        hold.release()
        wait_for_error(run)
    run.wait(LONGEST)
    assert federation.status() == ["finished:failed"]
    assert sums(federation) == []


@pytest.mark.parametrize("retries", [True, False])
def test_a_round_survives_an_unreachable_superlink_only_with_retries(tmp_path: Path, retries: bool) -> None:
    """The connection is cut after the SuperLink sent the replies and before they arrive, so they are lost.

    Flower connects again by itself and is told that its messages are unknown. Coterie asks the nodes again.
    """
    with HookedFederation(tmp_path / "federation", proxied=True) as federation:
        for number in range(NODES):
            federation.start_node(number, NODES)
        hold, run = hold_answered(federation, hooked_app(tmp_path), retries=retries)
        federation.proxy.lose_responses("/pull-messages")
        hold.release()
        assert federation.proxy.lost.wait(LONGEST)
        federation.proxy.cut()
        time.sleep(UNREACHABLE)
        federation.proxy.restore()
        if retries:
            federation.finish(run, LONGEST)
            assert sums(federation) == [ALL]
            check_sums(federation)
            assert len(federation.check_history()) == 1
        else:
            run.wait(LONGEST)
            assert federation.status() == ["finished:failed"]
            assert "its message was lost" in run.log
            assert sums(federation) == [set()], "the round has a result"
        assert {federation.answers(name, "contribute") for name in ALL} == {2 if retries else 1}


def test_nodes_that_misbehave_do_not_stop_the_others(federation: HookedFederation, tmp_path: Path) -> None:
    """A node sends garbage or an error or refuses by its floor, and a stranger and an impostor connect."""
    turns: list[dict[str, str | int]] = [
        {"garbage": "contribute"},
        {"nonsense": "contribute"},
        {"error": "survivors"},
        {"coterie-privacy": 3},
        {},
    ]
    holds = [federation.hold("server", "round", str(number)) for number in range(1, len(turns) + 1)]
    run = federation.run(hooked_app(tmp_path), rounds=1 + len(turns), deadline=DEADLINE)
    for hold, turn in zip(holds, turns, strict=True):
        hold.reached(LONGEST)
        federation.nodes["node-3"].stop()
        federation.connect_node(3, NODES, **turn)
        if hold is holds[0]:
            federation.connect_node(NODES, NODES)
            federation.connect_node(2, NODES, **{"coterie-folder": str(tmp_path / "impostor")})
        hold.release()
    federation.finish(run, LONGEST)
    others = without_circle_of(federation, "node-3")
    assert sums(federation) == [ALL, others, others, ALL, others, ALL]
    assert "says it is node-2, but has another identity key" in run.log
    assert "waiting until they are 2: node-4" in run.log
    assert "node-3: " in federation.nodes["node-3"].log
    assert "refuses a message" in federation.nodes["node-3"].log
    check_sums(federation)
    federation.check_history()


def test_a_killed_node_comes_back_within_the_round(tmp_path: Path) -> None:
    """An authenticated node keeps its number, and sends the answer that it made before it was killed."""
    with HookedFederation(tmp_path / "federation", authenticated=True) as federation:
        for number in range(NODES):
            federation.start_node(number, NODES)
        hold = federation.hold("node-0", "contribute", "after")
        run = federation.run(hooked_app(tmp_path), rounds=1, deadline=300.0)
        hold.reached(LONGEST)
        federation.nodes["node-0"].kill()
        hold.release()
        # Flower considers the node connected for up to a minute, and refuses it until then.
        node = federation.start_node(0, NODES)
        while run.running:
            if not node.running:
                node = federation.start_node(0, NODES)
            time.sleep(1)
        federation.finish(run, LONGEST)
        assert sums(federation) == [ALL]
        check_sums(federation)
        federation.check_history()
        assert federation.answers("node-0", "contribute") == 2


def restart_those_that_ended(federation: HookedFederation) -> None:
    for number in range(NODES):
        if not federation.nodes[f"node-{number}"].running:
            federation.start_node(number, NODES)
