"""File locks, for mutual exclusion between processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from coterie.errors import ConfigError

try:
    import fcntl
except ImportError:  # no such locks on this platform: the user must run one process at a time
    fcntl = None  # type: ignore[assignment]  # a module or None


@contextmanager
def lock(path: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a file, which is created if missing, and yield whether the lock is held.

    Without ``wait``, the lock may be held by another process. The lock ends with the process, however it ends; if the
    process is killed, it ends with the last child forked while the lock was held. Only the holder may delete the file.
    If the file at this path was replaced while waiting for its lock, the new file is locked instead.
    """
    while True:
        with path.open("a") as file:
            if not _take(file, wait=wait):
                yield False
                return
            if fcntl is None or _is_at(path, file):
                try:
                    yield True
                finally:
                    _release(file)
                return


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; raise :class:`~coterie.errors.ConfigError` if one is working in it."""
    with lock(folder / ".lock", wait=False) as held:
        if not held:
            raise ConfigError(f"another process is working on {folder}")
        yield


def _take(file: IO[str], *, wait: bool) -> bool:
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
    return True


def _release(file: IO[str]) -> None:
    """Release the lock, also for children forked meanwhile, which have the file open too."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_UN)


def _is_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
