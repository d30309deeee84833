"""Home folders: a server stores its history there, and a node its identity, memory and sessions.

A home belongs to the operator of the machine. The environment (``COTERIE_HOME``) names it or, on a node, the node's own
configuration. No message can change it, because a run that could choose the place of the history could begin a new one.
"""

import os
from pathlib import Path

from coterie.files import private_folder

ENVIRONMENT = "COTERIE_HOME"


def home() -> Path:
    """Return the folder of this machine's operator, ``~/.coterie`` unless the environment names another."""
    return Path(os.environ.get(ENVIRONMENT) or Path.home() / ".coterie")


def server_home() -> Path:
    """Return the server's folder, and create it if it is missing."""
    return private_folder(home() / "server")


def node_home(name: str) -> Path:
    """Return the folder of the node with this name, and create it if it is missing."""
    return private_folder(home() / "nodes" / name)


def own_folder(path: str) -> Path:
    """Return the folder that a node's configuration names, and create it if it is missing."""
    return private_folder(Path(path).expanduser())
