"""Places in sessions: where a node is between two messages, in one file for each run.

Such a file may hold secrets, so it goes when its time is over: the time of the file says when that is, and stands on it
before the file is in place. Whoever writes a run's file, or deletes it, holds that run's lock. Runs do not wait for
each other: a run that is answering just now is left alone.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from coterie.errors import ConfigError
from coterie.files import write_secret
from coterie.locks import lock

STALE = 2 * 24 * 3600.0
"""Seconds after which no message of a run can be alive, whatever its server says."""
LEEWAY = 600.0
"""Seconds that the next message of a session has to arrive after its step's own time is over."""


class Parked(msgspec.Struct, frozen=True, array_like=True):
    """A node's place in a session between two messages."""

    request: bytes
    """The digest of what was answered last."""
    reply: bytes
    state: bytes = b""
    """The member's state, with its secrets; empty once the session is over."""

    def __repr__(self) -> str:
        return "<Parked>"


class SessionFile:
    """The file with a node's place in the sessions of one run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Parked | None:
        """Return what was answered last, if anything was."""
        try:
            return msgspec.msgpack.decode(self._path.read_bytes(), type=Parked)
        except FileNotFoundError:
            return None
        except ValueError:
            raise ConfigError(f"{self._path} is damaged; delete it, and this node sits out one session") from None

    def write(self, parked: Parked, until: float) -> None:
        """Replace it, on disk when this returns; from this time on its secrets are of no use to anybody."""
        write_secret(self._path, msgspec.msgpack.encode(parked), until=until)


@contextlib.contextmanager
def hold_place(folder: Path, run: int) -> Iterator[SessionFile]:
    """Hold the place in the sessions of a run; a second process waits until the first has answered."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with lock(_lock_of(folder, f"{run:x}"), wait=True):
        yield SessionFile(folder / f"{run:x}")


def useful_until(created_at: float, ttl: float) -> float:
    """Return until when the answer to a message is of use, if its server says that it was made then and lives so long.

    The server's word counts within limits: the message is not of the future, and not over before it is answered.
    """
    now = time.time()
    lives = min(ttl, STALE) if ttl >= 0 else STALE  # neither is a number that is none
    created = max(now - lives, min(now, created_at))
    return created + lives + LEEWAY


def forget_given_up(folder: Path) -> None:
    """Delete what is left of sessions whose time is over, unless their run is being answered just now."""
    runs: dict[str, list[Path]] = {}
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():  # a place, its lock, or what a process left that was killed while it wrote one
            runs.setdefault(path.name.removeprefix(".").partition(".")[0], []).append(path)
    for run, found in runs.items():
        lock_file = _lock_of(folder, run)
        places = [path for path in found if path != lock_file]
        if places and not any(map(_is_over, places)):
            continue
        with lock(lock_file, wait=False) as held:
            if held:
                for path in filter(_is_over, places):  # again: it may just have been written
                    path.unlink(missing_ok=True)
                lock_file.unlink(missing_ok=True)


def _is_over(path: Path) -> bool:
    try:
        return path.stat().st_mtime < time.time()
    except FileNotFoundError:
        return False


def _lock_of(folder: Path, run: str) -> Path:
    return folder / f".{run}.lock"
