"""Locks have one holder at a time, and are released at its end."""

import os
import signal
import time
from pathlib import Path

import pytest

from coterie.locks import lock

pytest.importorskip("fcntl")


def test_a_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock(path, wait=False) as first, lock(path, wait=False) as second:
        assert (first, second) == (True, False)
    with lock(path, wait=False) as third:
        assert third


def test_a_child_that_was_forked_meanwhile_does_not_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock(path, wait=False):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    try:
        with lock(path, wait=False) as held:
            assert held
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_an_error_releases_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ZeroDivisionError), lock(path, wait=False):
        _ = 1 / 0
    with lock(path, wait=False) as held:
        assert held
