"""Folders of Coterie runs: finds the file with the aggregated clients."""

import stat
import tomllib
from pathlib import Path

from coterie.errors import InputError

_CONFIG = 1 << 16  # maximum bytes of a run's configuration; a real one has some thousand


def find_log(folder: Path) -> Path:
    """Return the ledger of a run or, without one, its metrics."""
    if _kind_of(folder / "config.toml") != "secure":
        raise InputError(
            "this run aggregated in the clear: the server saw every update, and there are no sums to audit"
        )
    for name in ("ledger.sqlite", "metrics.jsonl"):
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"cannot read the log: {folder} is a folder, and has no ledger.sqlite or metrics.jsonl of a run")


def _kind_of(config: Path) -> object:
    """Return the kind of aggregation in a run's settings; without settings it is assumed to be secure.

    Unreadable settings are refused: a run in the clear must not get a verdict about sums.
    """
    try:
        found = config.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"cannot read the log: {config.name} is not a plain file")
        if found.st_size > _CONFIG:
            raise InputError(f"cannot read the log: {config.name} has more than {_CONFIG:,} bytes")
        with config.open("rb") as file:
            return tomllib.loads(file.read(_CONFIG).decode()).get("aggregation", {}).get("kind", "secure")
    except FileNotFoundError:
        return "secure"
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read the log: {config.name} of the run cannot be read: {error}") from error
