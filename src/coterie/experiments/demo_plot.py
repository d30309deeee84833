"""The picture of a demonstration: what the server saw of one client, and what it learned about all."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coterie.experiments.demo_report import DemoReport, Vectors
from coterie.experiments.fingerprint import CONTRAST, shape_of
from coterie.experiments.plots import HAIRLINE, QUIET, STYLE, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SECRET, NOISE, MEAN = "#1d3557", "#c1440e", "#2a7f62"
_STYLE: dict[Any, Any] = STYLE | {"axes.grid": False, "axes.spines.left": False}


def draw(report: DemoReport, vectors: Vectors, path: Path) -> None:
    """Write the picture to ``path`` as a PNG; :class:`ImportError` where matplotlib is not installed.

    Three columns: one client's vector, the bytes the server received in its place, and the mean it learned. Below
    them: how often each value occurs in the first two, and one row of pixels of the mean beside the plain mean.
    """
    import matplotlib
    from matplotlib.figure import Figure

    levels, modulus = (1 << (report.precision_bits - 1)) - 1, 1 << report.ring_bits
    settings, sight = report.settings, report.sight
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(12, 8.4), facecolor="white")
        grid = figure.add_gridspec(
            2, 3, height_ratios=(3.3, 1), left=0.045, right=0.955, top=0.81, bottom=0.1, hspace=0.13, wspace=0.16
        )
        figure.text(0.045, 0.945, "What the server saw", fontsize=22, fontweight="bold", color=TEXT)
        figure.text(
            0.045,
            0.907,
            f"Secure aggregation of {settings.clients:,} clients with {settings.length:,} numbers each; "
            f"{settings.leaving:,} dropped out on the way.",
            fontsize=11.5,
            color=QUIET,
        )
        top, bottom = ([figure.add_subplot(grid[row, column]) for column in range(3)] for row in range(2))
        _picture(
            top[0],
            vectors.quantised,
            (-CONTRAST * levels, CONTRAST * levels),
            SECRET,
            f"1  {sight.client} has a secret",
            "its vector, as pixels",
        )
        _picture(
            top[1],
            vectors.received,
            (0, modulus),
            NOISE,
            "2  The server received noise",
            "the same vector, as it arrived",
        )
        _picture(
            top[2],
            vectors.decoded_mean,
            (-CONTRAST, CONTRAST),
            MEAN,
            f"3  It learned the mean of {len(report.aggregated):,}",
            "all together, and nobody in particular",
        )
        _histogram(bottom[0], vectors.quantised, (-levels, levels), SECRET)
        _caption(
            bottom[0], "How often each value occurs: paper on the left,\nink on the right. The secret has a shape."
        )
        _histogram(bottom[1], vectors.received, (0, modulus - 1), NOISE)
        _caption(
            bottom[1],
            "Every value equally often. Correlation with the\n"
            f"secret: {sight.correlation:+.4f}; by chance alone: ±{sight.chance:.4f}.",
        )
        _middle_row(bottom[2], vectors)
        _caption(
            bottom[2],
            "One row of it, plain mean wide, secure mean thin.\n"
            f"Largest gap {report.mean_error:.1e}; rounding allows {report.mean_error_bound:.1e}.",
        )
        figure.savefig(path, dpi=150, format="png")


def _picture(
    axes: "Axes", vector: npt.NDArray[Any], limits: tuple[float, float], color: str, title: str, subtitle: str
) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    rows, columns = shape_of(vector.size)
    pixels = np.full(rows * columns, np.nan)  # what is missing from the last row stays empty
    pixels[: vector.size] = vector
    ink = LinearSegmentedColormap.from_list("ink", ["white", color])
    axes.imshow(pixels.reshape(rows, columns), cmap=ink, vmin=limits[0], vmax=limits[1], interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=HAIRLINE, linewidth=0.8)
    axes.set_title(title, loc="left", fontsize=14, fontweight="bold", color=color, pad=23)
    axes.text(0, 1.02, subtitle, transform=axes.transAxes, fontsize=10.5, color=QUIET)


def _caption(axes: "Axes", text: str) -> None:
    axes.text(0, -0.21, text, transform=axes.transAxes, va="top", linespacing=1.4, color=QUIET)


def _histogram(axes: "Axes", vector: npt.NDArray[Any], limits: tuple[int, int], color: str) -> None:
    axes.hist(vector, bins=64, range=limits, color=color)
    axes.set(yticks=[], xlim=limits)
    axes.set_xticks(limits, [f"{limit:,}" for limit in limits])
    first, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def _middle_row(axes: "Axes", vectors: Vectors) -> None:
    rows, columns = shape_of(vectors.plain_mean.size)
    start = rows // 2 * columns
    for mean, width, opacity in ((vectors.plain_mean, 5.0, 0.3), (vectors.decoded_mean, 1.2, 1.0)):
        axes.plot(mean[start : start + columns], color=MEAN, linewidth=width, alpha=opacity)
    axes.set(xticks=[], yticks=[])
    axes.margins(x=0)
