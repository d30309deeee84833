"""Logs in lines of text, collected round by round.

* ``pairs``: lines ``round,client``, separated by commas, semicolons, tabs or blanks. A header is recognised
  and then says which columns count; others are ignored with a note. A round without a client was skipped.
* ``matrix``: lines of 0 and 1, a row for each round and a column for each client. A header gives the
  clients' names; if its first cell is empty or says "round", the first column labels the rounds.
* ``jsonl``: ``{"round": 7, "clients": ["a", "b"]}`` or ``{"round": 7, "client": "a"}`` on each line.

Rounds with whole numbers for labels are put in order; others stay as they come. Rows and columns without
labels are numbered from 1. A line that cannot be used, or that contradicts an earlier one, is never dropped
silently: it is listed with its number and the reason.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable
from itertools import dropwhile
from typing import Literal

from coterie.cohorts.participation import Label, Participation, UnusedLine, as_label
from coterie.errors import InputError

TextFormat = Literal["pairs", "matrix", "jsonl"]

_ROUND = {"round", "rounds", "round_id", "round_number", "server_round", "epoch", "iteration", "step", "t"}
_CLIENT = {"client", "client_id", "clientid", "cid", "user", "user_id", "node", "node_id", "participant"}
_CLIENTS = {"clients", "client_ids", "cids", "users", "nodes", "participants", "members", "cohort"}
_SAMPLE = 100  # lines looked at to tell the format


class _UnusableError(Exception):
    """The line cannot be used; the message says why."""


class TextLog:
    """A log in lines of text."""

    def __init__(self, text: str) -> None:
        lines = enumerate(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1)
        filled = [(number, line) for number, line in lines if line.strip()]
        self.lines = list(dropwhile(lambda entry: entry[1].startswith("#"), filled))
        self.clients: dict[str, int] = {}
        self.rounds: dict[Label, set[int]] = {}
        self.complete: set[Label] = set()  # rounds whose clients were given all at once
        self.problems: list[UnusedLine] = []
        self.notes: dict[str, None] = {}
        if len(self.lines) < len(filled):
            self._note("lines at the top that start with # were taken for comments")
        self.delimiter = _delimiter([line for _, line in self.lines[:_SAMPLE]])

    def read(self, wanted: TextFormat | None) -> Participation:
        """Collect the rounds, in the format that is wanted or the one it looks like."""
        if self.lines:
            readers = {"pairs": self._read_pairs, "matrix": self._read_matrix, "jsonl": self._read_jsonl}
            readers[wanted or self._guess_format()]()
        if not self.rounds:
            why = f": line {self.problems[0].line}: {self.problems[0].reason}" if self.problems else ""
            raise InputError(f"nothing in the log is readable{why}")
        rounds: list[Label] = list(self.rounds)
        numbers = sorted(label for label in rounds if isinstance(label, int))
        if len(numbers) == len(rounds):
            rounds = [*numbers]
            if missing := numbers[-1] - numbers[0] + 1 - len(numbers):
                self._note(f"{missing} round numbers never occur; they do not count as rounds")
        members = tuple(tuple(sorted(self.rounds[label])) for label in rounds)
        labels = tuple(rounds if numbers == rounds else map(str, rounds))
        return Participation(tuple(self.clients), labels, members, tuple(self.problems), tuple(self.notes))

    def _guess_format(self) -> TextFormat:
        if self.lines[0][1].lstrip().startswith("{"):
            return "jsonl"
        header = self._first_cells(0)
        labelled = _labels_rounds(header)
        sample = [self._first_cells(at)[labelled:] for at in range(min(len(self.lines), _SAMPLE))]
        binary = [None not in map(_bit, cells) for cells in sample]
        if not binary[0] and len(binary) > 1:
            del binary[0]  # a header
        named = _ROUND & set(header) and _CLIENT & set(header)
        if 2 * sum(binary) <= len(binary) or (named and (len(header) == 2 or header[0] not in _ROUND)):
            return "pairs"
        rounds = [self._first_cells(at)[0] for at in range(1, len(self.lines))] if named else []
        if len(set(rounds)) < len(rounds):  # as in pairs, but all else is 0 or 1 as in a matrix
            client = next(name for name in header if name in _CLIENT)
            raise InputError(
                f"not clear whether column {client} holds clients or is one: say pairs or matrix as format"
            )
        if len(header) == 2 and not labelled:
            self._note("two columns of 0 and 1 were read as a matrix of two clients, not as pairs")
        return "matrix"

    def _read_pairs(self) -> None:
        header = self._first_cells(0)
        round_at = next((at for at, name in enumerate(header) if name in _ROUND), -1)
        client_at = next((at for at, name in enumerate(header) if name in _CLIENT), -1)
        start = 1
        if round_at < 0 or client_at < 0:
            round_at, client_at, start = 0, 1, 0
            if not header[0].isdecimal() and len(self.lines) > 1 and self._first_cells(1)[0].isdecimal():
                self._note("the first line was taken for a header: round and client in the first two columns")
                start = 1

        def use(line: str) -> None:
            cells = self._cells(line)
            if len(cells) <= max(round_at, client_at):
                raise _UnusableError("a round and a client are expected")
            if len(cells) > 2:
                self._note("only the round and the client were read; other columns were ignored")
            text, client = cells[round_at], cells[client_at]
            if text not in rounds:
                rounds[text] = self.rounds.setdefault(_label(text), set())
            if client:
                rounds[text].add(self.clients.setdefault(client, len(self.clients)))

        rounds: dict[str, set[int]] = {}  # there may be millions of lines, with few rounds
        self._each(use, start)

    def _read_matrix(self) -> None:
        header = self._cells(self.lines[0][1], strict=False)
        labelled = _labels_rounds(header)
        # A damaged row of bits repeats them, so it is not taken for a header: names are unique.
        named = labelled or (None in map(_bit, header) and len(set(header)) == len(header))
        if named:
            self._note("the first line was read as the names of the clients")
        lengths = Counter(len(self._first_cells(at)) for at in range(min(len(self.lines), _SAMPLE)))
        width = len(header) if named else lengths.most_common(1)[0][0]
        names = header[labelled:] if named else list(map(str, range(1, width + 1)))
        if not all(names) or len(set(names)) < len(names):
            raise InputError("the header of the matrix must name every client, each differently")
        self.clients = {name: at for at, name in enumerate(names)}
        position = 0

        def use(line: str) -> None:
            nonlocal position
            position += 1  # also for a row that cannot be read, so that those after it keep their numbers
            cells = self._cells(line)
            if len(cells) != width:
                raise _UnusableError(f"{len(cells)} columns instead of {width}")
            bits = list(map(_bit, cells[labelled:]))
            if None in bits:
                raise _UnusableError(f"neither 0 nor 1: {cells[labelled:][bits.index(None)]}")
            label = _label(cells[0]) if labelled else position
            self._add(label, [name for name, bit in zip(names, bits, strict=True) if bit], complete=True)

        self._each(use, int(named))

    def _read_jsonl(self) -> None:
        def use(line: str) -> None:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _UnusableError(f"not JSON: {error}") from error
            if not isinstance(entry, dict):
                raise _UnusableError("not a JSON object")
            found = {"round": _ROUND & entry.keys(), "one": _CLIENT & entry.keys(), "all": _CLIENTS & entry.keys()}
            if len(found["round"]) != 1 or len(found["one"]) + len(found["all"]) != 1:
                raise _UnusableError('one "round" and either "client" or "clients" are expected')
            if len(entry) > 2:
                self._note("only the round and the clients were read; other fields were ignored")
            label = _label(_name(entry[found["round"].pop()]))
            if found["one"]:
                self._add(label, [_name(entry[found["one"].pop()])])
                return
            clients = entry[found["all"].pop()]
            if not isinstance(clients, list):
                raise _UnusableError('"clients" is not a list')
            self._add(label, [_name(client) for client in clients], complete=True)

        self._each(use, 0)

    def _each(self, use: Callable[[str], None], start: int) -> None:
        for number, line in self.lines[start:]:
            try:
                if "\ufffd" in line:
                    raise _UnusableError("not UTF-8 text")
                use(line)
            except _UnusableError as error:
                self.problems.append(UnusedLine(number, line if len(line) <= 80 else line[:79] + "…", str(error)))

    def _add(self, label: Label, clients: list[str], *, complete: bool = False) -> None:
        """Add clients to a round. Once all of a round's clients were given, others contradict that."""
        known = self.rounds.get(label)
        if known is not None and (complete or label in self.complete):
            numbers = {self.clients.get(client, -1) for client in clients}
            if (numbers != known) if complete else not numbers <= known:
                raise _UnusableError(f"contradicts what was said of round {label} before")
            return
        if complete:
            self.complete.add(label)
        self.rounds.setdefault(label, set()).update(
            self.clients.setdefault(client, len(self.clients)) for client in clients
        )

    def _cells(self, line: str, *, strict: bool = True) -> list[str]:
        if self.delimiter is None:
            return line.split()
        if '"' not in line:
            return [cell.strip() for cell in line.split(self.delimiter)]
        try:
            return [cell.strip() for cell in next(csv.reader([line], delimiter=self.delimiter, strict=True))]
        except csv.Error as error:
            if not strict:
                return [line]
            raise _UnusableError(f"misplaced quotation marks: {error}") from error

    def _first_cells(self, at: int) -> list[str]:
        """Return the cells of one of the first lines, for telling what kind of log it is."""
        return [cell.casefold() for cell in self._cells(self.lines[at][1], strict=False)]

    def _note(self, text: str) -> None:
        self.notes[text] = None


def _delimiter(sample: list[str]) -> str | None:
    """Return the separator that most lines have equally often; of several, the one that comes first."""
    found = dict.fromkeys(character for line in sample for character in line if character in ",;\t")
    regular = {d: max(Counter(line.count(d) for line in sample if d in line).values()) for d in found}
    best = max(regular, key=lambda d: regular[d], default=None)
    return best if best and 2 * sum(best in line for line in sample) >= len(sample) else None


def _labels_rounds(header: list[str]) -> bool:
    """Tell whether the first column of a matrix with this header holds the labels of the rounds."""
    return len(header) > 1 and (not header[0] or header[0].casefold() in _ROUND)


def _label(text: str) -> Label:
    if not text:
        raise _UnusableError("the round is missing")
    return as_label(text)


def _bit(text: str) -> int | None:
    """Return 0 or 1 for a cell that says so, also as 0.0 or 1e+00; else None."""
    if text in ("0", "1"):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value in (0, 1) else None


def _name(value: object) -> str:
    """Return a JSON string or whole number as a name."""
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise _UnusableError(f"not a name: {value!r}")
    return str(value).strip()
