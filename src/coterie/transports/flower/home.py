"""Homes: the folders in which a server keeps its history, and a node its identity, memory and sessions.

They belong to whoever operates the machine. A run's configuration comes from whoever starts a run, and a run that could
say where the history is could begin a new one; so the place is said by the environment (``COTERIE_HOME``) or, on a
node, by its own configuration, and by nothing that arrives over the network.
"""

import os
from pathlib import Path

from coterie.files import private_folder

ENVIRONMENT = "COTERIE_HOME"


def home() -> Path:
    """Return the folder of this machine's operator, ``~/.coterie`` unless the environment says otherwise."""
    return Path(os.environ.get(ENVIRONMENT) or Path.home() / ".coterie")


def server_home() -> Path:
    """Return the server's folder, made if it is not there."""
    return private_folder(home() / "server")


def node_home(name: str) -> Path:
    """Return the folder of a node of this name, made if it is not there."""
    return private_folder(home() / "nodes" / name)


def own_folder(path: str) -> Path:
    """Return a folder that a node's configuration names, made if it is not there."""
    return private_folder(Path(path).expanduser())
