"""A collector of rounds: what every reader of a log adds to, line by line, and what comes of it in the end."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from coterie.auditing.columns import words_of
from coterie.auditing.row_filter import RowFilter
from coterie.cohorts.participation import Label, LogReading, Participation, UnusedLine, as_label
from coterie.errors import InputError
from coterie.reports.words import printable

Line = TypeVar("Line")

_EVALUATION = {"eval", "evaluate", "evaluation", "val", "validation", "test"}
_NAMED = 5  # columns or rounds in a note
_SHOWN = 80  # characters of a line that cannot be used


class Collector:
    """Rounds as they are found. What cannot be used, or contradicts what was found before, is listed."""

    def __init__(self) -> None:
        self.clients: dict[str, int] = {}
        self.rounds: dict[Label, set[int]] = {}
        self._complete: set[Label] = set()  # rounds whose clients were given all at once
        self._problems: list[UnusedLine] = []
        self._notes: dict[str, None] = {}

    def note(self, text: str) -> None:
        """Keep a remark on how the log was read, once."""
        self._notes[text] = None

    def each(self, lines: Iterable[tuple[int, Line]], use: Callable[[Line], None]) -> None:
        """Use every line; one for which ``use`` raises :class:`InputError` cannot be used, for that reason."""
        for number, line in lines:
            try:
                use(line)
            except InputError as error:
                text = text_of(line)
                shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
                self._problems.append(UnusedLine(number, shown, str(error)))

    def add(self, label: Label, clients: Sequence[str], *, complete: bool = False) -> None:
        """Add clients to a round. Once all of a round's clients were given, others contradict that."""
        known = self.rounds.get(label)
        if known is not None and (complete or label in self._complete):
            numbers = {self.clients.get(client, -1) for client in clients}
            if (numbers != known) if complete else not numbers <= known:
                raise InputError(f"contradicts what was said of round {label} before")
            return
        if complete:
            self._complete.add(label)
        numbered = self.clients
        self.rounds.setdefault(label, set()).update([numbered.setdefault(name, len(numbered)) for name in clients])

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
        if not self.rounds:
            why = f": line {self._problems[0].line}: {self._problems[0].reason}" if self._problems else ""
            raise InputError(f"nothing in the log is readable{why}")
        rounds: list[Label] = list(self.rounds)
        numbers = sorted(label for label in rounds if isinstance(label, int))
        if len(numbers) == len(rounds):
            rounds = [*numbers]
            if missing := numbers[-1] - numbers[0] + 1 - len(numbers):
                self.note(f"{missing:,} round numbers never occur; they do not count as rounds")
        elif numbers:
            others = [printable(label) for label in rounds if not isinstance(label, int)]
            self.note(f"not all labels of rounds are numbers: {', '.join(others[:_NAMED])}")
        members = tuple(tuple(sorted(self.rounds[label])) for label in rounds)
        labels = tuple(rounds if numbers == rounds else map(str, rounds))
        return Participation(
            tuple(self.clients), labels, members, tuple(self._problems), tuple(self._notes), reading=reading
        )


def text_of(line: object) -> str:
    """Return a line as its owner would recognise it; one that has been cut already is a tuple of cells."""
    return ",".join(line) if isinstance(line, tuple) else str(line)


def round_label(text: str) -> Label:
    """Return the label of a round, which must be there."""
    if not text:
        raise InputError("the round is missing")
    return as_label(text)
