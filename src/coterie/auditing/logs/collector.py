"""A collector of rounds: what every reader of a log adds to, line by line, and what comes of it in the end."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from coterie.auditing.logs.columns import words_of
from coterie.auditing.logs.options import LogOptions
from coterie.auditing.logs.round_order import put_in_order
from coterie.auditing.logs.row_filter import RowFilter
from coterie.cohorts.log_size import check_memory
from coterie.cohorts.participation import Label, LogReading, Mentions, Participation, UnusedLine, as_label
from coterie.errors import InputError, LogTooLarge, Remedy
from coterie.reports.words import printable

Line = TypeVar("Line")

_EVALUATION = {"eval", "evaluate", "evaluation", "val", "validation", "test"}
_NAMED = 5  # columns or clients in a note
_SHOWN = 80  # characters of a line that cannot be used
_REASON = 500  # and of the reason
_LISTED = 1_000  # such lines that are kept; the others are counted

# Bytes of memory, measured and rounded up: a client and a round with their names, one client of a round among those
# that came one by one, or in a list.
_CLIENT, _ROUND, _MEMBER, _IN_LIST = 250, 600, 64, 8


class Collector:
    """Rounds as they are found. What cannot be used, or contradicts what was found before, is listed.

    It keeps numbers of clients, and takes no more memory than is right for a log of the size that ``options`` allow.
    """

    def __init__(self, options: LogOptions) -> None:
        self.limit = options.limit
        self._keep_order, self._as_written = options.keep_order, options.as_written
        self._clients: dict[str, int] = {}
        self._rounds: dict[Label, set[int] | tuple[int, ...]] = {}  # the latter if all were given at once, in order
        self._spelt: dict[Label, str] = {}  # how rounds are written that have zeros in front
        self._lost: defaultdict[Label, set[int]] = defaultdict(set)  # clients that a row says are not in the sum
        self._losers: dict[str, int] = {}
        self._latest: Label | None = None  # the round that was added to last
        self._returned: tuple[Label, str] | None = None  # a client that a round has again, after other rounds
        self._taken = 0  # bytes
        self._repeats, self._first_repeats = 0, dict[tuple[Label, str], None]()
        self._problems: list[UnusedLine] = []
        self._further_problems = 0
        self._notes: dict[str, None] = {}

    def note(self, text: str) -> None:
        """Keep a remark on how the log was read, once."""
        self._notes[text] = None

    def each(self, lines: Iterable[tuple[int, Line]], use: Callable[[Line], None]) -> None:
        """Use every line; one for which ``use`` raises :class:`InputError` cannot be used, for that reason."""
        for number, line in lines:
            try:
                use(line)
            except LogTooLarge:
                raise
            except InputError as error:
                if len(self._problems) == _LISTED:
                    self._further_problems += 1
                    continue
                text, reason = _shorten(text_of(line), _SHOWN), _shorten(error.text, _REASON)
                self._problems.append(UnusedLine(number, text, reason))

    def enrol(self, client: str) -> int:
        """Return the number of a client, who becomes known."""
        number = self._clients.get(client)
        if number is None:
            if not client.strip():
                raise InputError("a client has no name")
            self._take(_CLIENT + len(client))
            number = self._clients[client] = len(self._clients)
        return number

    def knows(self, client: str) -> bool:
        """Tell whether a client is known."""
        return client in self._clients

    def label(self, text: str) -> Label:
        """Return the label of a round, which must be there, and be written in the same way each time."""
        if not text:
            raise InputError("the round is missing")
        label = as_label(text)
        known = self._spelt.get(label, str(label) if label in self._rounds else text)
        if known != text:
            raise InputError(f"the round {label} is written in two ways, {known} and {text}")
        if text != str(label) and label not in self._spelt:
            self._take(_ROUND)
            self._spelt[label] = text
        return label

    def open_round(self, label: Label) -> None:
        """Take note that there was such a round."""
        if label not in self._rounds:
            self._take(_ROUND + len(str(label)))
            self._rounds[label] = set()

    def add(self, label: Label, client: str) -> None:
        """Add a client to a round. Once all of a round's clients were given, another one contradicts that."""
        self.open_round(label)
        members = self._rounds[label]
        if isinstance(members, set):
            number = self.enrol(client)
            if number not in members:
                members.add(number)
                self._take(_MEMBER)
            else:
                self._repeat(label, [client])
                if label != self._latest:
                    self._returned = self._returned or (label, client)
            self._latest = label
            return
        number = self._clients.get(client, -1)
        at = bisect_left(members, number)
        if members[at : at + 1] != (number,):
            raise InputError(f"contradicts what was said of round {label} before")
        self._repeat(label, [client])

    def add_all(self, label: Label, clients: Sequence[str]) -> None:
        """Add a round with all of its clients."""
        names = dict.fromkeys(clients)
        if (known := self._rounds.get(label)) is not None:
            if {self._clients.get(client, -1) for client in names} != set(known):
                raise InputError(f"contradicts what was said of round {label} before")
            self._repeat(label, clients)
            return
        self.open_round(label)
        self._take(_IN_LIST * len(names))
        self._rounds[label] = tuple(sorted([self.enrol(client) for client in names]))
        if len(names) < len(clients):
            self._repeat(label, list((Counter(clients) - Counter([*names])).elements()))

    def lose(self, label: Label, client: str) -> None:
        """Take note that, by some row, a client is not in the sum of a round."""
        number = self._losers.get(client)
        if number is None:
            self._take(_CLIENT + len(client))
            number = self._losers[client] = len(self._losers)
        if number not in self._lost[label]:
            self._lost[label].add(number)
            self._take(_MEMBER)

    def finish(self, reading: LogReading, rows: RowFilter | None = None) -> Participation:
        """Return what was found, once it is clear that there is something and that it was understood."""
        if rows is not None:
            rows.finish()
            reading = replace(reading, left_out=tuple(rows.left_out.most_common()))
        if evaluation := [name for name in reading.ignored if _EVALUATION & set(words_of(name))]:
            self.note(
                f"{', '.join(evaluation[:_NAMED])}: if the rows are on clients that evaluated a model, they do not say "
                "who was aggregated"
            )
        if not self._rounds:
            first = self._problems[:1]
            why = [part for problem in first for part in (f": line {problem.line}: ", problem.reason)]
            raise InputError("nothing in the log is readable", *(why or [": it has no rows"]))
        if self._returned and not self._as_written:
            label, client = self._returned
            raise InputError(
                f"round {printable(label)} comes again after other rounds, with {printable(client)} in it twice: the "
                "log may have several runs. Choose one with ",
                Remedy("where"),
                ", or if it is the same round, say ",
                Remedy("as_written", True),
            )
        rounds, order = put_in_order(list(self._rounds), keep=self._keep_order)
        numbers = [label for label in rounds if isinstance(label, int)]
        if len(numbers) == len(rounds) and (missing := max(numbers) - min(numbers) + 1 - len(numbers)):
            self.note(f"{missing:,} round numbers never occur; they do not count as rounds")
        if len(rounds) > len(self._clients) > 1 and all(len(members) == 1 for members in self._rounds.values()):
            self.note(f"every round has one client: is {reading.rounds} the round, or the time of a message?")
        reading = replace(
            reading,
            order=order,
            duplicates=Mentions(self._repeats, tuple(self._first_repeats)),
            contradictions=self._contradictions(rounds),
        )
        return Participation(
            tuple(self._clients),
            tuple(rounds if len(numbers) == len(rounds) else map(str, rounds)),
            tuple([tuple(sorted(self._rounds.pop(label))) for label in rounds]),
            tuple(self._problems),
            tuple(self._notes),
            reading=reading,
            further_problems=self._further_problems,
        )

    def _take(self, size: int) -> None:
        self._taken += size
        check_memory(self._taken, self.limit)

    def _repeat(self, label: Label, clients: Sequence[str]) -> None:
        self._repeats += len(clients)
        for client in clients[:_NAMED]:
            if len(self._first_repeats) < _NAMED:
                self._first_repeats[label, client] = None

    def _contradictions(self, rounds: Iterable[Label]) -> Mentions:
        """Find the clients that rows of one round have both in the sum and not in it."""
        names, found, first = list(self._losers), 0, list[tuple[Label, str]]()
        for label in rounds:
            if label not in self._lost:
                continue
            members = set(self._rounds.get(label, ()))
            both = [names[loser] for loser in sorted(self._lost[label]) if self._clients.get(names[loser]) in members]
            found += len(both)
            first += [(label, name) for name in both[: _NAMED - len(first)]]
        return Mentions(found, tuple(first))


def text_of(line: object) -> str:
    """Return a line as its owner would recognise it; one that has been cut already is a tuple of cells."""
    return ",".join(line) if isinstance(line, tuple) else str(line)


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
