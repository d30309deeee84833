"""The lock on a folder: only one process at a time may work in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.errors import ConfigError
from coterie.locks import lock


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of this folder; the lock ends with the process, however it ends."""
    with lock(folder / ".lock", wait=False) as held:
        if not held:
            raise ConfigError(f"another process is working on {folder}")
        yield
