"""Locks on folders: one that a process is working on is refused to others."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.errors import ConfigError
from coterie.locks import lock


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process from working in this folder; the lock ends with the process, however it ends."""
    with lock(folder / ".lock", wait=False) as held:
        if not held:
            raise ConfigError(f"another process is working on {folder}")
        yield
