"""Folders of Coterie's own runs: where the ledger is, and whether the run had sums to audit.

The folder is not trusted. Only plain files are read, up to a limit, and their contents are compared. A verdict on sums
is given only if the settings say that sums were secure, and only from the ledger.
"""

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coterie.errors import ConfigError, InputError
from coterie.toml import LONGEST, parse_toml

if TYPE_CHECKING:
    from coterie.cohorts.ledger_entry import Head

CONFIG, CHECKPOINT, LEDGER = "config.toml", "checkpoint.safetensors", "ledger.sqlite"

_HEADER = 1 << 26  # bytes of a checkpoint's header, which names every array
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)


class RecordedProgress(msgspec.Struct, frozen=True):
    """The fields of the progress in a checkpoint that an audit needs; the others are skipped."""

    settings: str = ""
    """The settings that the run was played under, as TOML; empty in checkpoints of older versions."""
    ledger: tuple[int, str] | None = None
    """The ledger's head at that time."""


class _Header(msgspec.Struct):
    """The header of a safetensors file, without the arrays."""

    metadata: dict[str, str] = msgspec.field(name="__metadata__")


class RunLedger(NamedTuple):
    """The ledger of a run, and its head in the run's checkpoint, if there is one."""

    path: Path
    head: "Head | None"


def find_ledger(folder: Path) -> RunLedger:
    """Return the ledger of the run in a folder; :class:`InputError` if it does not show what the run's sums reveal.

    Metrics are not used instead, because no chain protects them, and they do not say whether sums were secure.
    """
    settings = _read_settings(folder)
    if settings is None:
        raise InputError(
            f"cannot read the log: {folder} is a folder without a {CONFIG} of a run, which says whether sums were "
            "secure. Give the folder as the run left it, or the file of a log"
        )
    progress = read_progress(folder)
    kind = _kind_of(settings, CONFIG)
    played = _kind_of(progress.settings, CHECKPOINT) if progress and progress.settings else kind
    if kind != played:
        raise InputError(
            f"{CONFIG} is not that of the run: aggregation.kind is {kind} there, and {played} in {CHECKPOINT}"
        )
    if kind != "secure":
        raise InputError(
            "this run aggregated in the clear: the server saw every update, and there are no sums to audit"
        )
    path = folder / LEDGER
    if not path.is_file():
        raise InputError(
            f"cannot read the log: {folder} has no {LEDGER}, in which a run records its secure sums. Put it back; a "
            "run that sums nothing (training.algorithm) has none, and nothing to audit"
        )
    if progress is None or progress.ledger is None:
        return RunLedger(path, None)
    from coterie.cohorts.ledger_entry import Head

    return RunLedger(path, Head(*progress.ledger))


def read_progress(folder: Path) -> RecordedProgress | None:
    """Return the progress in the checkpoint of a run; None if there is no checkpoint.

    Only the header of the file is read: eight bytes with its length, and JSON with the progress in its metadata.
    """
    try:
        start = _read_plain(folder / CHECKPOINT, 8)
        if start is None:
            return None
        length = int.from_bytes(start, "little")
        if length > _HEADER:
            raise InputError(f"cannot read the log: the header of {CHECKPOINT} has more than {_HEADER:,} bytes")
        header = msgspec.json.decode((_read_plain(folder / CHECKPOINT, 8 + length) or b"")[8:], type=_Header)
        return msgspec.json.decode(header.metadata["progress"], type=RecordedProgress)
    except (OSError, ValueError, KeyError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read the log: {CHECKPOINT} of the run cannot be read: {error}") from error


def _read_settings(folder: Path) -> str | None:
    """Return the settings of a run as TOML; None if there are none."""
    try:
        content = _read_plain(folder / CONFIG, LONGEST + 1)
        if content is not None and len(content) > LONGEST:
            raise InputError(f"cannot read the log: {CONFIG} has more than {LONGEST:,} bytes")
        return None if content is None else content.decode()
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read the log: {CONFIG} of the run cannot be read: {error}") from error


def _kind_of(settings: str, source: str) -> str:
    """Return how a run aggregated, according to its settings. Settings that cannot be read are an error."""
    try:
        return str(parse_toml(settings, "the text").get("aggregation", {}).get("kind", "secure"))
    except (ConfigError, AttributeError) as error:
        raise InputError(f"cannot read the log: the settings in {source} cannot be read: {error}") from error


def _read_plain(path: Path, limit: int) -> bytes | None:
    """Return the first ``limit`` bytes of a plain file; None if there is no such file."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAIT)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"cannot read the log: {path.name} is not a plain file")
            return file.read(limit)
    except FileNotFoundError:
        return None
