"""Readers of participation logs: which clients were aggregated in which round, in the log format of any system.

Start with :mod:`~coterie.auditing.logs.formats`: it has a table with a row for each format, and ``read_log``.

1. A :class:`~coterie.auditing.logs.raw_log.RawLog` is a source with the user's ``options``. It provides the bytes or
   the text that a format needs.
2. The first format that recognises the log reads it. A reader, such as :mod:`~coterie.auditing.logs.pairs`, finds out
   which columns (``columns``) and rows (``row_filter``) count, and passes rounds to a ``collector``.
3. The collector sorts the rounds (``round_order``) and returns a ``Participation`` with the lines it could not use.

Ambiguous logs are refused; the error names the parameter to set. A new format is a module with a reader, and a row in
the table.
"""

from coterie.auditing.logs.formats import FORMATS, LogFormat, read_log
from coterie.auditing.logs.runs import read_runs
from coterie.cohorts.participation import Label, Participation, UnusedLine

__all__ = ["FORMATS", "Label", "LogFormat", "Participation", "UnusedLine", "read_log", "read_runs"]
