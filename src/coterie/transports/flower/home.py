"""Homes: the folders in which a server keeps its history, and a node its identity, memory and sessions.

They belong to whoever operates the machine. A run's configuration comes from whoever starts a run, and a run that could
say where the history is could begin a new one; so the place is said by the environment (``COTERIE_HOME``) or, on a
node, by its own configuration, and by nothing that arrives over the network.
"""

import os
import stat
import tempfile
from pathlib import Path

from coterie.errors import ConfigError

ENVIRONMENT = "COTERIE_HOME"


def home() -> Path:
    """Return the folder of this machine's operator, ``~/.coterie`` unless the environment says otherwise."""
    return Path(os.environ.get(ENVIRONMENT) or Path.home() / ".coterie")


def server_home() -> Path:
    """Return the server's folder, made if it is not there."""
    return _private(home() / "server")


def node_home(name: str) -> Path:
    """Return the folder of a node of this name, made if it is not there."""
    return _private(home() / "nodes" / name)


def own_folder(path: str) -> Path:
    """Return a folder that a node's configuration names, made if it is not there."""
    return _private(Path(path).expanduser())


def write_safely(path: Path, content: bytes, *, once: bool = False, until: float | None = None) -> bool:
    """Put a file in place whole or not at all, on disk when this returns, readable by its owner alone.

    With ``once``, a file that is there already is left as it is, and False is returned. With ``until``, that is the
    time of the file from the moment it is in place.
    """
    written = True
    # A name by chance, and nobody else's file: processes on two machines, or in two containers, have the same numbers.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    scratch = Path(name)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if until is not None:
                os.utime(file.fileno(), (until, until))
            os.fsync(file.fileno())
        if once:
            try:
                os.link(scratch, path)
            except FileExistsError:
                written = False
        else:
            os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)  # what is written may be a secret, also if the disk is full half-way
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return written


def _private(folder: Path) -> Path:
    try:
        for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
            missing.mkdir(exist_ok=True, mode=0o700)  # those above it too, or others could put theirs in its place
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be a folder of this machine's operator: {error.strerror}") from None
    if folder.stat().st_mode & stat.S_IWOTH:
        raise ConfigError(f"everybody may write to {folder}: name a folder inside it, which is then made private")
    return folder
