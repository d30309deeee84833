"""Examples, run as a user runs them."""

import asyncio
import runpy
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.cohorts.ledger import Ledger, Outcome

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_transport_of_the_user_prints_its_rounds() -> None:
    command = [sys.executable, str(EXAMPLES / "own_transport.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == [f"round {n}: completed" for n in range(1, 5)]
    assert done.stdout.count("3 of 6 aggregated, 1 dropped out, 2 excluded with their circles") == 1
    assert done.stderr == ""


@pytest.fixture
def example() -> dict[str, object]:
    return runpy.run_path(str(EXAMPLES / "own_transport.py"))


def test_a_transport_of_the_user_sums_whole_circles(example: dict[str, object], tmp_path: Path) -> None:
    results = asyncio.run(example["play_rounds"](tmp_path, 4))  # type: ignore[operator]
    broken = [result for result in results if result.stranded]
    assert [len(result.revealed) for result in results if not result.stranded] == [6, 6, 6]
    assert [(len(result.revealed), result.dropped) for result in broken] == [(3, ("client-1",))]
    for result in results:
        assert result.outcome is Outcome.COMPLETED
        expected = sum(int(name[-1]) - 1 for name in result.revealed) / 10 / len(result.revealed)
        assert result.value == pytest.approx(expected, abs=1e-3)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.verify()
        assert [set(row) for _, row in ledger.rows()] == [set(result.revealed) for result in results]


def test_a_peer_that_announces_too_many_bytes_is_disconnected(example: dict[str, object]) -> None:
    async def read(announced: int) -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(announced.to_bytes(4, "big") + b"abc")
        reader.feed_eof()
        found: bytes = await example["receive"](reader)  # type: ignore[operator]
        return found

    assert asyncio.run(read(3)) == b"abc"
    with pytest.raises(EOFError):
        asyncio.run(read(4))
    with pytest.raises(ConnectionError):
        asyncio.run(read(2**31))


def test_a_policy_of_the_user_promises_its_smallest_circle(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs coterie[train]")
    command = [sys.executable, str(EXAMPLES / "own_policy.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path)
    assert done.stdout == "T = 2, 4 of 4 rounds completed\n"


def run_peers(folder: Path, peers: dict[str, Any]) -> str:
    """Start all peers of the example in a folder, and return what they print once all have ended."""
    script = str(EXAMPLES / "confined_peers.py")
    commands = [[sys.executable, script, str(folder), name] for name in peers["PEERS"]]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        printed = [process.communicate(timeout=180)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [process.returncode for process in running] == [0] * len(running)
    return "".join(printed)


def test_peers_add_without_a_server_and_wait_for_one_that_was_killed() -> None:
    command = [sys.executable, str(EXAMPLES / "confined_peers.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    lines = done.stdout.splitlines()
    assert lines[0] == "peer-2 was killed, and the others wait for it"
    assert lines[1].startswith("peer-2 is back, at iteration ")
    assert sorted(line.split(",")[0] for line in lines[2:]) == [f"peer-{number}: 30 sums" for number in range(1, 5)]
    assert done.stderr == ""


def test_an_unknown_peer_cannot_take_over_a_connection_by_its_name(tmp_path: Path) -> None:
    peers = runpy.run_path(str(EXAMPLES / "confined_peers.py"))
    peers["prepare"](tmp_path)
    first, *others = peers["PEERS"]

    async def attack() -> None:
        mesh = peers["Mesh"](first, tmp_path)
        async with await mesh.listen():
            for name in others:
                await peers["Mesh"](name, tmp_path)._dial(first)
            while len(mesh.lines) < len(others):
                await asyncio.sleep(0.01)
            before = dict(mesh.lines)
            port = int((tmp_path / "public" / f"{first}.port").read_text())
            for name in others:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(len(name).to_bytes(4, "big") + name.encode() + bytes(16))
                await reader.readexactly(16)
                writer.write((100).to_bytes(4, "big") + bytes(100))  # sealed with no key that the peer knows
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(), 5)  # until the peer hangs up
                writer.close()
            assert mesh.lines == before
            for name in others:
                mesh.drop(name)

    asyncio.run(asyncio.wait_for(attack(), 60))


def test_peers_learn_the_sums_of_their_gradients_and_catch_up(tmp_path: Path) -> None:
    """The run is repeated in this process with the starts of the peers; then one peer is behind the others."""
    peers = runpy.run_path(str(EXAMPLES / "confined_peers.py"))
    peers["prepare"](tmp_path)
    run_peers(tmp_path, peers)
    make: Callable[[str, Path], Any] = peers["Participant"]
    done = {name: make(name, tmp_path) for name in peers["PEERS"]}
    sums = done["peer-1"].means
    assert [one.means for one in done.values()] == [sums] * 4
    assert len(sums) == 30

    for name in done:
        (tmp_path / name / "model").unlink()
    fresh = {name: make(name, tmp_path) for name in done}
    for number, mean in enumerate(sums):
        vector = sum(one.contribution() for one in fresh.values())
        peers["QUANTIZER"].ring.reduce(vector)
        expected = peers["QUANTIZER"].decode(vector, peers["LAYOUT"], len(fresh)).mean[0]
        assert np.frombuffer(mean) == pytest.approx(expected, abs=1e-5)
        for one in fresh.values():
            one.take(mean)
        if number == 11:
            old = (tmp_path / "peer-3" / "model").read_bytes()

    (tmp_path / "peer-3" / "model").write_bytes(old)
    assert "peer-3 is back, at iteration 12" in run_peers(tmp_path, peers)
    for name, one in done.items():
        again = make(name, tmp_path)
        assert again.means == sums
        assert np.array_equal(again.descent.confined(name)[0], one.descent.confined(name)[0])
    models = {one.descent.confined(name)[0].tobytes() for name, one in done.items()}
    assert len(models) == 4, "every peer has its own model"
