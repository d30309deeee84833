"""The common style of all PNG figures: colours, fonts, and a page with a headline."""

from __future__ import annotations

import io
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from coterie.errors import ConfigError
from coterie.files import write_output
from coterie.host import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

TEXT, QUIET, HAIRLINE = "#111827", "#6b7280", "#d1d5db"
BLUE, RUST, GREEN, OCHRE, SKY, SLATE = "#1d3557", "#c1440e", "#2a7f62", "#d99a2b", "#3f8fc4", "#7a8494"
PLUM, MOSS = "#8a4f7d", "#8c9a3c"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9ca3af",
    "axes.labelcolor": QUIET,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#eceef1",
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
}
_MARGIN, _HEADER = 0.75, 1.4  # inches: at the sides, and above the panels
_ENTRY, _LETTER = 0.75, 0.088  # inches: an entry of a legend without its letters, and a letter
_MARKS = 7  # ticks on an axis of counts, at most


def require_matplotlib() -> None:
    """Raise an error before any work is done if pictures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401 - only whether it is installed
    except ImportError:
        raise ConfigError(f"pictures need matplotlib; get it with: {install_command('report')}") from None


@contextmanager
def page(
    path: Path,
    title: str,
    subtitle: str,
    panels: Sequence[str] = ("",),
    size: tuple[float, float] = (9.0, 5.6),
    *,
    margin: float = _MARGIN,
    legend: bool = False,
    columns: int = 0,
) -> Iterator[list[Axes]]:
    """Yield the axes of panels side by side, each under its own heading; write the PNG when the block ends.

    Sizes are in inches. ``margin`` is the room for the labels on the left, and ``legend`` leaves room for one at the
    foot. ``columns`` is the number of panels side by side, 0 for all; further panels are below.
    """
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    width, height = size
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, facecolor="white")
        left = _MARGIN / width
        bottom = (1.1 if legend else 0.65) / height
        figure.text(left, 1 - 0.45 / height, title, fontsize=17, fontweight="bold", va="center")
        figure.text(left, 1 - 0.66 / height, subtitle, fontsize=10.5, color=QUIET, va="top", linespacing=1.4)
        columns = columns or len(panels)
        edges = {"left": margin / width, "right": 1 - left, "bottom": bottom, "top": 1 - _HEADER / height}
        grid = figure.add_gridspec(-(-len(panels) // columns), columns, **edges, wspace=0.2, hspace=0.4)
        axes = [figure.add_subplot(grid[number // columns, number % columns]) for number in range(len(panels))]
        for one, heading in zip(axes, panels, strict=True):
            one.set_title(heading, loc="left", fontsize=11, fontweight="bold", pad=8)
            one.tick_params(length=0)
        yield axes
        save_png(figure, path)


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure with the settings of all pictures."""
    file = io.BytesIO()
    figure.savefig(file, dpi=150, format="png")
    write_output(path, file.getbuffer())


def draw_band(
    axes: Axes,
    xs: Sequence[float],
    curves: NDArray[np.float64],
    color: str,
    label: str | None,
    line: dict[str, Any] | None = None,
) -> None:
    """Draw the mean of curves, one in each row, over a band from the least to the largest of them."""
    axes.fill_between(xs, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.12, linewidth=0)
    axes.plot(xs, curves.mean(axis=0), color=color, label=label, **{"linewidth": 2, **(line or {})})


def draw_heights(
    axes: Axes, xs: Sequence[float], ys: Sequence[float], heights: NDArray[np.float64], span: tuple[float, float]
) -> None:
    """Draw positive heights over a plane as filled contours on a logarithmic scale, with a colour bar.

    ``span`` is the least and the largest height of the scale; panels that are compared should share it.
    """
    from matplotlib.colors import LogNorm
    from numpy import geomspace

    levels, norm = geomspace(*span, 24), LogNorm(*span)
    filled = axes.contourf(xs, ys, heights, levels=levels, norm=norm, cmap="Greys", alpha=0.75)
    bar = axes.figure.colorbar(filled, ax=axes, fraction=0.045, pad=0.02)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:.2g}")
    bar.ax.set_title("loss", loc="left", fontsize=9, color=QUIET)


def foot_legend(*panels: Axes) -> None:
    """Draw one legend at the foot of the page, where :func:`page` left room, for the panel with the most lines."""
    axes = max(panels, key=lambda one: len(one.get_legend_handles_labels()[1]))
    handles, labels = axes.get_legend_handles_labels()
    width = float(axes.figure.bbox.width / axes.figure.dpi)
    columns = legend_columns([len(label) for label in labels], width)
    style: dict[str, Any] = {"ncols": columns, "bbox_to_anchor": (0.5, 0.01), "markerscale": 1.3}
    axes.figure.legend(handles, labels, loc="lower center", fontsize=10, **style)


def legend_columns(lengths: Sequence[int], width: float) -> int:
    """Return the largest number of columns of a legend, given the letters of a label and the width in inches."""

    def needed(columns: int) -> float:
        lines, more = divmod(len(lengths), columns)  # the first columns have one line more
        ends = [lines * column + min(column, more) for column in range(columns + 1)]
        longest = [max(lengths[first:last]) for first, last in pairwise(ends)]
        return sum(_ENTRY + _LETTER * letters for letters in longest)

    return next((columns for columns in range(len(lengths), 1, -1) if needed(columns) <= width), 1)


def share_height(panels: Sequence[Axes]) -> None:
    """Give compared panels the same vertical scale."""
    low, high = zip(*(axes.get_ylim() for axes in panels), strict=True)
    for axes in panels:
        axes.set_ylim(min(low), max(high))


def count_axis(axes: Axes, *, log: bool = False) -> None:
    """Write counts along these axes in full, and only whole ones; ``log`` uses a logarithmic scale."""
    from matplotlib.ticker import MaxNLocator

    if log:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(_MARKS, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def date_axis(axes: Axes) -> None:
    """Scale these axes to a week of hours, mark every other day, and write large values in full."""
    from matplotlib.dates import ConciseDateFormatter, DayLocator

    days = DayLocator(interval=2)  # type: ignore[no-untyped-call]  # matplotlib has no type here
    axes.xaxis.set_major_locator(days)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(days))  # type: ignore[no-untyped-call]  # matplotlib has no type here
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.margins(x=0)
