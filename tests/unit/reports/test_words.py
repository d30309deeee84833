"""Sizes, durations and counts in words: reading them back gives the same value, up to rounding."""

import json
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.reports.words import Level, count, duration, printable, size

SIZES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
TIMES = {"h": 3600, "min": 60, "s": 1, "ms": 1e-3, "µs": 1e-6}


def read_back(text: str, units: dict[str, float]) -> float:
    """Add up numbers with their units."""
    parts = re.findall(r"([\d,.]+) (\S+)", text)
    assert " ".join(f"{number} {unit}" for number, unit in parts) == text
    return sum(float(number.replace(",", "")) * units[unit] for number, unit in parts)


@given(st.integers(0, 10**17))
def test_sizes_say_how_many_bytes(number: int) -> None:
    assert read_back(size(number), SIZES) == pytest.approx(number, rel=0.005)


@given(st.floats(1e-6, 1e7))
def test_durations_say_how_long(seconds: float) -> None:
    assert read_back(duration(seconds), TIMES) == pytest.approx(seconds, rel=0.01)


@given(st.lists(st.floats(0, 1e7), min_size=2, max_size=2).map(sorted))
def test_longer_is_never_said_to_be_shorter(both: list[float]) -> None:
    shorter, longer = (read_back(duration(seconds), TIMES) for seconds in both)
    assert shorter <= longer


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (123_456, "123 kB"), (999_500, "1.00 MB"), (5e16, "50,000 TB")],
)
def test_sizes_have_three_digits(number: float, words: str) -> None:
    assert size(number) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1e-9, "0 s"),
        (4.2e-5, "42.0 µs"),
        (0.0123, "12.3 ms"),
        (0.9996, "1.00 s"),
        (119.4, "119 s"),
        (119.6, "2 min 00 s"),
        (200, "3 min 20 s"),
        (10_000, "2 h 46 min"),
    ],
)
def test_durations_have_three_digits_until_there_are_minutes(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_counts_agree_with_their_noun() -> None:
    assert [count(number, "client") for number in (0, 1, 1200)] == ["0 clients", "1 client", "1,200 clients"]
    assert [count(number, "process", "processes") for number in (1, 2)] == ["1 process", "2 processes"]


@given(st.text(), st.integers(2, 50))
def test_names_have_no_control_characters_and_are_shortened(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert shown.isprintable()
    assert len(shown) <= limit
    if text.isprintable() and len(text) <= limit:
        assert shown == text


def test_levels_are_stored_by_name() -> None:
    assert json.loads(json.dumps(list(Level))) == ["danger", "caution", "safe", "nothing"]
    assert len({level.mark for level in Level}) == len({level.label for level in Level}) == len(Level)


@pytest.mark.parametrize("level", Level)
def test_pages_have_a_style_for_every_level(level: Level) -> None:
    style = (files("coterie.reports") / "templates" / "page.css").read_text("utf-8")
    assert f".{level} {{" in style
