import math
import os
import pwd
import re
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from coterie.deployment.node import Node, NodeSettings, run_config_digest
from coterie.errors import ConfigError
from coterie.rounds import Floor
from coterie.secagg import ThreatMode


def test_by_default_a_node_requires_t_2_against_a_malicious_server() -> None:
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
        {"coterie-weight": -1},
        {"coterie-weight": 2.0},
        {"coterie-weight": True},
        {"coterie-weight": "5"},
        {"coterie-announce-weight": True},
        {"coterie-announce-weight": "yes", "coterie-weight": 5},
        {"coterie-announce-weight": 1, "coterie-weight": 5},
        {"coterie-spread": -0.1},
        {"coterie-spread": float("nan")},
        {"coterie-spread": True},
        {"coterie-spread": "0.1"},
        {"coterie-mode": 1},
        {"coterie-folder": "/dev/null"},
        {"coterie-mode": "kind"},
        {"coterie-name": "../../etc"},
        {"coterie-name": ""},
        {"coterie-allow": "train"},
        *({key: "00" * 32} for key in ("coterie_roster", "Coterie-roster", "COTERIE_ROSTER", "coterie-Roster")),
        *({key: "00" * 32} for key in ("coterie.roster", "coterieroster", "coterie")),
        *({f"coterie-{key}": ""} for key in ("roster", "members", "folder", "auth-key")),
    ],
)
def test_invalid_settings_of_a_node_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        NodeSettings.read(wrong)


@pytest.mark.parametrize("text", ["privacy: 3", "privacy = " + 5000 * "["])
def test_a_file_that_is_not_toml_is_refused(home: Path, text: str) -> None:
    (home / "nodes" / "node").mkdir(parents=True)
    (home / "nodes" / "node" / "node.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"node\.toml"):
        NodeSettings.read({})


@pytest.mark.parametrize("key", ["name", "folder"])
def test_a_settings_file_cannot_set_its_own_place(home: Path, key: str) -> None:
    (home / "nodes" / "node").mkdir(parents=True)
    (home / "nodes" / "node" / "node.toml").write_text(f'{key} = "hospital"')
    with pytest.raises(ConfigError, match=rf"node\.toml: {key} .* configuration as coterie-{key}"):
        NodeSettings.read({})


def test_an_empty_pin_in_a_file_is_refused(home: Path) -> None:
    folder = home / "nodes" / "node"
    folder.mkdir(parents=True)
    (folder / "node.toml").write_text('roster = ""\n')
    with pytest.raises(ConfigError, match="coterie-roster is empty"):
        NodeSettings.read({})


def test_a_file_that_is_a_link_to_nowhere_is_refused(home: Path) -> None:
    (home / "nodes" / "node").mkdir(parents=True)
    (home / "nodes" / "node" / "node.toml").symlink_to(home / "not mounted" / "node.toml")
    with pytest.raises(ConfigError, match=r"node\.toml: .*No such file"):
        NodeSettings.read({})


def test_other_settings_of_a_node_are_ignored() -> None:
    assert NodeSettings.read({"partition-id": 3, "roster": "x", "cotery": 4, "num_partitions": 7}).roster == ""


def test_an_identity_is_made_once_and_readable_only_by_its_owner() -> None:
    first, again = Node(NodeSettings.read({})), Node(NodeSettings.read({}))
    assert first.identity.public == again.identity.public
    assert Node(NodeSettings.read({"partition-id": 1})).identity.public != first.identity.public
    assert os.stat(first.folder / "identity.key").st_mode & 0o077 == 0
    assert os.stat(first.folder).st_mode & 0o077 == 0


def test_a_damaged_key_is_refused_and_not_replaced() -> None:
    node = Node(NodeSettings.read({}))
    (node.folder / "identity.key").write_bytes(b"short")
    with pytest.raises(ConfigError, match="enrol"):
        Node(NodeSettings.read({}))
    assert (node.folder / "identity.key").read_bytes() == b"short"


def test_other_configurations_of_a_run_have_other_digests() -> None:
    assert run_config_digest({"lr": 0.1, "epochs": 1}) == run_config_digest({"epochs": 1, "lr": 0.1})
    assert run_config_digest({"lr": 0.1}) != run_config_digest({"lr": 0.2})
    assert run_config_digest({"lr": 1}) != run_config_digest({"lr": "1"})


def test_a_folder_that_everybody_may_write_to_is_refused(home: Path) -> None:
    shared = home / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(ConfigError, match=r"everybody may write to .*shared: name a folder inside it"):
        NodeSettings.read({"coterie-folder": str(shared)})
    inside = NodeSettings.read({"coterie-folder": str(shared / "mine")}).folder
    assert stat.S_IMODE(inside.stat().st_mode) == 0o700


def test_a_folder_that_the_process_cannot_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service of a node may run as another user than the one that made the folder."""
    folder = NodeSettings.read({}).folder
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    for config in {}, {"coterie-folder": str(folder)}:
        with pytest.raises(ConfigError, match=f"cannot read and write in {folder}: check its owner"):
            NodeSettings.read(config)


def test_a_folder_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(ConfigError, match="coterie-folder: there is no such user as in '~nobody-of-this-name/node'"):
        NodeSettings.read({"coterie-folder": "~nobody-of-this-name/node"})


def test_a_user_without_a_home_directory_has_to_name_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_number: int) -> NoReturn:
        raise KeyError

    for name in "COTERIE_HOME", "HOME":
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(ConfigError, match="set COTERIE_HOME to a folder"):
        NodeSettings.read({})


def test_the_guide_lists_every_setting() -> None:
    with pytest.raises(ConfigError, match="no such setting") as refused:
        NodeSettings.read({"coterie-nonsense": 1})
    known = {f"coterie-{name}" for name in str(refused.value).partition("there are ")[2].split(", ")}
    guide = (Path(__file__).parents[3] / "docs" / "flower.md").read_text()
    rows = guide.partition("## A node's settings")[2].partition("\n## ")[0].splitlines()
    listed = [name for row in rows if row.startswith("| `") for name in re.findall(r"`(.*?)`", row.split(" | ")[0])]
    assert sorted(listed) == sorted(known)
