"""Records with named fields, as in JSON: ``{"round": 7, "clients": ["a", "b"]}`` or ``{"round": 7, "client": "a"}``.

* ``jsonl``: a record on each line;
* ``json``: a document with records, with a list of clients for each round, or with rows of 0 and 1.

If there are several lists, the one of aggregated clients counts. The records of a Coterie run (``metrics.jsonl``) have
such a list. Their outcome does not matter: what was revealed stays revealed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from coterie.auditing.logs.collector import Collector
from coterie.auditing.logs.columns import (
    DECISIVE,
    ONE_CLIENT,
    ROUND,
    Meaning,
    find_column,
    list_columns,
    loses,
    meaning_of,
    remedy_for,
)
from coterie.auditing.logs.options import LogOptions
from coterie.auditing.logs.raw_log import RawLog
from coterie.auditing.logs.row_filter import LIST, Fate, RowFilter
from coterie.auditing.logs.text import load_json
from coterie.cohorts.participation import LogReading, Participation
from coterie.errors import InputError, LogTooLarge, Remedy
from coterie.reports.words import printable

Value = TypeVar("Value")

_OWN = {"round", "outcome", "aggregated", "stranded"}  # fields that identify the metrics of a Coterie run
_MOST_LAYOUTS = 10_000
_MOST_FIELDS = 100_000
_BETWEEN = 256  # records or rounds of a document between two reports of progress


def is_jsonl(log: RawLog) -> bool:
    """Return whether the first line looks like a complete record, and not like (the beginning of) a document."""
    line = log.text.sample[0]
    if not (line.lstrip().startswith("{") and line.rstrip().endswith("}")):
        return False
    try:
        values = load_json(line, log.options.limit)
    except LogTooLarge:
        raise
    except (ValueError, RecursionError):
        return True  # a damaged record
    return not any(map(_is_records, values.values())) and not all(isinstance(value, list) for value in values.values())


def read_jsonl(log: RawLog) -> Participation:
    """Read a record from each line."""
    return RecordLog(log.options, log.text.collector()).read_lines(log.text.lines)


def is_json(log: RawLog) -> bool:
    """Return whether the text is a JSON document, even a damaged one; a table may begin with a bracket too."""
    if not log.text.begins_like_json:
        return False
    try:
        return isinstance(log.text.document, dict | list)
    except InputError:
        raise
    except (ValueError, RecursionError):
        return log.text.sample[0].lstrip().startswith("{")


def _fault(error: Exception) -> str:
    """Return in words why a text is not JSON."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def read_json(log: RawLog) -> Participation:
    """Read a whole document."""
    try:
        document = log.text.document
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        if log.options.format is None and _is_object(log.text.sample[0], log.options.limit):
            return read_jsonl(log)  # records with unusual fields, one on each line
        raise InputError(f"nothing in the log is readable: not JSON: {_fault(error)}") from error
    found, options = log.text.collector(), log.options
    match document:
        case [*records] if _is_records(records):
            return RecordLog(options, found).read_document(records)
        case [[*first], *_] if all(isinstance(row, list) and len(row) == len(first) for row in document):
            if all(isinstance(bit, int) and bit in (0, 1) for row in document for bit in row):
                _check_no_choice(options, "rows of 0 and 1 have")
                return replace(Participation.from_matrix(document), reading=LogReading("json", "rows", "columns"))
        case {**rounds} if rounds and all(isinstance(clients, list) for clients in rounds.values()):
            if all(meaning_of(str(label)) is Meaning.OTHER for label in _reporting(list(rounds), options)):
                _check_no_choice(options, "an object with a list for each round has")
                lists = [{"round": label, "clients": clients} for label, clients in rounds.items()]
                return RecordLog(options, found).read_document(lists)
    if isinstance(document, dict) and len(inner := [name for name in document if _is_records(document[name])]) == 1:
        found.note(f"only what is under {printable(inner[0])} was read")
        return RecordLog(options, found).read_document(document[inner[0]])
    raise InputError(
        'nothing in the log is readable: a JSON document is a list of objects with "round" and "clients" or '
        '"client", an object that contains one, an object with a list of clients for each round, such as '
        '{"1": ["Ada", "Ben"], "2": ["Ben"]}, or a list of rows of 0 and 1'
    )


