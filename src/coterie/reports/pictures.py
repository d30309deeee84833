"""Pictures of vectors: each is drawn as pixels, with its histogram or a curve and a caption below."""

import base64
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coterie.reports.plots import HAIRLINE, QUIET, STYLE, TEXT, save_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE: dict[Any, Any] = STYLE | {"axes.grid": False, "axes.spines.left": False}


@dataclass(frozen=True, eq=False)
class Histogram:
    """The frequency of each value between two limits."""

    values: npt.NDArray[Any]
    limits: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Overlay:
    """Two curves that should coincide: the first is drawn wide and pale, the second thin on top of it."""

    under: npt.NDArray[Any]
    over: npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Column:
    """A vector as pixels between two limits, with a heading, and a diagram and a caption below."""

    title: str
    subtitle: str
    color: str
    pixels: npt.NDArray[Any]
    limits: tuple[float, float]
    below: Histogram | Overlay
    caption: str


def draw_columns(path: Path, title: str, subtitle: str, shape: tuple[int, int], columns: Sequence[Column]) -> None:
    """Write the picture to ``path`` as a PNG; pixels fill pictures of ``shape`` row by row.

    :class:`ImportError` if matplotlib is not installed.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4 * len(columns), 8.4), facecolor="white")
        margins = {"left": 0.045, "right": 0.955, "top": 0.81, "bottom": 0.1}
        grid = figure.add_gridspec(2, len(columns), height_ratios=(3.3, 1), hspace=0.13, wspace=0.16, **margins)
        figure.text(0.045, 0.945, title, fontsize=22, fontweight="bold", color=TEXT)
        figure.text(0.045, 0.907, subtitle, fontsize=11.5, color=QUIET)
        for place, column in enumerate(columns):
            _picture(figure.add_subplot(grid[0, place]), column, shape)
            axes = figure.add_subplot(grid[1, place])
            if isinstance(column.below, Histogram):
                _histogram(axes, column.below, column.color)
            else:
                _overlay(axes, column.below, column.color)
            axes.text(0, -0.21, column.caption, transform=axes.transAxes, va="top", linespacing=1.4, color=QUIET)
        save_png(figure, path)


def picture_uri(pixels: npt.NDArray[Any]) -> str:
    """Return a picture as a PNG in a data address: height x width, or x 3 with colours, from 0 to 1."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, np.clip(pixels, 0, 1), vmin=0, vmax=1, cmap="gray", format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def draw_strip(path: Path, rows: Sequence[tuple[str, npt.NDArray[Any]]]) -> None:
    """Write rows of pictures to a PNG, each under the one before, with its label at the left."""
    import matplotlib
    from matplotlib.figure import Figure

    across = max(len(pictures) for _, pictures in rows)
    height, width = rows[0][1].shape[1:3]
    tall = 0.9 * height / width
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(2.7 + 0.9 * across, tall * len(rows)), facecolor="white")
        left = 2.7 / (2.7 + 0.9 * across)
        grid = figure.add_gridspec(
            len(rows), across, left=left, right=0.995, top=0.995, bottom=0.005, wspace=0.06, hspace=0.06
        )
        for line, (label, pictures) in enumerate(rows):
            for column, picture in enumerate(pictures):
                axes = figure.add_subplot(grid[line, column])
                axes.imshow(np.clip(picture, 0, 1), vmin=0, vmax=1, cmap="gray", interpolation="nearest")
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set(visible=True, color=HAIRLINE, linewidth=0.6)
                if column == 0:
                    axes.set_ylabel(
                        "\n".join(textwrap.wrap(label, 30)), rotation=0, ha="right", va="center", labelpad=8, color=TEXT
                    )
        save_png(figure, path)


def _picture(axes: "Axes", column: Column, shape: tuple[int, int]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    pixels = np.full(shape[0] * shape[1], np.nan)  # the rest of the last row stays empty
    pixels[: column.pixels.size] = column.pixels
    ink = LinearSegmentedColormap.from_list("ink", ["white", column.color])
    low, high = column.limits
    axes.imshow(pixels.reshape(shape), cmap=ink, vmin=low, vmax=high, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=HAIRLINE, linewidth=0.8)
    axes.set_title(column.title, loc="left", fontsize=14, fontweight="bold", color=column.color, pad=23)
    axes.text(0, 1.02, column.subtitle, transform=axes.transAxes, fontsize=10.5, color=QUIET)


def _histogram(axes: "Axes", histogram: Histogram, color: str) -> None:
    limits = histogram.limits
    axes.hist(histogram.values, bins=64, range=limits, color=color)
    axes.set(yticks=[], xlim=limits)
    axes.set_xticks(limits, [f"{limit:,}" for limit in limits])
    first, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def _overlay(axes: "Axes", overlay: Overlay, color: str) -> None:
    for values, width, opacity in ((overlay.under, 5.0, 0.3), (overlay.over, 1.2, 1.0)):
        axes.plot(values, color=color, linewidth=width, alpha=opacity)
    axes.set(xticks=[], yticks=[])
    axes.margins(x=0)
