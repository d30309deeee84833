"""A node: its identity, its operator's settings and its answers, in its own folder.

An engine may start a process for every message, and may save a process's state only after the reply has left. A node
that is killed in between would answer twice from one state. So the member's new state, the request and the reply are on
the node's disk before the reply is sent. A repeated request always gets the same bytes.
"""

import hashlib
import math
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.roster import Client
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.signing import Identity
from coterie.deployment.home import node_home, own_folder
from coterie.deployment.sessions import SessionFile, hold_place
from coterie.errors import ConfigError
from coterie.files import write_once
from coterie.rounds.floor import Floor
from coterie.secagg.protocols import PROTOCOLS
from coterie.secagg.terms import ThreatMode
from coterie.toml import parse_toml

PREFIX = "coterie-"
SETTINGS = "node.toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FLOOR = {"privacy": int, "minimum": int, "colluders": int, "threshold": int, "sparse-bits": float, "dropout": float,
          "most-clients": int, "most-bits": int, "most-length": int, "most-shares": int,
          "prekey-days": float}  # fmt: skip
KINDS = ("evaluate", "query")
"""Kinds of messages that an operator may allow unprotected; never training, which would send a plain model."""
_STRINGS = ("mode", "protocol", "name", "folder", "roster", "auth-key", "members", "allow")
_NEVER_EMPTY = ("folder", "roster", "auth-key", "members")
_PLACE = {"name", "folder"}  # settings that locate a node's file


@dataclass(frozen=True)
class NodeSettings:
    """The settings of a node's operator. No run or message can change them."""

    name: str
    folder: Path
    floor: Floor
    roster: str = ""
    """The digest, in hexadecimal, of a roster that the trusted one must be or descend from; empty trusts the first."""
    auth_key: str = ""
    """The private key that this node authenticates with, to vouch for its identity."""
    members: str = ""
    """A file with the public keys of all nodes that may be on the roster; empty trusts the server's choice."""
    weight: int | None = None
    """The weight of this node in every sum; None means the first number that the app's function reports."""
    announce_weight: bool = False
    """Whether to tell the server the power of two above this weight before the roster is founded."""
    spread: float | None = None
    """This node's own lambda in confined descent; None means the roster's."""
    allow: frozenset[str] = frozenset()
    """The :data:`KINDS` of messages that reach the app unprotected."""

    @property
    def sessions(self) -> Path:
        """The folder with the node's states in sessions."""
        return self.folder / "sessions"

    @classmethod
    def read(cls, node_config: Mapping[str, object]) -> "NodeSettings":
        """Read ``coterie-...`` of the node's configuration, and ``node.toml`` in its folder."""
        for key in node_config:
            if key.lower().startswith(PREFIX[:-1]) and not key.startswith(PREFIX):  # coterie_roster, coterie.roster
                raise ConfigError(f"{key}: no such setting; settings of Coterie begin with {PREFIX!r}")
        given = {key.removeprefix(PREFIX): value for key, value in node_config.items() if key.startswith(PREFIX)}
        _check_filled(given)
        partition = node_config.get("partition-id")
        name = str(given.get("name", "node" if partition is None else f"partition-{partition}"))
        if not NAME.fullmatch(name):
            raise ConfigError("coterie-name: a node's name has 1 to 64 letters, digits, dots, dashes or underscores")
        folder = own_folder(str(given["folder"])) if "folder" in given else node_home(name)
        if os.path.lexists(file := folder / SETTINGS):  # a broken link is an error, not ignored
            given = {**_file(file), **given}
        known = [*_FLOOR, "weight", "announce-weight", "spread", *_STRINGS]
        if unknown := sorted(given.keys() - set(known)):
            raise ConfigError(f"{PREFIX}{unknown[0]}: no such setting; there are {', '.join(known)}")
        allow = frozenset(str(given.get("allow", "")).replace(",", " ").split())
        if not allow <= set(KINDS):
            raise ConfigError(f"{PREFIX}allow: only {' and '.join(KINDS)} can be allowed unprotected")
        return cls(
            name,
            folder,
            _floor(given),
            roster=str(given.get("roster", "")),
            auth_key=str(given.get("auth-key", "")),
            members=str(given.get("members", "")),
            weight=_weight(given.get("weight")),
            announce_weight=_announces(given),
            spread=_spread(given.get("spread")),
            allow=allow,
        )


