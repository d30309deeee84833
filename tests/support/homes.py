"""Home folders of servers and nodes: each test has separate ones."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.cohorts.roster import Roster
from coterie.deployment.roster_folder import RosterFolder

MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory, where syncing a file takes no time


def folder_in_memory() -> "tempfile.TemporaryDirectory[str]":
    """Make a folder that is deleted at the end of a ``with`` block."""
    return tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give every test a COTERIE_HOME of its own."""
    with folder_in_memory() as folder:
        monkeypatch.setenv("COTERIE_HOME", folder)
        yield Path(folder)


def latest_roster(server: Path) -> Roster:
    """Return the latest roster in a server's folder."""
    roster = RosterFolder(server / "rosters").latest
    assert roster is not None
    return roster
