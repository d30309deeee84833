"""Figures: legends that fit, axes of counts, and panels with one scale."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from coterie.reports.plots import count_axis, foot_legend, legend_columns, page, share_height


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.floats(6, 20))
def test_a_wider_page_takes_no_fewer_columns(lengths: list[int], width: float) -> None:
    columns = legend_columns(lengths, width)
    assert 1 <= columns <= len(lengths)
    assert legend_columns(lengths, width + 5) >= columns


def test_a_legend_stays_on_its_page(tmp_path: Path) -> None:
    with page(tmp_path / "a.png", "A", "B", size=(9.0, 5.0), legend=True) as (axes,):
        for number in range(8):
            axes.plot([0, 1], [0, number], label=f"a row with quite a long name, {number}")
        foot_legend(axes)
        figure = axes.get_figure(root=True)
        assert isinstance(figure, Figure)
        figure.canvas.draw()
        box = figure.legends[0].get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def test_counts_have_whole_marks_and_compared_panels_one_scale(tmp_path: Path) -> None:
    with page(tmp_path / "a.png", "A", "B", ("one", "two")) as (one, two):
        one.plot([0, 5], [0, 1])
        two.plot([0, 5], [2, 9])
        for axes in (one, two):
            count_axis(axes)
            assert all(float(mark).is_integer() for mark in axes.get_xticks())
        share_height([one, two])
        assert one.get_ylim() == two.get_ylim()
