"""A filter of rows: it decides which rows of a log are aggregated clients."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto

from coterie.auditing.logs.columns import DECISIVE, Meaning, counts, denies, list_columns, meaning_of, words_of
from coterie.errors import InputError, Remedy, SeveralRuns
from coterie.reports.words import printable

_SHOWN = 8  # values of a column in a message
_MOST = 1000  # different values of a column that are counted
_OTHERS = "(others)"

LIST = "a list of "
"""The prefix of a value that stands for a list; conditions do not apply to it."""


class Fate(Enum):
    """How a row is treated."""

    COUNTS = auto()
    LOST = auto()
    """The round exists, and this client is not in its sum."""
    SAYS_NOTHING = auto()
    """The round exists; another row must state whether this client is in its sum."""
    NOT_ASKED_FOR = auto()
    """The row is ignored."""


class RowFilter:
    """Decides about rows one by one. At the end, it refuses the log if some rows could not be decided.

    A condition of the user determines which rows are read, and replaces the interpretation of its column. Any other
    column that may decide whether a row counts is understood or refused.
    """

    def __init__(self, where: Mapping[str, Collection[str]]) -> None:
        self._where = {name.casefold(): {value.casefold() for value in values} for name, values in where.items()}
        self._columns: dict[str, None] = {}  # all columns of the log
        self._seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._unknown: set[str] = set()
        self._fates: Counter[Fate] = Counter()
        self.left_out: Counter[str] = Counter()
        """The values of rows that do not count, with the number of rows."""

    def watch(self, columns: Iterable[str]) -> list[str]:
        """Record the columns of the log. Return those that decide about a row, in the order of evaluation."""
        named = dict.fromkeys(columns)
        self._columns.update(named)
        settled = list(filter(self.settles, named))
        return settled + [name for name in named if not self.settles(name) and meaning_of(name) in DECISIVE]

    def settles(self, column: str) -> bool:
        """Return whether the user set a condition for a column."""
        return column.casefold() in self._where

    def judge(self, row: Mapping[str, str], *, many: bool = False) -> Fate:
        """Decide about a row by its values in the decisive columns.

        In a row on ``many`` clients, a column may hold a number of lost clients, for example, instead of true or false.
        """
        fate = Fate.COUNTS
        for name, value in row.items():
            seen = self._seen[name]
            shown = value if value in seen or len(seen) < _MOST else _OTHERS
            seen[shown] += 1
            if (wanted := self._where.get(name.casefold())) is not None:
                if "*" not in wanted and value.casefold() not in wanted:
                    fate = Fate.NOT_ASKED_FOR
                    break
                continue
            meaning = meaning_of(name)
            verdict = counts(meaning, value)
            if many and meaning in (Meaning.KEPT, Meaning.CHOSEN, Meaning.LOST) and value.isdecimal() and value != "0":
                verdict = None
            if verdict is None:
                self._unknown.add(name)
            elif not verdict:
                fate = Fate.LOST if denies(meaning, value) else Fate.SAYS_NOTHING
                break
        if fate is not Fate.COUNTS:
            self.left_out[f"{printable(name)} = {printable(shown) or 'nothing'}"] += 1
        self._fates[fate] += 1
        return fate

    def finish(self) -> None:
        """Raise :class:`InputError` unless every row was understood and some rows count."""
        known = {name.casefold() for name in self._columns}
        for name in self._where:
            if name not in known:
                columns = list_columns(self._columns)
                raise InputError(f"there is no column {printable(name)} for ", Remedy("where"), f": {columns}")
        for name in self._seen:
            if name in self._unknown:
                self._refuse(name, "may say whether a client was aggregated, and not all of its values are understood")
        if self._fates and not self._fates[Fate.COUNTS]:
            said = ", ".join(f"{what} ({times:,})" for what, times in self.left_out.most_common(_SHOWN))
            raise InputError(f"no row says that a client was aggregated: {said}")
        left = {name: meaning_of(name) for name in self._seen if name.casefold() not in self._where}
        for name, meaning in left.items():
            kept = {"".join(words_of(value)) for value in self._seen[name] if counts(meaning, value)}
            if meaning is Meaning.STATUS and len(kept) > 1:  # for example completed, and later aggregated
                self._refuse(name, "has several values that may mean aggregated")
            if meaning is Meaning.SCOPE and len(self._seen[name]) > 1:
                why = "distinguishes several histories, and only one can be audited at a time"
                raise SeveralRuns(name, list(self._seen[name]), *self._complaint(name, why))
            if meaning is Meaning.CHOSEN and not {Meaning.STATUS, Meaning.KEPT, Meaning.LOST} & {*left.values()}:
                self._refuse(name, "lists selected clients, not aggregated ones")

    def _refuse(self, name: str, why: str) -> None:
        raise InputError(*self._complaint(name, why))

    def _complaint(self, name: str, why: str) -> list[str | Remedy]:
        """Return a message about a column, with its values and what to do."""
        values = self._seen[name].most_common(_SHOWN)
        seen = ", ".join(f"{printable(value) or 'nothing'} ({times:,})" for value, times in values)
        more = " and others" if len(self._seen[name]) > _SHOWN else ""
        example = next((value for value, _ in values if counts(meaning_of(name), value)), values[0][0])
        column = printable(name)
        one: tuple[str | Remedy, ...] = (
            Remedy("where", {column: [printable(example)]}),
            " (several values may be given), or ",
        )
        return [
            f"the column {column} {why}: {seen}{more}. Choose the rows that count, as in ",
            *(() if example.startswith(LIST) else one),
            Remedy("where", {column: ["*"]}),
            " if it does not matter",
        ]
