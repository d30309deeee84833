"""Baselines: curves that were measured elsewhere, as CSV files with a column for the round and one for the score."""

import csv
import io
import math
from pathlib import Path
from typing import NamedTuple

from coterie.errors import InputError
from coterie.reports.words import printable
from coterie.runs.comparison.scores import SCORES, Score, find_score

_LARGEST = 64 << 20  # bytes
_ROUNDS = ("round", "rounds", "server_round", "epoch", "step")
_EXPECTED = "expected two columns, the round and the score, with a first line such as round,accuracy"


class Baseline(NamedTuple):
    """The curve of a CSV file."""

    heading: str
    """The heading of the column with the scores; empty if the file has no headings."""
    score: Score | None
    """The score that the heading names, if it names one."""
    points: tuple[tuple[int, float], ...]


def read_baseline(path: Path, column: str | None = None) -> Baseline:
    """Read a CSV file. ``column`` is the score to take, if the file has several."""
    rows = [(number, row) for number, row in enumerate(_read_rows(path), 1) if any(cell.strip() for cell in row)]
    if not rows:
        raise InputError(f"{path} is empty: {_EXPECTED}")
    headings = [cell.strip() for cell in rows[0][1]]
    if any(_number(cell) is not None for cell in headings):
        headings = [""] * len(headings)
    else:
        rows = rows[1:]
    at_round, at_score = _choose_columns(path, headings, column)
    points: list[tuple[int, float]] = []
    for line, row in rows:
        if len(row) != len(headings):
            raise InputError(f"{path}, line {line}: {len(row)} values where {len(headings)} are expected")
        if row[at_score].strip():  # a round without evaluation has no score
            points.append(_read_point(path, line, row[at_round], row[at_score], points))
    if not points:
        raise InputError(f"{path} has no round with a score: {_EXPECTED}")
    score = find_score(headings[at_score])
    wrong = next((value for _, value in points if not 0 <= value <= 1), None)
    if score is not None and score.share and wrong is not None:
        raise InputError(
            f"{path}: {score.name} is a share from 0 to 1, and the file has {wrong:g}; divide percentages by 100"
        )
    return Baseline(headings[at_score], score, tuple(points))


def _read_rows(path: Path) -> list[list[str]]:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise InputError(f"{path} has more than {_LARGEST >> 20} MB: {_EXPECTED}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file: {_EXPECTED}") from None
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise InputError(f"{path} is not CSV: {error}; {_EXPECTED}") from None


def _choose_columns(path: Path, headings: list[str], column: str | None) -> tuple[int, int]:
    """Return the positions of the columns of the round and of the score."""
    lower = [heading.lower() for heading in headings]
    rounds = [place for place, heading in enumerate(lower) if heading in _ROUNDS][:1]
    wanted = [SCORES[column]] if column in SCORES else list(SCORES.values())
    scores = [place for score in wanted for place, heading in enumerate(headings) if find_score(heading) is score]
    if rounds and scores:
        return rounds[0], scores[0]
    if len(headings) == 2:  # whatever their headings are
        first = rounds[0] if rounds else 0
        return first, 1 - first
    found = printable(", ".join(headings) if any(headings) else f"{len(headings)} columns without headings", 100)
    raise InputError(f"{path}: {_EXPECTED}. It has: {found}")


def _read_point(path: Path, line: int, at: str, score: str, before: list[tuple[int, float]]) -> tuple[int, float]:
    number, value = _number(at), _number(score)
    if number is None or value is None or not number.is_integer() or number < 0:
        raise InputError(
            f"{path}, line {line}: expected a whole number and a score, got {printable(at, 20)!r} and "
            f"{printable(score, 20)!r}"
        )
    if before and number <= before[-1][0]:
        raise InputError(f"{path}, line {line}: round {number:.0f} comes after round {before[-1][0]}; sort the rounds")
    return int(number), value


def _number(cell: str) -> float | None:
    """Return the finite number in a cell; None if there is none."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
