"""The order of rounds according to their labels.

"Exposed since round" is meaningful only if the rounds are in the order in which they took place, and the lines of a log
need not be. Rounds are therefore sorted by their labels if all labels are of one kind: numbers, dates or times
(ISO 8601), or a word with a number. Other labels are refused, unless the user states that the log is in order.
"""

import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any

from coterie.cohorts.participation import Label
from coterie.errors import InputError, Remedy
from coterie.reports.words import printable

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,9})?")
_NUMBERED = re.compile(r"([^0-9]*)([0-9]+)([^0-9]*)")
_TIME = re.compile(
    r"([0-9]{4})([-/])([0-9]{2})\2([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)? ?(?:([Zz]|UTC)|([+-])([0-9]{2}):?([0-9]{2})?)?)?"
)
_AMBIGUOUS = re.compile(r"[0-9]{1,2}([-/.])[0-9]{1,2}\1([0-9]{2}|[0-9]{4})\b.*", re.DOTALL)
_SHOWN = 40  # characters of a label in a message
_KEEP = ("if the log has its rounds in the order in which they took place, use ", Remedy("keep_order", True))


_Kind = tuple[str, ...]
_TEXT: _Kind = ("text",)


def put_in_order(labels: Sequence[Label], *, keep: bool) -> tuple[list[Label], str]:
    """Return the labels in the order of the rounds, and the criterion of the order.

    With ``keep``, it is the order of the log. Otherwise :class:`InputError` is raised if the labels have no order.
    """
    if keep:
        return list(labels), "place in the log"
    if len(labels) < 2:
        return list(labels), ""
    keyed = [(*read_label(label), label) for label in labels]
    kinds: dict[_Kind, Label] = {}
    for kind, _, label in keyed:
        kinds.setdefault(kind, label)
    _check(kinds, labels)
    keyed.sort(key=lambda entry: entry[1])
    for (_, before, one), (_, after, other) in pairwise(keyed):
        if before == after:
            raise InputError(
                f"the rounds {_quote(one)} and {_quote(other)} are the same, written in two ways: write them in one way"
            )
    return [label for _, _, label in keyed], keyed[0][0][0]


def _check(kinds: dict[_Kind, Label], labels: Sequence[Label]) -> None:
    """Raise :class:`InputError` unless all labels are of one kind with an order; ``kinds`` has one label of each."""
    unclear = next((label for label in labels if _AMBIGUOUS.fullmatch(str(label))), None) if _TEXT in kinds else None
    if unclear is not None:
        raise InputError(
            f"the rounds cannot be put in order: {_quote(unclear)} does not say which number is the month; write dates "
            "as in 2025-03-31 or, ",
            *_KEEP,
        )
    if len(kinds) > 1:
        (one, *_), (other, *_) = list(kinds)[:2]
        first, second = list(kinds.values())[:2]
        ways = f"{_quote(first)} ({one}) and {_quote(second)} ({other})"
        raise InputError(
            f"the rounds cannot be put in order: they are written in several ways, as in {ways}; write them in one "
            "way or, ",
            *_KEEP,
        )
    if _TEXT in kinds:
        raise InputError(
            f"the rounds cannot be put in order: labels such as {_quote(kinds[_TEXT])} are neither numbers nor dates; ",
            *_KEEP,
        )


def read_label(label: Label) -> tuple[_Kind, Any]:
    """Return the kind of a label, and its sort key among labels of this kind."""
    if isinstance(label, int):
        return ("number",), label
    if _NUMBER.fullmatch(label):
        return ("number",), Decimal(label)
    if found := _TIME.fullmatch(label):
        year, _, month, day, hour, minute, second, fraction, zulu, sign, hours, minutes = found.groups()
        try:
            days = date(int(year), int(month), int(day)).toordinal()
        except ValueError:
            return _TEXT, label
        clock = [int(part or 0) for part in (hour, minute, second)]
        if clock[0] > 23 or clock[1] > 59 or clock[2] > 60:  # 60 for leap seconds
            return _TEXT, label
        seconds = days * 86_400 + clock[0] * 3_600 + clock[1] * 60 + clock[2]
        if sign:
            offset = int(hours) * 3_600 + int(minutes or 0) * 60
            seconds -= offset if sign == "+" else -offset
        kind = "date" if hour is None else "time with its zone" if zulu or sign else "time"
        return (kind,), (seconds, (fraction or "").rstrip("0"))
    if found := _NUMBERED.fullmatch(label):
        return ("number in a label", found[1], found[3]), Decimal(found[2])
    return _TEXT, label


def _quote(label: Label) -> str:
    return f"“{printable(label, _SHOWN)}”"
