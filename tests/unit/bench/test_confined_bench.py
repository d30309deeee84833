"""The costs of confined descent on small grids: how they are reported, and that wrong results are refused."""

from pathlib import Path

import numpy as np
import pytest
from tests.support.records import record_of, words_of

from coterie.arithmetic import FloatArray
from coterie.bench import confined, confined_grid
from coterie.bench.confined import (
    EXAMPLES,
    FEATURES,
    PARAMETERS,
    IterationCosts,
    SharingCosts,
    measure_iterations,
    measure_sharing,
    mnist_like_examples,
)
from coterie.bench.confined_grid import GridCosts, measure_grid
from coterie.confined.cached_groups import CachedGroups
from coterie.confined.grid import Grid
from coterie.confined.vertical import VerticalSum
from coterie.errors import ConfigError, RoundAborted

GRID = Grid(5, 7)


def few(name: str = "random") -> tuple[str, FloatArray, np.ndarray]:
    rng = np.random.default_rng(0)
    return name, rng.random((40, FEATURES), np.float32), rng.integers(10, size=40)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "mnist_like_examples", lambda _seed: few())
    costs = SharingCosts(3, 4, 20, 1.0, 1.5, 2.0, 3.0, 4.0)
    monkeypatch.setattr(confined, "measure_sharing", lambda: costs)
    monkeypatch.setattr(confined_grid, "mnist_like_examples", lambda _seed: few())


def test_the_model_has_the_papers_size() -> None:
    assert PARAMETERS == 203_530


def test_ratios_are_medians_over_turns() -> None:
    costs = IterationCosts(GRID, 40, "random", (1.0, 10.0, 2.0), (2.0, 11.0, 3.0), (3.0, 40.0, 2.0), 0.0, 1)
    assert (costs.ratio, costs.clipped_ratio) == (1.5, 3.0)


def test_turns_are_real_iterations() -> None:
    seen: list[int] = []
    costs = measure_iterations(GRID, 2, examples=few(), watch=seen.append)
    assert seen == [1, 2, 3]  # the first one warms up
    assert len(costs.gradient_seconds) == len(costs.iteration_seconds) == len(costs.clipped_seconds) == 2
    assert min(costs.gradient_seconds + costs.iteration_seconds + costs.clipped_seconds) > 0
    assert 0 <= costs.refused < 1
    assert costs.peak_rss_bytes > 10**6
    with pytest.raises(ConfigError):
        measure_iterations(GRID, 0, examples=few())


def test_a_wrong_loss_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CachedGroups, "_judge", lambda self, z, w2, b2, part: (np.zeros((1, 1, 10)), np.zeros(len(z))))
    with pytest.raises(RoundAborted, match="cached loss"):
        measure_iterations(GRID, 1, examples=few())


def test_every_step_of_sharing_is_timed() -> None:
    costs = measure_sharing(3, 50)
    assert (costs.members, costs.length) == (3, 50)
    assert costs.split_ratio == costs.split_seconds / costs.generate_seconds
    assert min(costs.deal_seconds, costs.publish_seconds, costs.total_seconds) > 0


def test_a_wrong_sum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "total", lambda state, _sums: state.own)
    with pytest.raises(RoundAborted, match="did not find the sum"):
        measure_sharing(3, 50)


def test_without_mnist_examples_are_random_and_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    monkeypatch.setattr(confined, "EXAMPLES", 30)
    name, x, labels = mnist_like_examples(0)
    assert (name, x.shape, x.dtype.name, labels.shape) == ("random", (30, FEATURES), "float32", (30,))
    assert EXAMPLES == 60_000


def test_split_and_unsplit_iterations_take_turns() -> None:
    seen: list[int] = []
    costs = measure_grid(Grid(3, 5), 2, examples=few(), watch=seen.append)
    assert seen == [1, 2, 3]
    assert costs.examples == 39  # 40 cannot be dealt evenly
    assert {len(taken) for taken in (costs.unsplit_seconds, costs.clear_seconds, costs.secure_seconds)} == {2}
    assert min(costs.unsplit_seconds + costs.clear_seconds + costs.secure_seconds) > 0
    with pytest.raises(ConfigError):
        measure_grid(repeats=0)
    costs = GridCosts(GRID, 40, "random", (1.0, 10.0, 2.0), (2.0, 11.0, 3.0), (3.0, 40.0, 2.0))
    assert (costs.clear_ratio, costs.secure_ratio) == (1.5, 3.0)


def test_a_split_that_learns_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    add = VerticalSum.add
    monkeypatch.setattr(VerticalSum, "add", lambda self, parts, entropy=None: 1.1 * add(self, parts, entropy))
    with pytest.raises(RoundAborted, match="learnt something else"):
        measure_grid(Grid(3, 5), 2, examples=few())


@pytest.mark.usefixtures("small")
def test_the_result_is_shown_as_text_and_as_json() -> None:
    command = ["bench", "confined", "--groups", "5", "--members", "7", "--repeats", "1"]
    shown = words_of(*command)
    for words in ("5 x 7 = 35 participants", "random examples (MNIST was not found)", "over 1 turn)", "1.50x"):
        assert words in shown
    record = record_of(*command)
    assert "In a run, groups of 4 members take" in shown
    assert record["run"]["secure_ratio"] == pytest.approx(
        record["run"]["secure_seconds"][0] / record["run"]["unsplit_seconds"][0]
    )
    assert (record["participants"], record["data"], record["sharing"]["split_ratio"]) == (35, "random", 1.5)
    assert record["ratio"] == pytest.approx(record["iteration_seconds"][0] / record["gradient_seconds"][0])
