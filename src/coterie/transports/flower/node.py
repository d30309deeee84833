"""A node: who it is, what it insists on, and what it has answered, in a folder of its own.

Flower starts a process for every message, sends the reply first and saves a context afterwards, in memory. A node that
is killed in between would answer twice from one state. So the member's new state, the request and the reply are on this
node's disk before the reply leaves: the same request gets the same bytes again, whatever happened in between.
"""

import hashlib
import os
import re
import tomllib
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
from coterie.errors import ConfigError
from coterie.files import write_once
from coterie.rounds.floor import Floor
from coterie.secagg.terms import ThreatMode
from coterie.transports.flower.home import node_home, own_folder
from coterie.transports.flower.sessions import SessionFile, hold_place

PREFIX = "coterie-"
SETTINGS = "node.toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FLOOR = {"privacy": int, "minimum": int, "colluders": int, "threshold": int, "sparse-bits": float, "dropout": float,
          "most-clients": int, "most-bits": int, "most-length": int}  # fmt: skip
KINDS = ("evaluate", "query")
"""Messages that an operator may let through unprotected; a plain training message would undo everything."""
_STRINGS = ("mode", "name", "folder", "roster", "auth-key", "members", "allow")
_NEVER_EMPTY = ("folder", "roster", "auth-key", "members")
_PLACE = {"name", "folder"}  # by which a node's file is found


@dataclass(frozen=True)
class NodeSettings:
    """What a node's operator decided; nothing of it comes from a run or a message."""

    name: str
    folder: Path
    floor: Floor
    roster: str = ""
    """The digest, in hexadecimal, of a roster that the trusted one must be or come from; empty trusts the first."""
    auth_key: str = ""
    """The private key this SuperNode authenticates with, to vouch for the node's identity."""
    members: str = ""
    """A file of the public keys of all that may be on the roster; empty leaves that to the server."""
    weight: int | None = None
    """What this node counts for in every sum; None takes what the app's function first reports."""
    allow: frozenset[str] = frozenset()
    """Of :data:`KINDS`, those that are passed on unprotected."""

    @property
    def sessions(self) -> Path:
        """Where the node keeps its places in sessions."""
        return self.folder / "sessions"

    @classmethod
    def read(cls, node_config: Mapping[str, object]) -> "NodeSettings":
        """Read the node's configuration, ``coterie-...`` of ``--node-config``, and ``node.toml`` in its folder."""
        for key in node_config:
            if key.lower().startswith(PREFIX[:-1]) and not key.startswith(PREFIX):  # coterie_roster, coterie.roster
                raise ConfigError(f"{key}: no such setting; those of Coterie begin with {PREFIX!r}")
        given = {key.removeprefix(PREFIX): value for key, value in node_config.items() if key.startswith(PREFIX)}
        _check_filled(given)
        partition = node_config.get("partition-id")
        name = str(given.get("name", "node" if partition is None else f"partition-{partition}"))
        if not NAME.fullmatch(name):
            raise ConfigError("coterie-name: a node's name has 1 to 64 letters, digits, dots, dashes or underscores")
        folder = own_folder(str(given["folder"])) if "folder" in given else node_home(name)
        if os.path.lexists(file := folder / SETTINGS):  # a link that leads nowhere is a mistake, and not ignored
            given = {**_file(file), **given}
        known = [*_FLOOR, "weight", *_STRINGS]
        if unknown := sorted(given.keys() - set(known)):
            raise ConfigError(f"{PREFIX}{unknown[0]}: no such setting; there are {', '.join(known)}")
        allow = frozenset(str(given.get("allow", "")).replace(",", " ").split())
        if not allow <= set(KINDS):
            raise ConfigError(f"{PREFIX}allow: only {' and '.join(KINDS)} can be let through unprotected")
        return cls(
            name,
            folder,
            _floor(given),
            roster=str(given.get("roster", "")),
            auth_key=str(given.get("auth-key", "")),
            members=str(given.get("members", "")),
            weight=_weight(given.get("weight")),
            allow=allow,
        )


class Node:
    """One node on its own machine."""

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
        """Open what this node remembers for good."""
        return MemoryFile(self.folder / "memory.sqlite")

    def session(self, run: int) -> AbstractContextManager[SessionFile]:
        """Hold this node's place in the sessions of a run; a second process waits until the first has answered."""
        return hold_place(self.settings.sessions, run)

    def _identity(self) -> Identity:
        path = self.folder / "identity.key"
        if not path.exists():
            write_once(path, Identity.generate(SystemEntropy()).secret())
        secret = path.read_bytes()
        try:
            return Identity(secret)
        except ValueError:
            raise ConfigError(f"{path} is not a key of this node; restore it, or enrol the node anew") from None


def run_config_digest(run_config: Mapping[str, Any]) -> bytes:
    """Return the name of a run's configuration: clients that train with different ones are told apart by it."""
    return hashlib.sha256(msgspec.json.encode(sorted((key, repr(value)) for key, value in run_config.items()))).digest()


def _check_filled(given: Mapping[str, object]) -> None:
    """Refuse settings that are there and empty: a variable of the shell that is not set must not take a pin away."""
    for key in _NEVER_EMPTY:
        if given.get(key) == "":
            raise ConfigError(f"{PREFIX}{key} is empty: leave it out, or say what it is")


def _file(path: Path) -> dict[str, object]:
    try:
        given = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None
    for key in _PLACE & given.keys():
        raise ConfigError(f"{path}: {key} says where this file is, and belongs to --node-config as {PREFIX}{key}")
    _check_filled(given)
    return given


def _weight(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ConfigError(f"{PREFIX}weight: a whole number of at least 0, not {value!r}")
    return value


def _floor(given: Mapping[str, object]) -> Floor:
    """Return the node's floor: unless told otherwise, against a server that lies, and never alone."""
    mode = given.get("mode", ThreatMode.ACTIVE_SERVER)
    if mode not in list(ThreatMode):
        raise ConfigError(f"{PREFIX}mode: one of {', '.join(ThreatMode)}, not {mode!r}")
    floor: dict[str, Any] = {"mode": ThreatMode(str(mode)), "privacy": 2}
    for key, kind in _FLOOR.items():
        value = given.get(key)
        if value is None:
            continue
        # A fraction or a truth value would be rounded, and a node must not insist on less than its operator wrote.
        if isinstance(value, bool) or not isinstance(value, (int, kind)):
            raise ConfigError(f"{PREFIX}{key}: a {'whole ' if kind is int else ''}number, not {value!r}")
        floor[key.replace("-", "_")] = value
    return Floor(**floor)
