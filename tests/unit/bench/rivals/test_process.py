"""Processes of a rival: what is timed, how failures are reported, and that no process is left."""

import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from coterie.bench.rivals.process import Order, Orders, Rival, Serve
from coterie.errors import Cancelled, RoundAborted

ORDER = Order(1, ("client-1", "client-2"))


# Parts of rivals, which run in processes of their own.


def waiting(seconds: float, orders: Orders) -> None:
    time.sleep(0.2)  # not to be counted
    while orders.next():
        time.sleep(seconds)
        orders.done(lambda: [np.full(1, seconds)])


def failing(orders: Orders) -> None:
    orders.next()
    os.write(1, b"the last words")
    raise ValueError("cannot go on")


def dying(orders: Orders) -> None:
    orders.next()
    os._exit(3)


def deaf(marker: Path, orders: Orders) -> None:
    try:
        orders.next()
    except Cancelled:
        marker.touch()
        time.sleep(600)


def slow(marker: Path, orders: Orders) -> None:
    orders.next()
    time.sleep(1)
    try:
        orders.done(list)
    except Cancelled:
        marker.touch()
        raise


def test_only_the_round_is_timed_and_the_slowest_process_counts(tmp_path: Path) -> None:
    with Rival("two", [partial(waiting, 0.05), partial(waiting, 0.1)], tmp_path / "log") as rival:
        rival.ready()
        began = time.perf_counter()
        time.sleep(0.2)
        answer = rival.play(ORDER)
        assert 0.1 <= answer.seconds <= time.perf_counter() - began - 0.2
        assert answer.model == [np.full(1, 0.05)]  # of the first process
        assert rival.play(ORDER).seconds >= 0.1


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (failing, r"Unlucky failed: ValueError: cannot go on\nthe last words"),
        (dying, "Unlucky failed: its process died"),
    ],
)
def test_a_failing_rival_says_why(part: Serve, message: str, tmp_path: Path) -> None:
    with Rival("Unlucky", [part], tmp_path / "log") as rival:
        rival.ready()
        with pytest.raises(RoundAborted, match=message):
            rival.play(ORDER)
        with pytest.raises(RoundAborted, match="its process died"):
            rival.play(ORDER)


def test_closing_a_rival_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.bench.rivals.process._PATIENCE", 3.0)
    asked, noticed = tmp_path / "asked to leave", tmp_path / "noticed"
    parts = [partial(deaf, asked), partial(waiting, 0.0), partial(slow, noticed)]
    rival = Rival("Deaf", parts, tmp_path / "log")
    rival.ready()
    rival._links[2].send(ORDER)  # in the middle of a round
    processes = list(rival._processes)
    rival.close()
    assert asked.exists()
    assert noticed.exists()
    assert [process.exitcode for process in processes] == [-9, 0, 0]


def test_a_start_that_fails_leaves_no_process(tmp_path: Path) -> None:
    def local(_orders: Orders) -> None: ...

    with pytest.raises((AttributeError, TypeError), match="local"):
        Rival("Odd", [partial(waiting, 0.0), local], tmp_path / "log")
