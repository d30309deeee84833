"""The files of an app in its folder on a site. Members of a session compare them."""

import hashlib
import os
import sys
from importlib.machinery import BYTECODE_SUFFIXES
from pathlib import Path

from coterie.deployment.logs import quote
from coterie.errors import ConfigError

_SETTING = "PYTHONDONTWRITEBYTECODE"


def digest_files(folder: Path, config: Path) -> dict[str, str]:
    """Return digests of all files in an app's folder by their paths, except for its configuration.

    The configuration is compared separately, in parsed form, because NVFlare rewrites that file on a site.

    An app with bytecode is refused. Python may run bytecode in place of the source beside it without comparing the two.
    Digests of bytecode would not help: bytecode that Python wrote itself contains times and paths of its site, so
    honest sites would differ, and it cannot be distinguished from bytecode that came with the job.
    """
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in paths:
        if path.suffix.lower() in BYTECODE_SUFFIXES:
            raise ConfigError(
                f"the app of this job has bytecode, {quote(str(path.relative_to(folder)))}, which Python may run in "
                f"place of its source: leave it out of the job, and set {_SETTING}=1 in the environment of this client"
            )
    compared = [path for path in paths if path != config]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in compared}


def stop_bytecode() -> None:
    """Stop this process, and those that it starts, from writing bytecode of an app into its folder.

    Otherwise a process that is restarted in the same job would find it there and refuse the app.
    """
    sys.dont_write_bytecode = True
    os.environ[_SETTING] = "1"
