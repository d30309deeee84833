"""Confined descent with real processes that are killed: own models survive on disk, and catch up.

The app moves every model upwards by a constant of its node, and its loss falls with that, so nodes take all moves. A
node's own model is then its private start plus the public model, whatever happened in between.
"""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from tests.support.loopback import NODES, HookedFederation, hooked_app

from coterie.deployment.array_bytes import unpack_arrays
from coterie.deployment.confined import own_model, own_state

pytestmark = pytest.mark.slow

DEADLINE = 45.0
LONGEST = 600.0


def folder(federation: HookedFederation, number: int) -> Path:
    return federation.folder / "coterie" / "nodes" / f"node-{number}"


def start(federation: HookedFederation, number: int) -> np.ndarray:
    """Return the difference of a node's own model and the last public model that it has judged."""
    seen = unpack_arrays(own_state(folder(federation, number)).seen)
    return np.asarray(own_model(folder(federation, number))["w"] - seen["w"])


def check_descent(federation: HookedFederation, judged: int) -> None:
    """Check that each round moved the public model by the mean over its nodes, and how many models each has judged."""
    federation.check_moves()
    assert [own_state(folder(federation, number)).judged for number in range(NODES)] == [judged] * NODES
    starts = [start(federation, number) for number in range(NODES)]
    assert all(0 < np.abs(one).max() < 1 for one in starts), "a start is within a few tenths of the anchor"
    assert len({one.round(9).tobytes() for one in starts}) == NODES
    federation.check_history()


def test_a_killed_node_catches_up(federation: HookedFederation, tmp_path: Path) -> None:
    """It is killed with its contribution on disk and not sent, is away for a round, and is back for the last one."""
    first = federation.hold("server", "round", "1")
    run = federation.run(hooked_app(tmp_path), rounds=4, deadline=DEADLINE, confined=True)
    first.reached(LONGEST)
    before = start(federation, 0)
    hold = federation.hold("node-0", "contribute", "after")
    first.release()
    hold.reached(LONGEST)
    federation.nodes["node-0"].kill()
    third = federation.hold("server", "round", "3")
    hold.release()
    third.reached(LONGEST)
    federation.connect_node(0, NODES)
    third.release()
    federation.finish(run, LONGEST)
    rows = [len(noted["clients"]) for noted in federation.rounds() if noted["outcome"]]
    assert rows == [4, 2, 2, 4], "the circle of the node was left out twice"
    assert start(federation, 0) == pytest.approx(before, abs=1e-6)
    check_descent(federation, judged=5)


def test_a_killed_server_continues_its_descent(federation: HookedFederation, tmp_path: Path) -> None:
    app = hooked_app(tmp_path)
    first = federation.hold("server", "round", "1")
    run = federation.run(app, rounds=3, deadline=DEADLINE, confined=True)
    first.reached(LONGEST)
    before = [start(federation, number) for number in range(NODES)]
    contributing = federation.hold("server", "contribute", "after")
    first.release()
    server = contributing.reached(LONGEST)
    os.kill(server, signal.SIGKILL)
    run.kill()
    contributing.release()
    run = federation.run(app, rounds=3, deadline=DEADLINE, confined=True)
    federation.finish(run, LONGEST)
    assert "it goes on after round 1" in run.log
    assert [start(federation, number) for number in range(NODES)] == [pytest.approx(one, abs=1e-6) for one in before]
    check_descent(federation, judged=4)
    assert not list(federation.server.glob("*.descent"))
