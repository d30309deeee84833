"""Participation logs of any system: who was aggregated in which round, read from whatever it was written to.

Start at :mod:`~coterie.auditing.logs.formats`: a table with a row for each format, and ``read_log``, which walks it.

1. A :class:`~coterie.auditing.logs.raw_log.RawLog` is a source and what its owner says about it (``options``). It gives
   bytes or text when a format asks for them.
2. The first format that recognises it reads it. A reader, such as :mod:`~coterie.auditing.logs.pairs`, finds out which
   columns count (``columns``) and which rows (``row_filter``), and hands rounds to a ``collector``.
3. The collector puts the rounds in order (``round_order``) and returns a ``Participation``, with its unused lines.

What could mean several things is refused, and the error names the parameter that helps. A new format is a module with
its reader, and its row in the table.
"""

from coterie.auditing.logs.formats import FORMATS, LogFormat, read_log
from coterie.cohorts.participation import Label, Participation, UnusedLine

__all__ = ["FORMATS", "Label", "LogFormat", "Participation", "UnusedLine", "read_log"]
