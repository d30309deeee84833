"""The figures of :mod:`coterie.reproduce.reconstruction.experiment`: histograms of errors (Figures 8 and 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coterie.reports.plots import BLUE, GREEN, HAIRLINE, OCHRE, QUIET, RUST, foot_legend, page

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coterie.cohorts.circles import Reals

_LEAST = 1e-4
_NAIVE = " naive"


def draw_windows(task: str, smallest: int, windows: Mapping[str, Mapping[str, Reals]], path: Path) -> None:
    """Draw a panel for each window, and in it a histogram for each way to choose cohorts.

    ``smallest`` is the T of the circles that are called by their policy's name alone.
    """
    subtitle = "Relative squared error of each client's reconstructed update; guessing zero for everybody has error 1."
    most = max(errors.max() for sides in windows.values() for errors in sides.values())
    edges = np.logspace(np.log10(_LEAST), max(0.0, np.ceil(np.log10(most))), 30)
    with page(path, f"Taken out of sums: {task}", subtitle, tuple(windows), (14.0, 5.4), legend=True) as panels:
        for axes, sides in zip(panels, windows.values(), strict=True):
            for side, errors in sides.items():
                shares = np.histogram(np.clip(errors, _LEAST, None), edges)[0] / errors.size
                axes.stairs(shares, edges, color=_color(side), linewidth=2, linestyle=_style(side))
            axes.axvline(1.0, color=HAIRLINE, linewidth=1)
            axes.set(xscale="log", xlabel="error", ylim=(0, None))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        panels[0].set_ylabel("share of clients", color=QUIET)
        for side in dict.fromkeys(side for sides in windows.values() for side in sides):
            label = _words(side, smallest)
            panels[0].plot([], [], color=_color(side), linewidth=2, linestyle=_style(side), label=label)
        foot_legend(panels[0])


def _color(side: str) -> str:
    if side == "random":
        return RUST
    if side.endswith(_NAIVE):
        return OCHRE
    return BLUE if "T=" in side else GREEN


def _style(side: str) -> str:
    return "--" if side.endswith(_NAIVE) else "-"


def _words(side: str, smallest: int) -> str:
    if side == "random":
        return "random selection"
    size = side.removesuffix(_NAIVE).partition("T=")[2] or smallest
    return f"circles of {size}" + (", survivors of broken ones summed" if side.endswith(_NAIVE) else "")