class Node:
    """A node on its own machine."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.folder = settings.folder
        self.identity = self._identity()

    def __repr__(self) -> str:
        return f"<Node {self.settings.name!r}>"

    @property
    def client(self) -> Client:
        """The node, as a roster names it."""
        return Client(self.settings.name, self.identity.public)

    def memory(self) -> MemoryFile:
        """Open this node's long-term memory."""
        return MemoryFile(self.folder / "memory.sqlite")

    def session(self, run: int) -> AbstractContextManager[SessionFile]:
        """Lock this node's sessions of a run. A second process waits until the first has answered."""
        return hold_place(self.settings.sessions, run)

    def _identity(self) -> Identity:
        path = self.folder / "identity.key"
        if not path.exists():
            write_once(path, Identity.generate(SystemEntropy()).secret())
        secret = path.read_bytes()
        try:
            return Identity(secret)
        except ValueError:
            raise ConfigError(
                f"{path} is not a key of this node; restore it, or enrol the node under another name"
            ) from None


def run_config_digest(run_config: Mapping[str, Any]) -> bytes:
    """Return a digest of a run's configuration, because nodes with different ones must not be summed."""
    return hashlib.sha256(msgspec.json.encode(sorted((key, repr(value)) for key, value in run_config.items()))).digest()


def _check_filled(given: Mapping[str, object]) -> None:
    """Refuse empty settings, because an unset shell variable must not remove a pin."""
    for key in _NEVER_EMPTY:
        if given.get(key) == "":
            raise ConfigError(f"{PREFIX}{key} is empty: remove it or give it a value")


def _file(path: Path) -> dict[str, object]:
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None
    given = parse_toml(text, path)
    for key in _PLACE & given.keys():
        raise ConfigError(f"{path}: {key} says where this file is; set it in the node's configuration as {PREFIX}{key}")
    _check_filled(given)
    return given


def _spread(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigError(f"{PREFIX}spread: a finite number of at least 0, not {value!r}")
    return float(value)


def _weight(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ConfigError(f"{PREFIX}weight: a whole number of at least 0, not {value!r}")
    return value


def _announces(given: Mapping[str, object]) -> bool:
    announces = given.get("announce-weight", False)
    if not isinstance(announces, bool):
        raise ConfigError(f"{PREFIX}announce-weight: true or false, not {announces!r}")
    if announces and given.get("weight") is None:
        raise ConfigError(f"{PREFIX}announce-weight needs {PREFIX}weight: the app reports a number only when it trains")
    return announces


def _floor(given: Mapping[str, object]) -> Floor:
    """Return the node's floor; by default against a malicious server, and with T = 2."""
    mode = given.get("mode", ThreatMode.ACTIVE_SERVER)
    if mode not in list(ThreatMode):
        raise ConfigError(f"{PREFIX}mode: one of {', '.join(ThreatMode)}, not {mode!r}")
    floor: dict[str, Any] = {"mode": ThreatMode(str(mode)), "privacy": 2}
    if (protocol := given.get("protocol")) is not None:
        if protocol not in PROTOCOLS:
            raise ConfigError(f"{PREFIX}protocol: one of {', '.join(PROTOCOLS)}, not {protocol!r}")
        floor["protocol"] = protocol
    for key, kind in _FLOOR.items():
        value = given.get(key)
        if value is None:
            continue
        # A fraction or a boolean would be rounded, and the node would accept less than its operator wrote.
        if isinstance(value, bool) or not isinstance(value, (int, kind)):
            raise ConfigError(f"{PREFIX}{key}: a {'whole ' if kind is int else ''}number, not {value!r}")
        floor[key.replace("-", "_")] = value
    return Floor(**floor)
