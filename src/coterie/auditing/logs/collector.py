"""A collector of rounds: every reader adds lines to it, and it returns the resulting history."""

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from coterie.auditing.logs.columns import words_of
from coterie.auditing.logs.options import LogOptions
from coterie.auditing.logs.round_order import put_in_order
from coterie.auditing.logs.row_filter import RowFilter
from coterie.auditing.logs.windows import Windows
from coterie.cohorts.log_size import check_memory
from coterie.cohorts.participation import Label, LogReading, Mentions, Participation, UnusedLine, as_label, pack_members
from coterie.errors import InputError, LogTooLarge, Remedy
from coterie.reports.words import printable

Line = TypeVar("Line")

_EVALUATION = {"eval", "evaluate", "evaluation", "val", "validation", "test"}
_NAMED = 5  # columns or clients listed in a note
_SHOWN = 80  # characters shown of an unusable line
_REASON = 500  # characters shown of the reason
_LISTED = 1_000  # unusable lines that are listed; more are only counted

# Bytes of memory, measured and rounded up: for a client and a round with their names, for a client of a round that was
# added alone, and for one that was added in a list.
_CLIENT, _ROUND, _MEMBER, _IN_LIST = 250, 600, 64, 8


class Collector:
    """The rounds found so far. Lines that cannot be used, or that contradict earlier ones, are listed.

    It stores clients as numbers, and limits its memory according to the log size that ``options`` allow.
    """

    def __init__(self, options: LogOptions) -> None:
        self.limit = options.limit
        self._keep_order, self._as_written = options.keep_order, options.as_written
        self._windows = Windows(options.window) if options.window else None
        self._clients: dict[str, int] = {}
        self._rounds: dict[Label, set[int] | array[int]] = {}  # an array if all clients were added at once
        self._spelt: dict[Label, str] = {}  # the spelling of rounds with leading zeros
        self._lost: defaultdict[Label, set[int]] = defaultdict(set)  # clients that some row excludes from the sum
        self._lost_clients: dict[str, int] = {}
        self._nameless: set[Label] = set()  # rounds with a row that names no client
        self._latest: Label | None = None  # the round of the latest addition
        self._returned: tuple[Label, str] | None = None  # a client that a round repeats after other rounds
        self._taken = 0  # bytes of memory
        self._repeats, self._first_repeats = 0, dict[tuple[Label, str], None]()
        self._problems: list[UnusedLine] = []
        self._further_problems = 0
        self._notes: dict[str, None] = {}

    def note(self, text: str) -> None:
        """Add a remark on how the log was read, unless it is there already."""
        self._notes[text] = None

    def each(self, lines: Iterable[tuple[int, Line]], use: Callable[[Line], None]) -> None:
        """Call ``use`` with every line. If it raises :class:`InputError`, list the line with the reason."""
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
        """Return the number of a client, and add it if it is new."""
        number = self._clients.get(client)
        if number is None:
            if not client.strip():
                raise InputError("a client has no name")
            self._take(_CLIENT + len(client))
            number = self._clients[client] = len(self._clients)
        return number

    def knows(self, client: str) -> bool:
        """Return whether a client is known."""
        return client in self._clients

    def label(self, text: str) -> Label:
        """Return the label of a round. It must not be empty, and must be spelt the same way each time.

        If rounds are windows of time, ``text`` is a time, and the label is that of its window.
        """
        if not text:
            raise InputError("the round is missing")
        if self._windows:
            return self._windows.label(text)
        label = as_label(text)
        known = self._spelt.get(label, str(label) if label in self._rounds else text)
        if known != text:
            raise InputError(f"the round {label} is written in two ways, {known} and {text}")
        if text != str(label) and label not in self._spelt:
            self._take(_ROUND)
            self._spelt[label] = text
        return label

    def open_round(self, label: Label) -> None:
        """Record that the round exists."""
        if label not in self._rounds:
            self._take(_ROUND + len(str(label)))
            self._rounds[label] = set()

    def add(self, label: Label, client: str) -> None:
        """Add a client to a round. If all clients of the round were added before, a further one is a contradiction."""
        self.open_round(label)
        members = self._rounds[label]
        if isinstance(members, set):
            number = self.enrol(client)
            if number not in members:
                members.add(number)
                self._take(_MEMBER)
            else:
                self._repeat(label, [client])
                if label != self._latest and not self._windows:
                    self._returned = self._returned or (label, client)
            self._latest = label
            return
        number = self._clients.get(client, -1)
        at = bisect_left(members, number)
        if at == len(members) or members[at] != number:
            raise InputError(f"contradicts an earlier line about round {label}")
        self._repeat(label, [client])

    def add_all(self, label: Label, clients: Sequence[str]) -> None:
        """Add a round with all its clients."""
        if self._windows:  # a window may have several rows
            self.open_round(label)
            for client in clients:
                self.add(label, client)
            return
        names = dict.fromkeys(clients)
        if (known := self._rounds.get(label)) is not None:
            if {self._clients.get(client, -1) for client in names} != set(known):
                raise InputError(f"contradicts an earlier line about round {label}")
            self._repeat(label, clients)
            return
        self.open_round(label)
        self._take(_IN_LIST * len(names))
        self._rounds[label] = pack_members(sorted([self.enrol(client) for client in names]))
        if len(names) < len(clients):
            self._repeat(label, list((Counter(clients) - Counter([*names])).elements()))

    def add_nobody(self, label: Label) -> None:
        """Record that a row of a round names no client. If no other row names one, the round had no clients."""
        self._nameless.add(label)

    def lose(self, label: Label, client: str) -> None:
        """Record that, by some row, a client is not in the sum of a round."""
        number = self._lost_clients.get(client)
        if number is None:
            self._take(_CLIENT + len(client))
            number = self._lost_clients[client] = len(self._lost_clients)
        if number not in self._lost[label]:
            self._lost[label].add(number)
            self._take(_MEMBER)

    def finish(self, reading: LogReading, rows: RowFilter | None = None) -> Participation:
        """Return the history, after checking that there is one and that it is unambiguous."""
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
                ", or if it is the same round, use ",
                Remedy("as_written", True),
            )
        if doubtful := [label for label in self._nameless if self._rounds[label]]:
            raise InputError(
                f"round {printable(doubtful[0])} has clients, and a row that names none: somebody may be missing. "
                "Write the client's name there, or remove the row if nobody is meant"
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
            tuple([pack_members(sorted(self._rounds.pop(label))) for label in rounds]),
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
        """Return the clients that one row puts in the sum of a round and another row excludes."""
        names, found, first = list(self._lost_clients), 0, list[tuple[Label, str]]()
        for label in rounds:
            if label not in self._lost:
                continue
            members = set(self._rounds.get(label, ()))
            both = [
                names[number] for number in sorted(self._lost[label]) if self._clients.get(names[number]) in members
            ]
            found += len(both)
            first += [(label, name) for name in both[: _NAMED - len(first)]]
        return Mentions(found, tuple(first))


def text_of(line: object) -> str:
    """Return a line as text for a message; a line that is split already is a tuple of cells."""
    return ",".join(line) if isinstance(line, tuple) else str(line)


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
