"""The landscape around confined models: planes through them, and what is seen in these."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.jobs import experiment_of
from tests.support.reports import checked_report

from coterie.confined.offsets import Parameters
from coterie.reproduce.declarations import FULL, QUICK, declared, read_declaration
from coterie.reproduce.landscape import METHODS, Landscape, Plane, flatten, normalise_filters, shape
from coterie.reproduce.runner import Run

SHAPES = ((6, 4), (4,), (4, 3), (3,))


def draw_models(seed: int, count: int) -> list[Parameters]:
    rng = np.random.default_rng(seed)
    return [[rng.standard_normal(shape) for shape in SHAPES] for _ in range(count)]


def without_biases(model: Parameters) -> Parameters:
    return [array if array.ndim > 1 else np.zeros_like(array) for array in model]


@given(st.integers(0, 2**32))
def test_directions_have_the_norms_of_the_model_filter_by_filter(seed: int) -> None:
    direction, model = draw_models(seed, 2)
    for given_part, part, weights in zip(direction, normalise_filters(direction, model), model, strict=True):
        if weights.ndim == 1:
            assert not part.any()
            continue
        assert np.linalg.norm(part, axis=0) == pytest.approx(np.linalg.norm(weights, axis=0))
        cosines = (part * given_part).sum(axis=0) / np.linalg.norm(part, axis=0) / np.linalg.norm(given_part, axis=0)
        assert cosines == pytest.approx(1)  # only the length changes


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_a_unit_that_is_scaled_up_moves_further(seed: int, factor: int) -> None:
    """A ReLU network computes the same function if a unit's weights grow and those behind it shrink."""
    direction, model = draw_models(seed, 2)
    larger = [factor * array for array in model]
    plain, scaled = normalise_filters(direction, model), normalise_filters(direction, larger)
    assert all(np.allclose(factor * one, other) for one, other in zip(plain, scaled, strict=True))


@given(st.integers(0, 2**32), st.floats(-2, 2), st.floats(-2, 2))
def test_places_and_points_of_a_plane_belong_together(seed: int, x: float, y: float) -> None:
    models = draw_models(seed, 5)
    plane = Plane.through(models, models[-3:])
    assert plane.place(plane.point(x, y)) == pytest.approx((x, y), abs=1e-6)
    centre = np.mean([flatten(model) for model in models[-3:]], axis=0)
    assert np.allclose(flatten(plane.point(0, 0)), centre)
    assert 0 <= plane.explained(models[-3:]) <= 1
    assert plane.explained([plane.point(x + 3, y)]) == pytest.approx(1)


def test_the_plane_follows_the_principal_components() -> None:
    """Models that differ in two filters only: nothing else moves in the plane."""
    start = without_biases(draw_models(0, 1)[0])
    models = []
    for a, b in ((3, 0), (-3, 0), (0, 2), (0, -2)):
        moved = [array.copy() for array in start]
        moved[0][:, 0] += a * np.array([1.0, -1, 0, 0, 0, 0])
        moved[2][:, 1] += b * np.array([0.0, 1, 1, 0])
        models.append(moved)
    plane = Plane.through(models, models)
    assert plane.explained(models) == pytest.approx(1)
    first, second = (shape(axis, SHAPES) for axis in plane.axes)
    assert not first[2].any()
    assert not second[0].any()


def test_the_shipped_landscape_can_be_run() -> None:
    declaration = read_declaration(declared()["cgd-landscape"])
    assert {QUICK, FULL} <= set(declaration.sizes)
    for size in declaration.sizes:
        experiment = experiment_of(Landscape, declaration, size)
        assert all(experiment.case(name).sample > 2 for name in experiment.grids)


def test_a_landscape_is_drawn_and_can_be_rewritten(tmp_path: Path) -> None:
    small = {"data": "digits", "rows": 100, "hidden": 4, "groups": 4, "members": 1, "sample": 3, "every": 2}
    declaration = msgspec.structs.replace(
        read_declaration(declared()["cgd-landscape"]),
        settings={"points": 5, "reach": 2.0, "local_steps": 2, "grids": {"small": {**small, "iterations": 6}}},
        sizes={FULL: read_declaration(declared()["cgd-landscape"]).sizes[QUICK]},
    )
    run = Run("small", declaration, tmp_path, trials=2)
    report, _ = checked_report(run)
    views = report.numbers["views"]
    assert [view["method"] for view in views] == [*METHODS, *METHODS]
    for view in views:
        assert np.shape(view["losses"]) == (5, 5)
        assert np.shape(view["paths"]) == (3, 4, 2)  # three models, at the start and three times after it
        assert min(map(min, view["losses"])) > 0
        assert view["xs"][0] < min(x for path in view["paths"] for x, _ in path)
    confined, averaged = (np.array(view["paths"]) for view in views[:2])
    assert np.ptp(averaged[:, 0], axis=0) == pytest.approx(0, abs=1e-9)  # all start at one point
    assert np.ptp(confined[:, 0], axis=0).min() > 0.1
    assert all(claim["source"] == "ours" for claim in report.numbers["claims"])
    assert (tmp_path / "landscape.png").stat().st_size > 0
