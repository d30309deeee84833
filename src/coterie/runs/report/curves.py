"""Curves drawn in a line of characters, for terminals and notebooks."""

from collections.abc import Sequence

CURVE = 40
"""The width of a curve, in characters."""
_BLOCKS = "▁▂▃▄▅▆▇█"


def curve(values: Sequence[float], low: float, high: float) -> str:
    """Draw values in a line of characters, the last ones or, if there are many, some of them."""
    if len(values) > CURVE:
        values = [values[round(at * (len(values) - 1) / (CURVE - 1))] for at in range(CURVE)]
    span = (high - low) or 1.0
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(top, max(0, round((value - low) / span * top)))] for value in values)


def draw_over(points: Sequence[tuple[int, float]], last: int, low: float, high: float, width: int) -> str:
    """Draw points of rounds 1 to ``last`` in a line of characters; rounds without a point show the one before."""
    shown: list[float | None] = []
    for place in range(width):
        until = 1 + (last - 1) * place / max(1, width - 1)
        known = [value for number, value in points if number <= until]
        over = not points or until > points[-1][0] + (last - 1) / max(1, width - 1)
        shown.append(None if over or not known else known[-1])
    return "".join(" " if value is None else curve([value], low, high) for value in shown)
