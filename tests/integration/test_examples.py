"""Examples are run as a user would."""

import asyncio
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.cohorts.ledger import Ledger, Outcome

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_transport_of_ones_own_prints_its_rounds() -> None:
    command = [sys.executable, str(EXAMPLES / "own_transport.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == [f"round {n}: completed" for n in range(1, 5)]
    assert done.stdout.count("3 of 6 aggregated, 1 dropped out, 2 excluded with their circles") == 1
    assert done.stderr == ""


@pytest.fixture
def example() -> dict[str, object]:
    return runpy.run_path(str(EXAMPLES / "own_transport.py"))


def test_a_transport_of_ones_own_sums_whole_circles(example: dict[str, object], tmp_path: Path) -> None:
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


def test_who_announces_too_much_is_cut_off(example: dict[str, object]) -> None:
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


def test_a_policy_of_ones_own_promises_its_smallest_circle(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs coterie[train]")
    command = [sys.executable, str(EXAMPLES / "own_policy.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path)
    assert done.stdout == "T = 2, 4 of 4 rounds completed\n"
