"""The figures of :mod:`coterie.reproduce.reconstruction.experiment`: histograms of errors (Figures 8 and 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coterie.reports.plots import BLUE, GREEN, HAIRLINE, OCHRE, QUIET, RUST, SLATE, foot_legend, page

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coterie.cohorts.circles import Reals

_LEAST = 1e-4


def draw_windows(task: str, windows: Mapping[str, Mapping[str, Reals]], path: Path) -> None:
    """Draw a panel for each window, and in it a histogram for each way to choose cohorts."""
    subtitle = "Relative squared error of each client's reconstructed update; guessing zero for everybody has error 1."
    most = max(errors.max() for sides in windows.values() for errors in sides.values())
    edges = np.logspace(np.log10(_LEAST), np.ceil(np.log10(most)), 30)
    with page(path, f"Taken out of sums: {task}", subtitle, tuple(windows), (14.0, 5.4), legend=True) as panels:
        for axes, sides in zip(panels, windows.values(), strict=True):
            for side, errors in sides.items():
                shares = np.histogram(np.clip(errors, _LEAST, None), edges)[0] / errors.size
                style = "--" if side.endswith("naive") else "-"
                axes.stairs(shares, edges, color=_color(side), linewidth=2, linestyle=style, label=_words(side))
            axes.axvline(1.0, color=HAIRLINE, linewidth=1)
            axes.set(xscale="log", xlabel="error", ylim=(0, None))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        panels[0].set_ylabel("share of clients", color=QUIET)
        for side in (side for sides in windows.values() for side in sides if side.endswith("naive")):
            panels[0].plot([], [], color=_color(side), linewidth=2, linestyle="--", label=_words(side))
        foot_legend(panels[0])


def _color(side: str) -> str:
    if side == "random":
        return RUST
    if side.endswith("naive"):
        return OCHRE if "T=" not in side else SLATE
    return GREEN if "T=" not in side else BLUE


def _words(side: str) -> str:
    return side.replace("multi-round", "circles").replace("naive", "with survivors of broken ones")
