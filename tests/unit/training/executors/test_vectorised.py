from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.learning import BatchNormNet, WaitUntilStopped, blobs, read_on_demand, same, small_problem, tasks_for
from torch import nn
from torch.utils.data import TensorDataset

from coterie.errors import Cancelled, ConfigError
from coterie.training import flatten
from coterie.training.executors import vectorised
from coterie.training.executors.processes import InProcess
from coterie.training.executors.vectorised import choose_executor, train_together
from coterie.training.local import ArrayData, LocalResult, LocalSGD, LocalTask, Problem
from coterie.training.models import build


def one_by_one(problem: Problem, tasks: list[LocalTask]) -> list[LocalResult]:
    return [task.work(problem, task, lambda: False) for task in tasks]


def assert_close(one: list[LocalResult], other: list[LocalResult], tolerance: float) -> None:
    for a, b in zip(one, other, strict=True):
        assert (a.client, a.round, a.samples) == (b.client, b.round, b.samples)
        assert a.loss == pytest.approx(b.loss, rel=tolerance)
        for left, right in zip(a.update, b.update, strict=True):
            assert (left.dtype, left.shape) == (right.dtype, right.shape)
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(1, 14), min_size=1, max_size=6),
    st.integers(1, 8),
    st.integers(1, 2),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 0.1]),
)
def test_training_together_equals_training_one_by_one(
    sizes: list[int], batch: int, epochs: int, momentum: float, decay: float
) -> None:
    # In float64, whose rounding is too small to hide a mistake.
    problem = small_problem(sum(sizes), torch.float64)
    tasks = tasks_for(problem, sizes, LocalSGD(0.1, epochs, batch, momentum, decay))
    assert_close(train_together(problem, tasks), one_by_one(problem, tasks), 1e-10)


def group_norm_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 3))


@pytest.mark.parametrize(
    "model", [build("mlp", (1, 16, 16), 3, 0), build("lenet", (1, 16, 16), 3, 0), group_norm_net()]
)
def test_convolutions_and_dense_layers_are_vectorised(model: nn.Module) -> None:
    rng = np.random.default_rng(0)
    problem = Problem(model, ArrayData(rng.standard_normal((9, 1, 16, 16)).astype(np.float32), rng.integers(0, 3, 9)))
    tasks = tasks_for(problem, [4, 5], LocalSGD(0.05, batch_size=3))
    assert_close(train_together(problem, tasks), one_by_one(problem, tasks), 1e-4)


def test_clients_may_start_from_models_of_their_own() -> None:
    problem = small_problem(30, torch.float64)
    tasks = [
        replace(task, state=[array * (lane + 1) for array in task.state])
        for lane, task in enumerate(tasks_for(problem, [10, 12, 8]))
    ]
    assert_close(train_together(problem, tasks), one_by_one(problem, tasks), 1e-10)


def test_scalar_parameters_stay_arrays() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.inner = nn.Parameter(torch.tensor(2.0)), nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * self.inner(x)  # type: ignore[no-any-return]

    problem = Problem(Scaled(), blobs())
    tasks = tasks_for(problem, [10, 12])
    together = train_together(problem, tasks)
    assert all(isinstance(array, np.ndarray) for result in together for array in result.update)
    assert_close(together, one_by_one(problem, tasks), 1e-4)


def test_the_result_is_reproducible_and_changes_nothing() -> None:
    problem = small_problem()
    tasks = tasks_for(problem, [10, 20, 15])
    before = flatten.read(problem.model)
    first, second = train_together(problem, tasks), train_together(problem, tasks)
    assert all(same(one.update, other.update) for one, other in zip(first, second, strict=True))
    assert same(flatten.read(problem.model), before)
    assert all(same(task.state, before) for task in tasks)
    assert sum(result.seconds for result in first) > 0


def test_a_trainer_splits_many_clients_into_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorised, "LANES", 2)
    problem = small_problem(50)
    tasks = tasks_for(problem, [10] * 5)
    with InProcess(problem, together=True) as trainer:
        trainer.start(tasks)
        results = [trainer.result(task.client) for task in reversed(tasks)][::-1]
    pairs = [*train_together(problem, tasks[:2]), *train_together(problem, tasks[2:4])]
    assert all(same(one.update, other.update) for one, other in zip(results[:4], pairs, strict=True))
    assert_close(results, one_by_one(problem, tasks), 1e-4)


