"""Locks on files: of many processes, one at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # no such locks on this platform: one process at a time is then up to whoever starts them
    fcntl = None  # type: ignore[assignment]


@contextmanager
def lock(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a file's lock, made if it is not there, and tell whether it is held: without waiting, another may have it.

    The lock ends with the process, however it ends; where that was killed, with the last child it had forked meanwhile.
    Only whoever holds it may delete the file. So a file that is at this path no more once its lock was had does not
    count, and the one that is there now is tried.
    """
    while True:
        with path.open("a") as file:
            if not _locked(file, wait=wait):
                yield False
                return
            if fcntl is None or _is_at(path, file):
                try:
                    yield True
                finally:
                    _release(file)
                return


def _locked(file: IO[str], *, wait: bool) -> bool:
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
    return True


def _release(file: IO[str]) -> None:
    """Give the lock up, also for children that were forked meanwhile: they have the file open, too."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_UN)


def _is_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
