import math
import multiprocessing
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from coterie.deployment.node import Node, NodeSettings
from coterie.deployment.sessions import LEEWAY, STALE, Parked, delete_expired, hold_place, useful_until

SECRET = Parked(b"request", b"reply", b"secret")


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "sessions"


def park(folder: Path, run: int, seconds: float) -> Path:
    with hold_place(folder, run) as place:
        place.write(SECRET, time.time() + seconds)
    return folder / f"{run:x}"


def test_the_state_of_a_session_outlives_the_process() -> None:
    node = Node(NodeSettings.read({}))
    with node.session(7) as place:
        assert place.read() is None
        place.write(SECRET, time.time() + 60)
    with node.session(7) as place:
        assert place.read() == SECRET
    with node.session(8) as place:
        assert place.read() is None
    assert "secret" not in repr(SECRET)


@pytest.mark.parametrize(
    ("created", "ttl", "lasts"),
    [
        (0, 120, 120),
        (-50, 120, 70),
        (-86390, 86400, 10),
        (-1e9, 120, 0),
        (1e9, 120, 120),
        (-math.inf, 120, 0),
        (math.inf, 120, 120),
        (math.nan, 120, 120),
        (0, 0, 0),
        (0, 1e9, STALE),
        (0, math.inf, STALE),
        (-math.inf, math.inf, 0),
        (-1e308, 1e308, 0),
        (-1e9, 1e9 + 60, 0),
        (0, -1, STALE),
        (0, math.nan, STALE),
    ],
)
def test_secrets_expire_shortly_after_the_step(
    created: float, ttl: float, lasts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1.7e9
    monkeypatch.setattr(time, "time", lambda: now)
    assert useful_until(now + created, ttl) == now + lasts + LEEWAY


def test_a_session_that_was_given_up_is_deleted_with_its_secrets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.time()
    file = park(folder, 7, 60)
    monkeypatch.setattr(time, "time", lambda: began + 50)
    delete_expired(folder)
    assert file.exists()
    monkeypatch.setattr(time, "time", lambda: began + 70)
    delete_expired(folder)
    assert not list(folder.iterdir())
    delete_expired(folder / "not there")


def test_drafts_of_a_killed_process_are_deleted(folder: Path) -> None:
    file = park(folder, 7, 60)
    scratch = folder / ".7.0123456789abcdef.draft"
    scratch.write_bytes(b"secret")
    os.utime(scratch, (1, 1))
    delete_expired(folder)
    assert [path.name for path in folder.iterdir()] == [file.name]


def test_a_state_is_synced_with_its_expiry_time_before_anything_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, now = [], time.time()
    replace, sync = os.replace, os.fsync

    def synced(descriptor: int) -> None:
        sync(descriptor)
        about = os.fstat(descriptor)
        done.append("folder synced" if stat.S_ISDIR(about.st_mode) else f"file synced, {about.st_mtime - now:.0f}")

    def replaced(source: Path, target: Path) -> None:
        replace(source, target)
        done.append(f"replaced, {target.stat().st_mtime - now:.0f}")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with hold_place(folder, 7) as place:
        place.write(SECRET, now + 60)
        assert done == ["file synced, 60", "replaced, 60", "folder synced"]


def test_cleaning_up_deletes_nothing_of_a_run_that_is_being_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-written and expired states are kept too, because the process that holds the lock may still use them."""
    park(folder, 7, -60)
    sync = os.fsync

    def meanwhile(descriptor: int) -> None:
        sync(descriptor)
        os.utime(descriptor, (1, 1))
        delete_expired(folder)
        os.utime(descriptor, (time.time() + 60,) * 2)

    with hold_place(folder, 7) as place:
        delete_expired(folder)
        assert place.read() == SECRET
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", meanwhile)
            place.write(SECRET, time.time() + 60)
    with hold_place(folder, 7) as place:
        assert place.read() == SECRET


def test_a_state_rewritten_during_cleaning_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Path] = []
    file, look = park(folder, 7, -60), Path.stat

    def written_after_the_first_look(path: Path, **options: bool) -> os.stat_result:
        seen = look(path, **options)
        if path == file and not looks:
            looks.append(path)
            park(folder, 7, 60)
        return seen

    monkeypatch.setattr(Path, "stat", written_after_the_first_look)
    delete_expired(folder)
    assert looks
    assert file.exists()


def test_different_runs_do_not_wait_for_each_other_and_the_same_one_does(folder: Path) -> None:
    order: list[str] = []

    def answer() -> None:
        with hold_place(folder, 7):
            order.append("second")

    second = threading.Thread(target=answer)
    with hold_place(folder, 7):
        with hold_place(folder, 8):
            delete_expired(folder)
        second.start()
        second.join(0.2)
        order.append("first")
    second.join(10)
    assert order == ["first", "second"]


def test_a_process_waiting_for_a_deleted_lock_takes_the_next_one(folder: Path) -> None:
    """Otherwise one process would lock the deleted file, and another the new one."""
    there: list[bool] = []
    waiting = threading.Event()

    def answer() -> None:
        waiting.set()
        with hold_place(folder, 7):
            there.append((folder / ".7.lock").exists())

    thread = threading.Thread(target=answer)
    with hold_place(folder, 7):
        thread.start()
        waiting.wait()
        time.sleep(0.1)
        (folder / ".7.lock").unlink()
    thread.join(10)
    assert there == [True]


def _write_often(folder: Path, run: int, lost: "multiprocessing.Queue[int]") -> None:
    missing = 0
    for number in range(100):
        delete_expired(folder)
        parked = Parked(b"%d" % number, bytes(50_000), b"secret")
        with hold_place(folder, run) as place:
            place.write(parked, time.time() + 60)
        with hold_place(folder, run) as place:
            missing += place.read() != parked
    lost.put(missing)


def test_concurrent_runs_lose_no_state(folder: Path) -> None:
    folder.mkdir()
    forking = multiprocessing.get_context("fork")
    lost: multiprocessing.Queue[int] = forking.Queue()
    processes = [forking.Process(target=_write_often, args=(folder, run, lost)) for run in (7, 8)]
    for process in processes:
        process.start()
    assert [lost.get(timeout=60) for _ in processes] == [0, 0]
    for process in processes:
        process.join()
