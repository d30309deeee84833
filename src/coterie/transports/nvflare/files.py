"""The files of an app in its folder on a site, which members of a session compare, and where Python finds code."""

import hashlib
import json
import os
import sys
from importlib.machinery import BYTECODE_SUFFIXES
from pathlib import Path
from typing import Any

from coterie.deployment.logs import quote
from coterie.errors import ConfigError

CONFIG = "config_fed_client.json"
"""The client's part of the configuration of a job."""
_SETTING, _PATH = "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"


def read_config(path: Path) -> dict[str, Any]:
    """Read the client's part of a job, which must be a JSON document. NVFlare also takes HOCON and YAML.

    HOCON may include an address, and be another text each time that it is read; in YAML 1 and "1" are two keys.
    """
    try:
        described = json.loads(path.read_text("utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError):
        described = None
    if not isinstance(described, dict):
        raise ConfigError(f"{path} cannot be read as JSON: write the client's part of the job in JSON")
    return described


def _refuse_constant(_name: str) -> None:
    raise ValueError("NaN and infinity are not part of JSON")


def digest_files(folder: Path, config: Path) -> dict[str, str]:
    """Return digests of all files in an app's folder by their paths, except for its configuration.

    Folders are in it, too, with a slash after their names: Python imports a folder without files, and code may look for
    one. The configuration is compared separately, in parsed form, because NVFlare rewrites that file on a site.

    An app with bytecode is refused. Python may run bytecode in place of the source beside it without comparing the two.
    Digests of bytecode would not help: bytecode that Python wrote itself contains times and paths of its site, so
    honest sites would differ, and it cannot be distinguished from bytecode that came with the job.
    """
    digests = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            digests[f"{name}/"] = ""
        elif path.suffix.lower() in BYTECODE_SUFFIXES:
            raise ConfigError(
                f"the app of this job has bytecode, {quote(name)}, which Python may run in "
                f"place of its source: leave it out of the job, and set {_SETTING}=1 in the environment of this client"
            )
        elif path != config and path.is_file():
            digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def stop_bytecode() -> None:
    """Stop this process, and those that it starts, from writing bytecode of an app into its folder.

    Otherwise a process that is restarted in the same job would find it there and refuse the app.
    """
    sys.dont_write_bytecode = True
    os.environ[_SETTING] = "1"


def stop_imports_from_workspace() -> None:
    """Stop this process, and those that it starts, from finding modules in NVFlare's workspace.

    NVFlare's client changes to its workspace, where Python then finds the folder of each job as a package. A server
    chooses the names of jobs, and an app may look whether there is such a module.
    """
    if not all(os.path.isdir(folder) for folder in ("local", "startup")):  # so this process is not in a workspace
        return
    here = os.path.realpath(".")
    sys.path[:] = [place for place in sys.path if os.path.realpath(place) != here]
    if places := os.environ.get(_PATH):
        kept = [place for place in places.split(os.pathsep) if os.path.realpath(place) != here]
        os.environ[_PATH] = os.pathsep.join(kept)


def stop_imports_from_other_jobs(app: Path) -> None:
    """Stop this process, and those that it starts, from finding modules in NVFlare's workspace outside of an app.

    NVFlare's launcher lets a process find the modules of the job that the server names in the job's meta data.
    """
    sys.path[:] = [place for place in sys.path if not is_of_others(os.path.realpath(place), app)]
    if places := os.environ.get(_PATH):
        kept = [place for place in places.split(os.pathsep) if not is_of_others(os.path.realpath(place), app)]
        os.environ[_PATH] = os.pathsep.join(kept)


def is_of_others(path: str, app: Path) -> bool:
    """Return whether a path leads into NVFlare's workspace, but not into an app or what the operator installed there.

    Both paths are without links.
    """
    workspace = app.parent.parent
    if not path.startswith(str(workspace)):  # so most paths are fast
        return False
    file = Path(path)
    kept = [app, workspace / "local", workspace / "startup", *map(Path, {sys.prefix, sys.base_prefix})]
    return file.is_relative_to(workspace) and not any(file.is_relative_to(place) for place in kept)
