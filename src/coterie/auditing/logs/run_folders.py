"""Folders of Coterie's own runs: which file in one says who was aggregated."""

import tomllib
from pathlib import Path

from coterie.errors import InputError

_CONFIG = 1 << 20  # bytes of a run's configuration, of which one word matters


def find_log(folder: Path) -> Path:
    """Return the ledger of a run or, without one, its metrics."""
    try:
        with (folder / "config.toml").open("rb") as file:
            settings = tomllib.loads(file.read(_CONFIG).decode())
        kind = settings.get("aggregation", {}).get("kind", "secure")
    except (OSError, ValueError, AttributeError):
        kind = "secure"
    if kind != "secure":
        raise InputError(
            "this run aggregated in the clear: the server saw every update, and there are no sums to audit"
        )
    for name in ("ledger.sqlite", "metrics.jsonl"):
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"cannot read the log: {folder} is a folder, and has no ledger.sqlite or metrics.jsonl of a run")