def dropout_net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def test_models_that_cannot_be_vectorised_are_refused() -> None:
    problem = small_problem()
    tasks = tasks_for(problem, [10, 10])
    other_work = [tasks[0], replace(tasks[1], work=LocalSGD(0.2))]
    with pytest.raises(ConfigError, match="same settings"):
        train_together(problem, other_work)
    with pytest.raises(ConfigError, match="plain local SGD"):
        train_together(problem, tasks_for(problem, [5], WaitUntilStopped()))
    pairs = read_on_demand(TensorDataset(torch.zeros(20, 5), torch.zeros(20, dtype=torch.int64)), 20)
    with pytest.raises(ConfigError, match="examples in arrays"):
        train_together(replace(problem, data=pairs), tasks)
    for model, reason in ((BatchNormNet(), "keeps statistics"), (dropout_net(), "cannot be vectorised")):
        wrong = Problem(model, problem.data)
        with pytest.raises(ConfigError, match=reason):
            train_together(wrong, tasks_for(wrong, [10, 10]))


def test_training_together_stops_on_request() -> None:
    problem = small_problem()
    with pytest.raises(Cancelled):
        train_together(problem, tasks_for(problem, [10, 10]), lambda: True)


def test_the_faster_executor_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_problem()
    tasks = tasks_for(problem, [20, 10, 20], LocalSGD(0.1, epochs=2, batch_size=5))
    monkeypatch.setattr(vectorised, "_DISPATCH", 0.001)
    for alone, together, workers, expected in (
        (1, 2, 0, "vectorised"),  # milliseconds for one step alone, and for one of all together
        (1, 2, 1, "vectorised"),  # 20 + 3 against 8 · 2
        (1, 2, 2, "processes"),  # 10 + 3 against 8 · 2
        (1, 3, 0, "processes"),
    ):
        seconds = iter([0.001, 0.004 * alone, 0.004 * together])  # a trial is one step, then four
        monkeypatch.setattr(vectorised, "_seconds", lambda _, seconds=seconds: next(seconds))
        choice = choose_executor(problem, tasks, workers)
        assert choice.executor == expected
        dispatch = 0.003 if workers else 0
        assert choice.processes_seconds == pytest.approx(0.020 * alone / max(workers, 1) + dispatch)
        assert choice.vectorised_seconds == pytest.approx(0.008 * together)


def test_processes_are_chosen_if_vectorising_cannot_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_problem()
    tasks = tasks_for(problem, [10, 10])
    assert choose_executor(problem, tasks_for(problem, [5], WaitUntilStopped()), 2).executor == "processes"
    for model, reason in ((BatchNormNet(), "statistics"), (dropout_net(), "cannot be vectorised")):
        choice = choose_executor(Problem(model, problem.data), tasks_for(Problem(model, problem.data), [10, 10]), 2)
        assert (choice.executor, choice.vectorised_seconds) == ("processes", None)
        assert reason in choice.reason
    with monkeypatch.context() as patch:
        patch.setattr(vectorised, "_seconds", lambda _: 1.0)
        assert "too long" in choose_executor(problem, tasks, 2).reason
    with monkeypatch.context() as patch:
        wrong = [
            replace(result, update=[2 * array for array in result.update]) for result in one_by_one(problem, tasks)
        ]
        patch.setattr(vectorised, "train_together", lambda *_: wrong)
        choice = choose_executor(problem, tasks, 2)
        assert (choice.executor, choice.vectorised_seconds) == ("processes", None)
        assert "something else" in choice.reason


def test_a_choice_is_made_by_real_measurement() -> None:
    problem = small_problem()
    choice = choose_executor(problem, tasks_for(problem, [15, 15, 15, 15]), 2)
    assert choice.executor in ("processes", "vectorised")
    assert choice.processes_seconds is not None
    assert choice.processes_seconds > 0
