"""Windows of time as rounds, for logs that have a time for each row and no round.

With ``window="day"``, all rows of one day are one round: the audited sum is over the clients of that day. This is right
for systems that sum the updates that arrived in fixed periods. Times with a zone, and seconds or milliseconds since
1970, are cut in UTC; times without a zone as they are written.
"""

from datetime import date

from coterie.auditing.logs.round_order import read_label
from coterie.errors import ConfigError, InputError
from coterie.reports.words import printable

WINDOWS = {"minute": 60, "hour": 3_600, "day": 86_400, "week": 7 * 86_400}
"""The windows, with their length in seconds. A week begins on Monday."""

_DAY = WINDOWS["day"]
_EPOCH = date(1970, 1, 1).toordinal() * _DAY
_SECONDS, _MILLISECONDS, _END = 10**8, 10**11, 10**14  # numbers from the first on are seconds, then milliseconds


class Windows:
    """Names the window of each time of a log. All times must be written in one way."""

    def __init__(self, name: str) -> None:
        if name not in WINDOWS:
            raise ConfigError(f"there is no window {name}; there are {', '.join(WINDOWS)}")
        self._name, self._length = name, WINDOWS[name]
        self._first: tuple[str, str] | None = None  # how times are written, and an example

    def label(self, text: str) -> str:
        """Return the name of the window that a time is in: its first day, or its first minute."""
        (kind, *_), key = read_label(text)
        if kind == "number" and _SECONDS <= key < _END:
            seconds = _EPOCH + int(key if key < _MILLISECONDS else key / 1_000)
        elif kind == "date" and self._length < _DAY:
            raise InputError(f"{printable(text, 40)} is a date without a time, and windows are of a {self._name}")
        elif kind in ("date", "time", "time with its zone"):
            seconds = key[0]
        else:
            raise InputError(f"{printable(text, 40)} is not a time, and rounds are windows of a {self._name}")
        first, example = self._first = self._first or (kind, text)
        if kind != first:
            raise InputError(f"times are written in two ways, as in {printable(example, 40)} and {printable(text, 40)}")
        start = seconds - (seconds - _DAY) % self._length  # day 1 of the calendar is a Monday
        try:
            day = date.fromordinal(start // _DAY).isoformat()
        except (ValueError, OverflowError):
            raise InputError(f"{printable(text, 40)} is in no {self._name} of the calendar") from None
        if self._length >= _DAY:
            return day
        zone = "" if kind == "time" else "Z"
        return f"{day} {start % _DAY // 3_600:02}:{start % 3_600 // 60:02}{zone}"