def _reporting(values: Sequence[Value], options: LogOptions) -> Iterator[Value]:
    """Yield the values of a document, and report progress now and then."""
    for number, value in enumerate(values):
        if number % _BETWEEN == 0:
            options.progress(number / len(values))
        yield value


def _check_no_choice(options: LogOptions, words: str) -> None:
    """Refuse options that choose among columns or rows by them: without columns they would have no effect."""
    if options.choose:
        raise InputError(
            f"{words} no columns to choose from: leave out ",
            Remedy("where"),
            ", ",
            Remedy("round_column"),
            " and ",
            Remedy("client_column"),
        )


def _is_object(line: str, limit: int) -> bool:
    try:
        return isinstance(load_json(line, limit), dict)
    except (ValueError, RecursionError):
        return False


def _is_records(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(record, dict) for record in value)


class _Layout(NamedTuple):
    """The relevant fields of a record."""

    round: str
    client: str
    watched: tuple[str, ...]
    lost: tuple[str, ...]
    """Lists of clients that are not in the sum."""


class RecordLog:
    """Records, each about a round or about a client in a round."""

    def __init__(self, options: LogOptions, found: Collector) -> None:
        self._options, self._found = options, found
        self._rows = RowFilter(options.where)
        self._layouts: dict[tuple[object, ...], _Layout] = {}
        self._fields: dict[str, None] = {}
        self._lists: set[str] = set()  # the fields of the clients in records that count
        self._own = False  # whether some records are those of one of our runs

    def read_lines(self, lines: Iterable[tuple[int, str]]) -> Participation:
        """Read one record from each line."""

        def use(line: str) -> None:
            if "\ufffd" in line:
                raise InputError("not text in the encoding that was assumed")
            try:
                record = load_json(line, self._found.limit)
            except (ValueError, RecursionError) as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(f"not JSON: {_fault(error)}") from error
            self._use(record)

        self._found.each(lines, use)
        return self._finish("jsonl")

    def read_document(self, records: Sequence[object]) -> Participation:
        """Read the records of a JSON document."""
        return self.read_records(_reporting(records, self._options), "json")

    def read_records(self, records: Iterable[object], format_name: str) -> Participation:
        """Read records that are in memory, numbered from 1."""
        self._found.each(enumerate(records, start=1), self._use)
        return self._finish(format_name)

    def _use(self, record: object) -> None:
        if not isinstance(record, dict):
            raise InputError("not a JSON object")
        kind = (*record, *map(type, record.values()))
        layout = self._layouts.get(kind)
        if layout is None:
            if len(self._layouts) == _MOST_LAYOUTS:
                raise LogTooLarge(f"the records have more than {_MOST_LAYOUTS:,} different sets of fields")
            layout = self._layouts[kind] = self._lay_out(record)
        clients = record[layout.client]
        many = isinstance(clients, list)
        fate = Fate.COUNTS
        if layout.watched:
            fate = self._rows.judge({name: _text(record[name]) for name in layout.watched}, many=many)
        if fate is Fate.NOT_ASKED_FOR:
            return
        label = self._found.label(_name(record[layout.round]))
        names = [_name(client) for client in (clients if many else [clients])]
        lost = [_name(client) for field in layout.lost for client in record[field]]
        self._lists.add(layout.client)
        if many and len(distinct := set(names)) < len(names) and len(set(clients)) > len(distinct):
            raise InputError("not clear whether a number and the same number as a text are one client")
        if many:
            self._found.add_all(label, names if fate is Fate.COUNTS else [])
        elif fate is Fate.COUNTS:
            self._found.add(label, names[0])
        else:
            self._found.open_round(label)
        for name in names if fate is Fate.LOST and not many else lost:
            self._found.lose(label, name)

    def _lay_out(self, record: dict[str, Any]) -> _Layout:
        """Find the relevant fields of records like this one."""
        names = list(record)
        self._fields.update(dict.fromkeys(names))
        if len(self._fields) > _MOST_FIELDS:
            raise LogTooLarge(f"the records have more than {_MOST_FIELDS:,} different fields")
        round_at = find_column(names, self._options.round_column, ROUND, "rounds")
        client = self._find_clients(record)
        if round_at < 0 or not client:
            asked = [name for name in names if isinstance(record[name], list) and meaning_of(name) is Meaning.CHOSEN]
            if round_at >= 0 and asked:
                name = printable(asked[0])
                raise InputError(
                    f'"{name}" lists selected clients, not aggregated ones; if they are the same here, use ',
                    Remedy("client_column", name),
                )
            raise InputError(f'one "round" and either "client" or "clients" are expected; {list_columns(names)}')
        if meaning_of(client) is Meaning.CLIENTS and not isinstance(record[client], list):
            raise InputError(f'"{printable(client)}" is not a list')
        watched = [name for name in self._rows.watch(names) if name not in (names[round_at], client)]
        kinds: tuple[Meaning, ...] = DECISIVE
        lost: list[str] = []
        if set(record) >= _OWN:
            kinds, self._own = (), True
        elif isinstance(record[client], list) and meaning_of(client) is Meaning.KEPT:
            kinds = (Meaning.STATUS, Meaning.SCOPE)  # selected and lost clients are other fields, or only counts
            lost = [name for name in names if isinstance(record[name], list) and loses(name)]
        watched = [name for name in watched if self._rows.settles(name) or meaning_of(name) in kinds]
        return _Layout(names[round_at], client, tuple(watched), tuple(lost))

    def _find_clients(self, record: dict[str, Any]) -> str:
        """Return the field of the aggregated clients; an empty string if there is none, or more than one."""
        names = list(record)
        if self._options.client_column is not None:
            return names[find_column(names, self._options.client_column, (), "clients")]
        kept = [name for name in names if isinstance(record[name], list) and meaning_of(name) is Meaning.KEPT]
        if kept:
            return kept[0] if len(kept) == 1 else ""
        many = [name for name in names if meaning_of(name) is Meaning.CLIENTS]
        one = find_column(names, None, ONE_CLIENT, "clients")
        if len(many) + (one >= 0) != 1:
            return ""
        return many[0] if many else names[one]

    def _finish(self, format_name: str) -> Participation:
        self._check_lists()
        if self._own:
            self._found.note(
                "these are metrics of one of Coterie's runs: no ledger verifies them, and they do not say whether sums "
                "were secure; the folder of the run does"
            )
        layouts = self._layouts.values()
        rounds, clients = {layout.round for layout in layouts}, {layout.client for layout in layouts}
        used = rounds | clients | {name for layout in layouts for name in layout.watched}
        ignored = tuple(printable(name) for name in self._fields if name not in used)
        return self._found.finish(
            LogReading(format_name, _fields(rounds), _fields(clients), ignored=ignored), self._rows
        )

    def _check_lists(self) -> None:
        """Refuse records of which some say who was aggregated, and others only name clients."""
        if self._options.client_column is not None:
            return
        kept = sorted(name for name in self._lists if meaning_of(name) is Meaning.KEPT)
        if kept and (others := sorted(self._lists.difference(kept))):
            raise InputError(
                f'some records have the aggregated clients in "{printable(kept[0])}", others have only '
                f'"{printable(others[0])}", who may not all have been aggregated: choose one with ',
                remedy_for("clients"),
            )


def _fields(names: Iterable[str]) -> str:
    return f"field {', '.join(map(printable, sorted(names)))}"


def _name(value: object) -> str:
    """Return a JSON string or integer as a name."""
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise InputError(f"not a name: {value!r}")
    return str(value).strip()


def _text(value: object) -> str:
    """Return a value as the text of a table cell."""
    if isinstance(value, list):
        return f"{LIST}{len(value):,}" if value else "[]"
    return "" if value is None else str(value)
