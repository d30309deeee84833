import errno
import math
import os
import stat
import time
from pathlib import Path

import pytest

from coterie.errors import ConfigError
from coterie.rounds import Floor
from coterie.secagg import ThreatMode
from coterie.transports.flower.home import write_safely
from coterie.transports.flower.node import LEEWAY, STALE, Node, NodeSettings, Parked, run_config_digest


def test_a_node_insists_on_company_and_on_honesty_unless_told_otherwise() -> None:
    floor = NodeSettings.read({"partition-id": 3}).floor
    assert floor.mode is ThreatMode.ACTIVE_SERVER
    assert floor.privacy == 2


def test_settings_come_from_the_node_and_its_own_file(home: Path) -> None:
    folder = home / "elsewhere"
    folder.mkdir(parents=True)
    (folder / "node.toml").write_text('privacy = 4\nminimum = 6\nmode = "honest-but-curious"\n')
    settings = NodeSettings.read({"coterie-folder": str(folder), "coterie-name": "hospital", "coterie-minimum": 8})
    assert settings.name == "hospital"
    assert settings.folder == folder
    assert settings.floor == Floor(privacy=4, minimum=8)


@pytest.mark.parametrize(
    "wrong",
    [
        {"coterie-privcy": 3},
        {"coterie-privacy": "many"},
        {"coterie-privacy": 0},
        {"coterie-privacy": 2.9},
        {"coterie-privacy": True},
        {"coterie-privacy": "2"},
        {"coterie-minimum": math.inf},
        {"coterie-dropout": math.nan},
        {"coterie-mode": 1},
        {"coterie-folder": "/dev/null"},
        {"coterie-mode": "kind"},
        {"coterie-name": "../../etc"},
        {"coterie-name": ""},
        {"coterie-allow": "train"},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        NodeSettings.read(wrong)


def test_a_file_that_is_not_toml_is_refused(home: Path) -> None:
    (home / "nodes" / "node").mkdir(parents=True)
    (home / "nodes" / "node" / "node.toml").write_text("privacy: 3")
    with pytest.raises(ConfigError, match=r"node\.toml"):
        NodeSettings.read({})


def test_an_identity_is_made_once_and_kept_to_its_owner() -> None:
    first, again = Node(NodeSettings.read({})), Node(NodeSettings.read({}))
    assert first.identity.public == again.identity.public
    assert Node(NodeSettings.read({"partition-id": 1})).identity.public != first.identity.public
    assert os.stat(first.folder / "identity.key").st_mode & 0o077 == 0
    assert os.stat(first.folder).st_mode & 0o077 == 0


def test_a_damaged_key_is_not_replaced_in_silence() -> None:
    node = Node(NodeSettings.read({}))
    (node.folder / "identity.key").write_bytes(b"short")
    with pytest.raises(ConfigError, match="enrol"):
        Node(NodeSettings.read({}))


def test_a_place_in_a_session_outlives_the_process() -> None:
    node = Node(NodeSettings.read({}))
    with node.session(7) as place:
        assert place.read() is None
        place.write(Parked(b"request", b"reply", b"secret"))
    with node.session(7) as place:
        assert place.read() == Parked(b"request", b"reply", b"secret")
    with node.session(8) as place:
        assert place.read() is None
    assert "secret" not in repr(Parked(b"request", b"reply", b"secret"))


def test_runs_with_other_configurations_have_other_names() -> None:
    assert run_config_digest({"lr": 0.1, "epochs": 1}) == run_config_digest({"epochs": 1, "lr": 0.1})
    assert run_config_digest({"lr": 0.1}) != run_config_digest({"lr": 0.2})
    assert run_config_digest({"lr": 1}) != run_config_digest({"lr": "1"})


@pytest.mark.parametrize(
    ("seconds", "lasts"),
    [(120.0, 120.0 + LEEWAY), (0.0, LEEWAY), (1e9, STALE + LEEWAY), (-1.0, STALE + LEEWAY), (math.nan, STALE + LEEWAY)],
)
def test_a_session_that_was_given_up_is_deleted_with_its_secrets(
    seconds: float, lasts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, began = Node(NodeSettings.read({})), time.time()
    with node.session(7) as place:
        place.write(Parked(b"request", b"reply", b"secret"), seconds)
    monkeypatch.setattr(time, "time", lambda: began + lasts - 10)
    with node.session(8):
        assert (node.folder / "sessions" / "7").exists()
    monkeypatch.setattr(time, "time", lambda: began + lasts + 10)
    with node.session(8):
        assert not (node.folder / "sessions" / "7").exists()


def test_a_place_in_a_session_is_on_disk_before_anything_else_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    node, done = Node(NodeSettings.read({})), []
    replace, sync = os.replace, os.fsync

    def synced(descriptor: int) -> None:
        sync(descriptor)
        done.append("folder synced" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file synced")

    def replaced(source: Path, target: Path) -> None:
        replace(source, target)
        done.append("replaced")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with node.session(7) as place:
        place.write(Parked(b"request", b"reply", b"secret"))
        assert done == ["file synced", "replaced", "folder synced"]


def test_two_processes_that_start_at_once_become_one_node(home: Path) -> None:
    write_safely(home / "key", b"first", once=True)
    write_safely(home / "key", b"second", once=True)
    assert (home / "key").read_bytes() == b"first"
    write_safely(home / "key", b"third")
    assert (home / "key").read_bytes() == b"third"
    assert [path.name for path in home.iterdir()] == ["key"]


def test_a_full_disk_leaves_no_secret_behind(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_safely(home / "state", b"before")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_safely(home / "state", b"secret")
    assert [(path.name, path.read_bytes()) for path in home.iterdir()] == [("state", b"before")]
