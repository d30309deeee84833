"""Sessions on disk: a node's state between two messages, in one file for each run.

Such a file may contain secrets, so it is deleted when it expires. Its modification time is the expiry time, and is set
before the file is in place. A process that writes or deletes a run's file holds that run's lock. Runs do not wait for
each other: the file of a run that is being answered is not deleted.
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
"""Seconds after which every message of a run has expired, regardless of what its server says."""
LEEWAY = 600.0
"""Seconds after the end of a step in which the next message of the session may still arrive."""


class Parked(msgspec.Struct, frozen=True, array_like=True):
    """A node's state in a session between two messages."""

    request: bytes
    """The digest of the last answered message: of the request in the papers' protocol, of its payload in two trips."""
    reply: bytes
    state: bytes = b""
    """The member's state, with its secrets; empty once the session is over."""

    def __repr__(self) -> str:
        return "<Parked>"


class SessionFile:
    """The file with a node's state in the sessions of one run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Parked | None:
        """Return the last answer and the state after it; None before the first."""
        try:
            return msgspec.msgpack.decode(self._path.read_bytes(), type=Parked)
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):  # the second: it is nested too deeply
            raise ConfigError(f"{self._path} is damaged; delete it. This node then misses one session") from None

    def write(self, parked: Parked, until: float) -> None:
        """Replace the file; it is on disk when this returns. After ``until`` its secrets are no longer needed."""
        write_secret(self._path, msgspec.msgpack.encode(parked), until=until)

    def remove(self) -> None:
        """Delete the file with its secrets."""
        self._path.unlink(missing_ok=True)


class SessionReplies:
    """The last large reply of a run's sessions in two trips, in the run's file until ``until``."""

    def __init__(self, place: SessionFile, until: float) -> None:
        self._place, self._until = place, until
        self.used = False
        """Whether the file has the reply to the message that is being answered."""

    def write(self, message: bytes, reply: bytes) -> None:
        """Replace the file."""
        self._place.write(Parked(message, reply), self._until)
        self.used = True

    def read(self, message: bytes) -> bytes | None:
        """Return the reply to a message if it is the last one."""
        parked = self._place.read()
        if parked is None or parked.request != message:
            return None
        self.used = True
        return parked.reply


@contextlib.contextmanager
def hold_place(folder: Path, run: int) -> Iterator[SessionFile]:
    """Lock the sessions of a run; a second process waits until the first has answered."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with lock(_lock_of(folder, f"{run:x}"), wait=True):
        yield SessionFile(folder / f"{run:x}")


def useful_until(created_at: float, ttl: float) -> float:
    """Return the time until which the answer to a message is needed, from the creation time and lifetime in it.

    These values are limited: no message comes from the future, and none has expired before it is answered.
    """
    now = time.time()
    lives = min(ttl, STALE) if ttl >= 0 else STALE  # also for NaN
    created = max(now - lives, min(now, created_at))
    return created + lives + LEEWAY


def delete_expired(folder: Path) -> None:
    """Delete the files of expired sessions, unless their run is being answered at the moment."""
    runs: dict[str, list[Path]] = {}
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():  # a state, its lock, or a draft of a killed process
            runs.setdefault(path.name.removeprefix(".").partition(".")[0], []).append(path)
    for run, found in runs.items():
        lock_file = _lock_of(folder, run)
        places = [path for path in found if path != lock_file]
        if places and not any(map(_is_expired, places)):
            continue
        with lock(lock_file, wait=False) as held:
            if held:
                for path in filter(_is_expired, places):  # checked again: it may just have been written
                    path.unlink(missing_ok=True)
                lock_file.unlink(missing_ok=True)


def _is_expired(path: Path) -> bool:
    try:
        return path.stat().st_mtime < time.time()
    except FileNotFoundError:
        return False


def _lock_of(folder: Path, run: str) -> Path:
    return folder / f".{run}.lock"
