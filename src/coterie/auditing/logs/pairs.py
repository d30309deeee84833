"""Pairs and lists: tables with a column of rounds and one of clients.

* ``pairs``: a row for each client in each round. A round without a client was skipped.
* ``lists``: a row for each round, with all its clients in one cell, or in the cells after the first.

A header determines which columns count. Without a header, the round comes first and is a number. Ambiguous tables are
refused; the error names the parameter to set.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from coterie.auditing.logs.collector import Collector
from coterie.auditing.logs.columns import (
    ONE_CLIENT,
    ROUND,
    SAY_COLUMNS,
    Meaning,
    find_column,
    list_columns,
    meaning_of,
    remedy_for,
)
from coterie.auditing.logs.options import LogOptions
from coterie.auditing.logs.raw_log import RawLog
from coterie.auditing.logs.row_filter import Fate, RowFilter
from coterie.auditing.logs.tables import Table
from coterie.cohorts.participation import Label, LogReading, Participation
from coterie.errors import InputError, Remedy
from coterie.reports.words import printable

_A_TIME = re.compile(r"\d{9,}|(19|20)\d{6}")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_NAME = re.compile(r"[^][(){}]+((\([^][(){}]+\)|\[[^][(){}]+\]|\{[^][(){}]+\})[^][(){}]*)*")  # brackets only in pairs
_UNKNOWN = {"...", "…", "None", "nan", "NaN", "null", "<NA>"}  # marks of abbreviated lists and of unknown clients
_SEVERAL = re.compile(r"[\[({].*|.*[,;|].*", re.DOTALL)  # a cell that may hold several clients


def read_pairs(log: RawLog) -> Participation:
    """Read a text in the format ``pairs``."""
    return PairLog(log.text.table, log.options, log.text.collector()).read_pairs(insisted=True)


def read_lists(log: RawLog) -> Participation:
    """Read a text in the format ``lists``."""
    return PairLog(log.text.table, log.options, log.text.collector()).read_lists(insisted=True)


class _Places(NamedTuple):
    """The columns of the rounds and the clients, and the line with which the rows start."""

    round: int
    client: int
    start: int


class PairLog:
    """A table with a column of rounds and one of clients."""

    def __init__(self, table: Table, options: LogOptions, found: Collector) -> None:
        self._table, self._options, self._found = table, options, found

    def read_pairs(self, *, insisted: bool) -> Participation:
        """Read a row for each client in each round. ``insisted`` means that the user named the format."""
        at = self._find_columns(ONE_CLIENT, insisted)
        rows, watched = self._filter(at)
        round_at, client_at, _ = at
        rounds: dict[str, Label] = {}  # a cache: there may be millions of lines with few rounds
        last, width = max(round_at, client_at, *watched), self._width(at)
        found, cut = self._found, self._table.cut
        title = self._table.header[round_at] if at.start else None

        def use(line: object) -> None:
            cells = cut(line)
            if len(cells) <= last:
                raise InputError("a round and a client are expected")
            if len(cells) > width and any(cells[width:]):
                raise InputError(f"{len(cells)} cells instead of {width}")
            text, client = cells[round_at], cells[client_at]
            fate = rows.judge({name: cells[at] for at, name in watched.items()}) if watched else Fate.COUNTS
            if fate is Fate.NOT_ASKED_FOR:
                return
            label = rounds.get(text)
            if label is None:
                if text == title:
                    raise InputError("the header occurs again; several logs in one file cannot be told apart")
                label = rounds[text] = found.label(text)
                found.open_round(label)
            if fate is Fate.COUNTS:
                found.add(label, client) if client else found.add_nobody(label)
            elif client and fate is Fate.LOST:
                found.lose(label, client)

        found.each(self._table.lines(at.start), use)
        return found.finish(self._reading("pairs", at, watched), rows)

    def read_lists(self, *, insisted: bool) -> Participation:
        """Read a row for each round with all its clients."""
        at = self._find_columns((Meaning.CLIENTS, *ONE_CLIENT), insisted)
        rows, watched = self._filter(at)
        round_at, client_at, start = at
        width = self._width(at)
        to_the_end = client_at > round_at and (not start or client_at == len(self._table.header) - 1)

        def use(line: object) -> None:
            cells = self._table.cut(line)
            if len(cells) <= max(round_at, client_at, *watched):
                raise InputError("a round and its clients are expected")
            if not to_the_end and len(cells) > width and any(cells[width:]):
                raise InputError(f"{len(cells)} cells instead of {width}")
            fate = rows.judge({name: cells[at] for at, name in watched.items()}, many=True)
            if fate is Fate.NOT_ASKED_FOR:
                return
            given = _without_padding(cells[client_at:]) if to_the_end else [cells[client_at]]
            clients = [name for cell in given for name in split_list(cell)] if fate is Fate.COUNTS else []
            self._found.add_all(self._found.label(cells[round_at]), clients)

        self._found.each(self._table.lines(start), use)
        return self._found.finish(self._reading("lists", at, watched), rows)

    def _find_columns(self, ranks: Sequence[Meaning], insisted: bool) -> _Places:
        """Find the columns of rounds and clients, from the options, the header, or the order of the columns."""
        options, header = self._options, self._table.header
        folded = {name.casefold() for name in header if not name.isdecimal()}
        given = [name for name in (options.round_column, options.client_column) if name is not None]
        if self._table.named or options.where or any(name.casefold() in folded for name in given):
            round_at = find_column(header, options.round_column, ROUND, "rounds")
            client_at = find_column(header, options.client_column, ranks, "clients")
            for at, holds in ((round_at, "rounds"), (client_at, "clients")):
                if at < 0:
                    raise InputError(
                        f"no column is known to hold the {holds}: {list_columns(header)}. Use ", remedy_for(holds)
                    )
            if not insisted:
                self._check_lists(_Places(round_at, client_at, 1))
            return self._apart(_Places(round_at, client_at, 1))
        if not given and not insisted:
            self._check_headerless()
            self._check_lists(_Places(0, 1, 0))
            return _Places(0, 1, 0)
        numbers = [str(number) for number in range(1, max(len(header), 2) + 1)]
        round_at = find_column(numbers, options.round_column or "1", (), "rounds")
        client_at = find_column(numbers, options.client_column or "2", (), "clients")
        after = self._table.sample[1] if len(self._table.sample) > 1 else ()
        begins = [len(row) > round_at and row[round_at].isdecimal() for row in (header, after)]
        start = int(begins == [False, True])
        if start and max(round_at, client_at) >= len(header):
            raise InputError(
                f"the first line is taken for a header, and has no cell for column {max(round_at, client_at) + 1}: "
                f"{list_columns(header)}. Give every column a name, or remove the line"
            )
        if start:
            self._found.note("the first line was taken for a header")
        return self._apart(_Places(round_at, client_at, start))

    def _apart(self, at: _Places) -> _Places:
        if at.round == at.client:
            raise InputError("the rounds and the clients cannot be in one column")
        return at

    def _width(self, at: _Places) -> int:
        """Return the number of cells of a row."""
        return len(self._table.header) if at.start else Counter(map(len, self._table.sample)).most_common(1)[0][0]

    def _check_headerless(self) -> None:
        """Raise :class:`InputError` unless the first columns are clearly a round number and a client."""
        lengths = Counter(map(len, self._table.sample))
        length = lengths.most_common(1)[0][0]
        example = f"“{printable(self._table.example, 70)}”"
        if length == 1 and lengths[2] == 0:
            return  # every line will be listed as unusable
        if length > 2 or len(lengths) > 2:
            cells = f"{min(lengths)} to {max(lengths)}" if len(lengths) > 1 else str(length)
            raise InputError(
                f"the lines have {cells} cells and no header that names a round and a client, "
                f"as in {example}. If each line is a round and its clients, use ",
                Remedy("format", "lists"),
                "; if 0 and 1 for each client, ",
                Remedy("format", "matrix"),
                "; else ",
                *SAY_COLUMNS,
            )
        pairs = [row for row in self._table.sample if len(row) == 2]
        numbered = [row for row in pairs if row[0].isdecimal()]
        if 2 * len(numbered) < len(pairs):
            raise InputError(
                f"no header names a round and a client, and the lines do not begin with numbers, as in {example}: ",
                *SAY_COLUMNS,
            )
        if self._table.sample[0] not in numbered and len(numbered) == len(pairs) - 1:
            raise InputError(
                f"the first line seems to name the columns, but not a round and a client: {example}; ",
                *SAY_COLUMNS,
            )
        if all(_A_TIME.fullmatch(row[0]) for row in numbered):
            raise InputError(f"the lines begin with times, not with rounds, as in {example}: ", *SAY_COLUMNS)
        firsts, seconds = ([int(row[at][:19]) for row in pairs if row[at].isdecimal()] for at in (0, 1))
        if len(firsts) == len(seconds) == len(pairs) and firsts != sorted(firsts) and seconds == sorted(seconds):
            raise InputError(
                "not clear which column holds the rounds: the second is in order, the first is not; ", *SAY_COLUMNS
            )

    def _check_lists(self, at: _Places) -> None:
        """Raise :class:`InputError` if cells may hold several clients and the header does not clarify it."""
        sample = [cells for cells in self._table.sample[at.start :] if len(cells) > max(at)]
        if at.start and meaning_of(self._table.header[at.client]) is Meaning.CLIENTS:
            if sample and all(
                len(cells) <= len(self._table.header) and cells[at.client].isdecimal() for cells in sample
            ):
                raise InputError(
                    f"not clear whether {printable(sample[0][at.client])} in column "
                    f"{printable(self._table.header[at.client])} is a client or a number of clients: use ",
                    Remedy("format", "lists"),
                    " if it is a client",
                )
            return
        lists = [cells[at.client] for cells in sample if _SEVERAL.fullmatch(cells[at.client])]
        once = len({cells[at.round] for cells in sample}) == len(sample)
        if lists and (once or lists[0].startswith(("[", "{", "("))):
            raise InputError(
                f"not clear whether “{printable(lists[0], 70)}” is one client or several: use ",
                Remedy("format", "pairs"),
                " or ",
                Remedy("format", "lists"),
            )

    def _filter(self, at: _Places) -> tuple[RowFilter, dict[int, str]]:
        """Return the filter of rows, and the columns that it uses."""
        rows, names = RowFilter(self._options.where), self._table.header if at.start else ()
        deciding = rows.watch(names)
        if len(set(names)) < len(names):
            raise InputError(f"two columns have the same name: {list_columns(names)}")
        places = {name: n for n, name in enumerate(names)}
        return rows, {n: name for name in deciding if (n := places[name]) not in at[:2]}

    def _reading(self, format_name: str, at: _Places, watched: Collection[int]) -> LogReading:
        def name(n: int) -> str:
            return (printable(self._table.header[n]) or "(without a name)") if at.start else str(n + 1)

        rest = range(self._width(at)) if format_name == "pairs" or at.start else ()
        ignored = tuple(name(n) for n in rest if n not in (*at[:2], *watched))
        return LogReading(format_name, f"column {name(at.round)}", f"column {name(at.client)}", ignored=ignored)


def split_list(cell: str) -> list[str]:
    """Return the clients in one cell, with any separator."""
    inner = cell.strip()
    bracketed = inner[:1] in ("[", "(", "{") and inner[-1:] in ("]", ")", "}")
    inner = inner[1:-1].strip() if bracketed else inner
    if bracketed and (quoted := _QUOTED.findall(inner)):
        marked = _QUOTED.sub("'", inner)
        if rest := marked.replace("'", "").strip(", "):
            raise InputError(
                f"not clear which clients a list has that quotes some names, but not {printable(rest, 40)}"
            )
        first, *between = marked.split("'")
        if first or any(part.strip() not in ("", ",") for part in between):
            raise InputError(_empty(cell))
        return [one or other for one, other in quoted]
    if re.search(r"[,;|]", inner):
        parts = [part.strip() for part in re.split(r"[,;|]", inner)]
        parts = parts if parts[-1] else parts[:-1]  # a single separator at the end does not start another name
    else:
        parts = inner.split()
        if len(parts) > 1 and not bracketed and not all(part.isdecimal() or part in _UNKNOWN for part in parts):
            raise InputError("not clear whether blanks separate clients or belong to a name")
    for part in parts:
        if not part:
            raise InputError(_empty(cell))
        if part in _UNKNOWN:
            raise InputError(f"the list does not name all clients: it has {part}")
        if not _NAME.fullmatch(part):
            raise InputError(f"not clear which clients a list with brackets inside has: {printable(cell, 70)}")
    return parts


def _without_padding(cells: Sequence[str]) -> list[str]:
    """Return cells without empty ones at the end: spreadsheets give all rows the same length."""
    last = max((at for at, cell in enumerate(cells) if cell), default=-1)
    found = list(cells[: last + 1])
    if "" in found:
        raise InputError(_empty(",".join(found)))
    return found


def _empty(cell: str) -> str:
    return f"a client in the list has no name: {printable(cell, 70)}"
