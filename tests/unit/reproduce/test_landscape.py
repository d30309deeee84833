"""The landscape around confined models: planes through them, and what is seen in these."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ConfigError
from coterie.reproduce.declarations import FULL, QUICK, declared, read_declaration
from coterie.reproduce.landscape import Landscape, Plane
from coterie.reproduce.runner import REPORT, Run


@given(st.integers(0, 2**32))
def test_a_plane_through_three_models_holds_them(seed: int) -> None:
    models = np.random.default_rng(seed).standard_normal((3, 20))
    plane = Plane.through(list(models))
    assert plane.explained == pytest.approx(1)
    for model in models:
        assert np.allclose(plane.point(*plane.place(model)), model)


def test_the_shipped_landscape_can_be_run() -> None:
    declaration = read_declaration(declared()["cgd-landscape"])
    assert {QUICK, FULL} <= set(declaration.sizes)
    for size in declaration.sizes:
        experiment = declaration.experiment(size)
        assert isinstance(experiment, Landscape)
        assert all(experiment.case(name).sample > 2 for name in experiment.grids)


def test_a_landscape_is_drawn_and_can_be_told_again(tmp_path: Path) -> None:
    small = {"data": "digits", "rows": 100, "hidden": 4, "groups": 4, "members": 1, "sample": 3, "every": 2}
    declaration = msgspec.structs.replace(
        read_declaration(declared()["cgd-landscape"]),
        settings={"points": 5, "grids": {"small": {**small, "iterations": 5}}},
        sizes={FULL: read_declaration(declared()["cgd-landscape"]).sizes[QUICK]},
    )
    run = Run("small", declaration, tmp_path, trials=2)
    run.work()
    report = run.write_report()
    text = (tmp_path / REPORT).read_text()
    (view, _) = report.numbers["views"]
    assert np.shape(view["losses"]) == (5, 5)
    assert np.shape(view["paths"]) == (3, 4, 2)  # three models, at the start and three times after it
    assert min(map(min, view["losses"])) > 0
    assert view["xs"][0] < min(x for path in view["paths"] for x, _ in path)
    assert (tmp_path / "landscape.png").stat().st_size > 0
    run.rewrite_report()
    assert (tmp_path / REPORT).read_text() == text
    with pytest.raises(ConfigError, match="do not hold"):
        run.experiment.retell({})
