"""The picture of a demonstration: what the server received from one client, and the mean that it computed."""

from pathlib import Path

from coterie.demo.fingerprint import CONTRAST, shape_of
from coterie.demo.report import DemoReport, Vectors
from coterie.reports.pictures import Column, Histogram, Overlay, draw_columns
from coterie.reports.plots import BLUE, GREEN, RUST

SECRET, NOISE, MEAN = BLUE, RUST, GREEN


def draw(report: DemoReport, vectors: Vectors, path: Path) -> None:
    """Write the picture to ``path`` as a PNG. Raise :class:`ImportError` if matplotlib is not installed.

    It has three columns: one client's vector, the bytes that the server received from it, and the mean. Below them
    are the histograms of the first two, and one row of pixels of the secure mean next to the plain mean.
    """
    levels, modulus = (1 << (report.precision_bits - 1)) - 1, 1 << report.ring_bits
    settings, view = report.settings, report.view
    rows, columns = shape = shape_of(vectors.plain_mean.size)
    middle = slice(rows // 2 * columns, (rows // 2 + 1) * columns)
    draw_columns(
        path,
        "What the server saw",
        f"Secure aggregation of {settings.clients:,} clients with {settings.length:,} numbers each; "
        f"{settings.leaving:,} dropped out on the way.",
        shape,
        [
            Column(
                f"1  The private vector of {view.client}",
                "its vector, as pixels",
                SECRET,
                vectors.quantised,
                (-CONTRAST * levels, CONTRAST * levels),
                Histogram(vectors.quantised, (-levels, levels)),
                "How often each value occurs: paper on the left,\nink on the right. The secret has a shape.",
            ),
            Column(
                "2  What the server received from it",
                "the same vector, as it arrived",
                NOISE,
                vectors.received,
                (0, modulus),
                Histogram(vectors.received, (0, modulus - 1)),
                "Every value equally often. Correlation with the\n"
                f"secret: {view.correlation:+.4f}; by chance alone: ±{view.chance:.4f}.",
            ),
            Column(
                f"3  The mean of {len(report.aggregated):,} clients",
                "computed from their sum",
                MEAN,
                vectors.decoded_mean,
                (-CONTRAST, CONTRAST),
                Overlay(vectors.plain_mean[middle], vectors.decoded_mean[middle]),
                "One row of it, plain mean wide, secure mean thin.\n"
                f"Largest gap {report.mean_error:.1e}; rounding allows {report.mean_error_bound:.1e}.",
            ),
        ],
    )
