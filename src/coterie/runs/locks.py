"""Locks on folders: one that a process is working on is refused to others."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.errors import ConfigError

try:
    import fcntl
except ImportError:  # no such locks on this platform
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process from working in this folder; the lock ends with the process, however it ends."""
    with (folder / ".lock").open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"another process is working on {folder}") from None
        yield
