"""Sizes, times, counts, names and verdicts in words, so that the same thing looks the same everywhere."""

from enum import StrEnum

_SIZES = ("B", "kB", "MB", "GB", "TB")
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_LONG = 120  # seconds shown as such, and minutes


class Level(StrEnum):
    """The four verdicts, worst first, each with its mark, its label and its colour on a terminal.

    On a page, the style sheet has a class and a colour of the same name.
    """

    mark: str
    label: str
    color: str

    def __new__(cls, name: str, mark: str, label: str, color: str) -> "Level":
        """Make a string of the name, so that it is written to JSON and to a page as it is."""
        level = str.__new__(cls, name)
        level._value_ = name
        level.mark, level.label, level.color = mark, label, color
        return level

    DANGER = "danger", "✗", "Exposed", "red"
    CAUTION = "caution", "!", "At risk", "yellow"
    SAFE = "safe", "✓", "Protected", "green"
    NOTHING = "nothing", "–", "Nothing to judge", "default"


def size(count: float) -> str:
    """Return a number of bytes: exactly below a kilobyte, from there with three digits."""
    count, power = float(f"{count:.3g}"), 0
    while count >= 1000 and power < len(_SIZES) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.0f} B" if not power else f"{_three_digits(count)} {_SIZES[power]}"


def duration(seconds: float) -> str:
    """Return a time: with three digits below two minutes, from there in whole seconds, then minutes."""
    rounded = float(f"{seconds:.3g}")
    if rounded < _LONG:
        for unit, name in _TIMES:
            if rounded >= unit:
                return f"{_three_digits(rounded / unit)} {name}"
        return "0 s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < _LONG else f"{minutes // 60:,} h {minutes % 60:02} min"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 client", "1,200 clients", "2 processes"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def score_format(*, share: bool) -> str:
    """Return how a score is formatted, in Python and in plotly: a share in per cent, others with four digits."""
    return ".1%" if share else ".4g"


def printable(name: object, limit: int = 60) -> str:
    """Return an untrusted name, shortened and without control characters.

    Markup is for the caller to escape.
    """
    text = one_line(name)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: object) -> str:
    """Return a text on one line: line ends, colours and whatever else does not print are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def _three_digits(value: float) -> str:
    """Write a number from 1 to 999 with three digits."""
    return f"{value:,.{max(0, 2 - (value >= 10) - (value >= 100))}f}"
