"""Home folders: a server stores its history there, and a node its identity, memory and sessions.

A home belongs to the operator of the machine. The environment (``COTERIE_HOME``) names it or, on a node, the node's own
configuration. No message can change it, because a run that could choose the place of the history could begin a new one.
"""

import os
from pathlib import Path

from coterie.errors import ConfigError
from coterie.files import private_folder

ENVIRONMENT = "COTERIE_HOME"


def home() -> Path:
    """Return the folder of this machine's operator, ``~/.coterie`` unless the environment names another."""
    if named := os.environ.get(ENVIRONMENT):
        return Path(named)
    try:
        return Path.home() / ".coterie"
    except RuntimeError:  # in a container, a process may have a user that the system does not know
        raise ConfigError(f"this user has no home directory: set {ENVIRONMENT} to a folder") from None


def server_home() -> Path:
    """Return the server's folder, and create it if it is missing."""
    return private_folder(home() / "server")


def node_home(name: str) -> Path:
    """Return the folder of the node with this name, and create it if it is missing."""
    return _usable(home() / "nodes" / name)


def own_folder(path: str) -> Path:
    """Return the folder that a node's configuration names, and create it if it is missing."""
    try:
        folder = Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"coterie-folder: there is no such user as in {path!r}") from None
    return _usable(folder)


def _usable(folder: Path) -> Path:
    """Return a node's private folder; a :class:`ConfigError` if this process cannot read and write there."""
    if not os.access(private_folder(folder), os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"this process cannot read and write in {folder}: check its owner and its permissions")
    return folder
