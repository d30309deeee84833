"""Options for reading a log: what the user states about it instead of having it detected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coterie.cohorts.log_size import DEFAULT_LIMIT

if TYPE_CHECKING:
    from coterie.cohorts.ledger_entry import Head


@dataclass(frozen=True)
class LogOptions:
    """The parameters of :func:`~coterie.auditing.logs.formats.read_log`."""

    format: str | None = None
    round_column: str | None = None
    client_column: str | None = None
    where: Mapping[str, Collection[str]] = field(default_factory=dict)
    encoding: str | None = None
    keep_order: bool = False
    as_written: bool = False
    window: str | None = None
    limit: int = DEFAULT_LIMIT
    head: Head | None = None
    progress: Callable[[float], None] = field(default=lambda _: None, compare=False, repr=False)

    @property
    def choose(self) -> bool:
        """Whether the user selects columns or rows."""
        return bool(self.round_column or self.client_column or self.where)
