"""Entries of a ledger, and their two formats.

**Format 1** is JSON with the names of all aggregated clients. It is read and no longer written.

**Format 2** is MessagePack. A client is named once, in the first row that contains it, and has a number from then on:
the next one, in the order of the names in that row. Later rows contain the number
(:mod:`coterie.cohorts.packed_numbers`). The clients of format 1 have numbers by the same rule. An entry whose bytes are
not exactly what :func:`encode` returns for it is refused, so no two contents look alike.

Entries of format 1 are never rewritten, because heads that were kept elsewhere fix their bytes. A ledger of format 1 is
continued by a *checkpoint*, and by entries of format 2 after it.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NamedTuple, Self

import msgspec

from coterie.cohorts.ledger_columns import Columns
from coterie.errors import ConfigError, InputError

FORMAT = 2
"""The format in which entries are written."""
RoundNumber = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Other numbers fit into no column of integers and into no array."""
_JSON = b"{"  # the first byte of format 1; no map of MessagePack begins with it


class Head(NamedTuple):
    """The end of a chain. It fixes every entry up to and including ``sequence``. As text: SEQUENCE:DIGEST."""

    sequence: int
    digest: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a head as written by ``str``."""
        if not re.fullmatch(r"[0-9]{1,18}:[0-9a-f]{64}", text):
            raise InputError("the head of a ledger is SEQUENCE:DIGEST, a number and 64 hexadecimal digits")
        sequence, digest = text.split(":")
        return cls(int(sequence), digest)

    def __str__(self) -> str:
        return f"{self.sequence}:{self.digest}"


START = Head(0, "0" * 64)
"""The head of an empty ledger."""


class EntryKind(StrEnum):
    """The kind of an entry: what happened in its round, or a checkpoint."""

    REVEAL = "reveal"
    COMPLETE = "complete"
    ABORT = "abort"
    SKIP = "skip"
    CHECKPOINT = "checkpoint"
    """Everything that follows from the entries before; it belongs to no round."""


@dataclass(frozen=True)
class Entry:
    """An entry as a ledger returns it, with the names of its clients."""

    sequence: int
    round: int
    """The number of the round; of a checkpoint, its sequence number."""
    kind: EntryKind
    previous: str
    """The digest of the entry before."""
    aggregated: tuple[str, ...] = ()
    """The sorted names of the clients in the sum, if the kind is *reveal*."""
    columns: Columns | None = None
    """What else is recorded of the sum, if the kind is *reveal*."""
    reason: str = ""


class StoredEntry(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=FORMAT, omit_defaults=True
):
    """An entry of format 2. Fields that are empty are not stored."""

    sequence: int
    round: RoundNumber
    kind: EntryKind
    previous: str
    newcomers: tuple[str, ...] = ()
    """The clients of a row that are in no earlier row, sorted by name. They get the next numbers."""
    members: bytes = b""
    """The numbers of the other clients of the row, packed."""
    columns: Columns | None = None
    reason: str = ""
    state: bytes = b""
    """The content of a checkpoint (:class:`~coterie.cohorts.ledger_state.Checkpoint`)."""


class NamedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=1):
    """An entry of format 1. ``promised`` is 0 and ``aggregated`` is empty unless the kind is *reveal*."""

    sequence: int
    round: RoundNumber
    kind: EntryKind
    aggregated: tuple[str, ...]
    promised: int
    roster: bytes
    reason: str
    previous: str
    recipe: bytes = b""

    @property
    def columns(self) -> Columns | None:
        """What is recorded of the sum, as in format 2."""
        if self.kind is not EntryKind.REVEAL:
            return None
        return stored_columns({"promised": self.promised, "roster": self.roster, "recipe": self.recipe})


def stored_columns(columns: Columns) -> Columns:
    """Return the columns without those that are empty or zero."""
    return {name: value for name, value in columns.items() if value}  # type: ignore[return-value]  # a part of Columns, whose keys are all optional


def encode(entry: StoredEntry) -> bytes:
    """Return the bytes of an entry."""
    return msgspec.msgpack.encode(entry)


def decode(body: bytes) -> StoredEntry | NamedEntry:
    """Return the entry in ``body``, of either format; ValueError if it cannot be read.

    Raises :class:`ConfigError` for a format of a later version of Coterie.
    """
    try:
        return _decode(body)
    except RecursionError:
        raise InputError("it is nested too deeply") from None


def _decode(body: bytes) -> StoredEntry | NamedEntry:
    if body.startswith(_JSON):
        return msgspec.json.decode(body, type=NamedEntry)
    try:
        entry = msgspec.msgpack.decode(body, type=StoredEntry)
    except msgspec.ValidationError:
        version = msgspec.msgpack.decode(body, type=_Version).format
        if version > FORMAT:
            raise ConfigError(
                f"the ledger has entries of format {version}, and this version of Coterie reads formats up to "
                f"{FORMAT}: install a newer one"
            ) from None
        raise
    if encode(entry) != body:
        raise InputError("it is not written as Coterie writes entries")
    return entry


def count_names(body: bytes) -> int:
    """Return at most how many names are in ``body``, before they are decoded; 0 if it cannot be read."""
    if body.startswith(_JSON):
        return body.count(b",")
    try:
        names = bytes(msgspec.msgpack.decode(body, type=_Newcomers).newcomers)
    except (ValueError, RecursionError):
        return 0
    kind, longer = names[0], {0xDC: 2, 0xDD: 4}  # the kinds of arrays whose length has so many bytes
    return int.from_bytes(names[1 : 1 + longer[kind]]) if kind in longer else kind & 0x0F


class _Newcomers(msgspec.Struct):
    """The newcomers of an entry as its bytes have them; its other fields are skipped."""

    newcomers: msgspec.Raw = msgspec.Raw(b"\x90")


class _Version(msgspec.Struct):
    """The format of an entry; its other fields are skipped."""

    format: int
