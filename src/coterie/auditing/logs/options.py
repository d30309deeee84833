"""Options of a log: what its owner says about it, so that it need not be told from its content."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coterie.cohorts.log_size import DEFAULT_LIMIT

if TYPE_CHECKING:
    from coterie.cohorts.ledger import Head


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
    limit: int = DEFAULT_LIMIT
    head: Head | None = None

    @property
    def choose(self) -> bool:
        """Whether columns or rows are chosen."""
        return bool(self.round_column or self.client_column or self.where)
