from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.learning import BatchNormNet, blobs, read_on_demand, same, small_problem, tasks_for
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from coterie.errors import Cancelled, ConfigError, InputError
from coterie.training import flatten
from coterie.training.evaluate import evaluate, predict
from coterie.training.executors.vectorised import choose_executor, train_together
from coterie.training.local import (
    ArrayData,
    LocalSGD,
    LocalTask,
    Problem,
    cross_entropy,
    one_thread,
    squared_error,
)
from coterie.training.streams import stream, torch_seed


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("shuffle", [False, True])
def test_local_sgd_does_what_torch_optim_does(momentum: float, weight_decay: float, shuffle: bool) -> None:
    problem = small_problem(samples=30)
    work = LocalSGD(0.05, epochs=3, batch_size=8, momentum=momentum, weight_decay=weight_decay, shuffle=shuffle)
    (task,) = tasks_for(problem, [21], work)
    model = problem.instance(task.state)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum, weight_decay=weight_decay)
    rng = task.stream("data order")
    losses = []
    for _ in range(3):
        order = rng.permutation(21) if shuffle else np.arange(21)
        for part in (order[:8], order[8:16], order[16:]):
            x, y = problem.data.batch(part)
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            losses.append(loss.item() * len(part))
    result = work(problem, task)
    expected = flatten.difference(flatten.read(model), task.state)
    for array, other in zip(result.update, expected, strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-5, atol=1e-7)
    assert result.loss == pytest.approx(sum(losses) / 63, rel=1e-6)
    assert (result.client, result.round, result.samples) == ("c0", 1, 21)
    assert result.seconds > 0


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3), st.booleans())
def test_every_epoch_goes_through_all_examples_once(samples: int, batch: int, epochs: int, shuffle: bool) -> None:
    work = LocalSGD(0.1, epochs=epochs, batch_size=batch, shuffle=shuffle)
    indices = np.arange(100, 100 + samples)
    batches = list(work.batches(LocalTask("a", 0, 0, [], indices, work)))
    assert len(batches) == work.steps(samples)
    assert {part.size for part in batches} <= {batch, samples % batch}
    each = np.concatenate(batches).reshape(epochs, samples)
    assert (np.sort(each, axis=1) == indices).all()
    assert shuffle or (each == indices).all()


def test_the_order_depends_on_seed_round_and_client_alone() -> None:
    work = LocalSGD(0.1, epochs=2, batch_size=20)

    def order(client: str = "a", number: int = 1, seed: int = 0) -> list[list[int]]:
        task = LocalTask(client, number, seed, [], np.arange(20), work)
        return [part.tolist() for part in work.batches(task)]

    assert order() == order()
    assert order()[0] != order()[1]
    different = [order(), order(client="b"), order(number=2), order(seed=1)]
    assert len({str(one) for one in different}) == 4


@given(st.integers(1, 2**40), st.text(max_size=5), st.integers(0, 2**40))
def test_streams_count_rounds_from_0_as_in_recorded_results(number: int, client: str, seed: int) -> None:
    task = LocalTask(client, number, seed, [], np.arange(2), LocalSGD(0.1))
    assert task.stream("x").random() == stream(seed, "x", number - 1, client).random()
    with task.torch_randomness():
        assert torch.initial_seed() == torch_seed(seed, "torch", number - 1, client)


def test_training_changes_neither_the_model_nor_global_state() -> None:
    problem = small_problem()
    before = flatten.read(problem.model)
    (task,) = tasks_for(problem, [20])
    global_state = torch.random.get_rng_state()
    first, second = task.work(problem, task, lambda: False), task.work(problem, task, lambda: False)
    assert same(first.update, second.update)
    assert same(flatten.read(problem.model), before)
    assert same(task.state, before)
    assert torch.equal(torch.random.get_rng_state(), global_state)


class Noisy(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(5) + index, index % 3


def test_dropout_and_random_transforms_depend_on_the_task_alone() -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    problem = Problem(model, read_on_demand(Noisy(), 12))
    (task,) = tasks_for(problem, [12])
    torch.manual_seed(0)
    first = task.work(problem, task, lambda: False).update
    torch.manual_seed(1)
    assert same(task.work(problem, task, lambda: False).update, first)
    later = replace(task, round=2)
    assert not same(later.work(problem, later, lambda: False).update, first)


def test_statistics_are_updated_and_the_counter_starts_anew() -> None:
    net = BatchNormNet()
    net.norm.momentum = None  # the running mean is then over all batches counted
    problem = Problem(net, blobs())
    (task,) = tasks_for(problem, [16], LocalSGD(0.1, batch_size=8, shuffle=False))
    first, second = task.work(problem, task, lambda: False), task.work(problem, task, lambda: False)
    assert same(first.update, second.update)
    assert len(first.update) == 7
    assert np.abs(first.update[5]).min() > 0
    with torch.no_grad():
        x, _ = problem.data.batch(np.arange(8))
        start = net.first(x).mean(0)
    one_batch = replace(task, indices=np.arange(8))
    np.testing.assert_allclose(one_batch.work(problem, one_batch, lambda: False).update[5], start, atol=1e-6)


def test_an_unused_parameter_does_not_change() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(5, 3), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)  # type: ignore[no-any-return]

    problem = Problem(Spare(), blobs())
    (task,) = tasks_for(problem, [10])
    update = task.work(problem, task, lambda: False).update
    assert [bool(np.abs(array).max() > 0) for array in update] == [True, True, False, False]


def test_training_stops_on_request() -> None:
    problem = small_problem()
    asked = []

    def stop() -> bool:
        asked.append(True)
        return len(asked) > 2

    (task,) = tasks_for(problem, [40])
    with pytest.raises(Cancelled, match="c0"):
        task.work(problem, task, stop)
    assert len(asked) == 3


def test_array_and_torch_data_are_the_same_examples() -> None:
    arrays = blobs(10)
    pairs = read_on_demand(TensorDataset(torch.from_numpy(arrays.x), torch.from_numpy(arrays.y)), 10)
    chosen = np.array([3, 1, 3])
    assert len(arrays) == len(pairs) == 10
    for one, other in zip(arrays.batch(chosen), pairs.batch(chosen), strict=True):
        assert torch.equal(one, other)
    frozen = arrays.x.copy()
    frozen.flags.writeable = False
    assert torch.equal(ArrayData(frozen, arrays.y).batch(chosen)[0], arrays.batch(chosen)[0])
    with pytest.raises(InputError, match="10 inputs and 9 targets"):
        ArrayData(arrays.x, arrays.y[:9])


def test_losses_are_one_number_for_each_example() -> None:
    outputs, labels = torch.tensor([[0.0, 0.0], [100.0, 0.0]]), torch.tensor([1, 0])
    assert cross_entropy(outputs, labels).tolist() == pytest.approx([np.log(2), 0])
    assert squared_error(outputs, torch.tensor([[0.0, 2.0], [100.0, 0.0]])).tolist() == [2, 0]
    with pytest.raises(InputError, match="differ in shape"):
        squared_error(outputs, torch.zeros(2))
    several = replace(small_problem(), loss=lambda given, _: given)
    (task,) = tasks_for(several, [10])
    with pytest.raises(InputError, match=r"reduction='none'.*not shape \(8, 3\).*losses.flatten\(1\).mean\(1\)"):
        task.work(several, task, lambda: False)


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, targets: cross_entropy(outputs, targets)[:, None],
        lambda outputs, targets: cross_entropy(outputs, targets)[:, None, None],
        nn.functional.cross_entropy,
    ],
)
def test_losses_in_columns_and_mean_losses_train_as_losses_of_each_example_do(loss: Any) -> None:  # noqa: ANN401
    problem = small_problem(dtype=torch.float64)
    expected, found = (
        task.work(given, task, lambda: False)
        for given in (problem, replace(problem, loss=loss))
        for task in tasks_for(given, [25])
    )
    assert found.loss == pytest.approx(expected.loss)
    assert all(np.allclose(one, other, atol=1e-14) for one, other in zip(found.update, expected.update, strict=True))
    scores = [
        evaluate(given, flatten.read(problem.model), problem.data, 7)
        for given in (problem, replace(problem, loss=loss))
    ]
    assert scores[0].loss == pytest.approx(scores[1].loss)


def test_a_mean_loss_is_not_vectorised() -> None:
    """Short batches are padded there, and the mean would count the padding."""
    averaging = replace(small_problem(), loss=nn.functional.cross_entropy)
    with pytest.raises(ConfigError, match="one number for a batch cannot be vectorised"):
        train_together(averaging, tasks_for(averaging, [10, 20]))
    assert choose_executor(averaging, tasks_for(averaging, [10, 20]), 0).executor == "processes"


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3))
def test_drop_last_leaves_out_what_fills_no_batch(samples: int, batch: int, epochs: int) -> None:
    work = LocalSGD(0.1, epochs=epochs, batch_size=batch, drop_last=True)
    batches = list(work.batches(LocalTask("a", 0, 0, [], np.arange(samples), work)))
    assert len(batches) == work.steps(samples)
    if samples < batch:  # its only batch
        assert [part.size for part in batches] == [samples] * epochs
    else:
        assert [part.size for part in batches] == [batch] * (samples // batch * epochs)
    for start in range(0, len(batches), len(batches) // epochs):
        epoch = np.concatenate(batches[start : start + len(batches) // epochs])
        assert np.unique(epoch).size == epoch.size == work.used(samples)


def test_dropped_examples_count_in_no_executor() -> None:
    problem = small_problem(dtype=torch.float64)
    tasks = tasks_for(problem, [21, 13], LocalSGD(0.1, 2, 8, drop_last=True))
    for alone, together in zip((task.work(problem, task, lambda: False) for task in tasks),
                               train_together(problem, tasks), strict=True):  # fmt: skip
        assert together.loss == pytest.approx(alone.loss)
        assert all(np.allclose(one, other) for one, other in zip(alone.update, together.update, strict=True))


@pytest.mark.parametrize(
    "settings",
    [
        {"learning_rate": -1},
        {"learning_rate": float("nan")},
        {"learning_rate": float("inf")},
        {"learning_rate": 1e39},
        {"epochs": 0},
        {"batch_size": 0},
        {"momentum": 1},
        {"momentum": -0.1},
        {"weight_decay": -1},
        {"weight_decay": 1e39},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LocalSGD(**{"learning_rate": 0.1, **settings})


def test_impossible_problems_are_refused() -> None:
    with pytest.raises(ConfigError, match="no parameters"):
        Problem(nn.Flatten(), blobs())
    problem = small_problem()
    (task,) = tasks_for(problem, [0])
    with pytest.raises(InputError, match="'c0' has no examples"):
        task.work(problem, task, lambda: False)


def test_one_thread_is_temporary() -> None:
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_evaluation_against_a_direct_computation() -> None:
    problem = Problem(BatchNormNet(), blobs())
    state = flatten.read(problem.model)
    score = evaluate(problem, state, problem.data, batch_size=7)
    x, y = problem.data.batch(np.arange(60))
    with torch.no_grad():
        outputs = problem.model.eval()(x)
    assert score.samples == 60
    assert score.accuracy == (outputs.argmax(1) == y).sum().item() / 60
    assert score.loss == pytest.approx(nn.functional.cross_entropy(outputs, y).item(), rel=1e-6)


def test_an_evaluation_uses_one_thread() -> None:
    seen: list[int] = []

    def counting(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return cross_entropy(outputs, y)

    problem = replace(small_problem(), loss=counting)
    torch.set_num_threads(2)
    try:
        evaluate(problem, flatten.read(problem.model), blobs(4), batch_size=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert seen == [1, 1]


def test_errors_of_a_regression_are_also_given_in_their_unit() -> None:
    data = ArrayData(np.zeros((3, 2), np.float32), np.array([[1], [-2], [3]], np.float32))
    problem, zero = (
        Problem(nn.Linear(2, 1), data, squared_error),
        [np.zeros((1, 2), np.float32), np.zeros(1, np.float32)],
    )
    score = evaluate(problem, zero, data, batch_size=2, scale=np.array([10.0, 1.0, 100.0]))
    assert score.error == pytest.approx((10 + 2 + 300) / 3)
    assert predict(problem, zero, data, batch_size=2).tolist() == [[0], [0], [0]]


def test_a_regression_has_no_accuracy() -> None:
    data = ArrayData(np.zeros((9, 2), np.float32), np.full((9, 1), 3, np.float32))
    problem = Problem(nn.Linear(2, 1), data, squared_error)
    score = evaluate(problem, [np.zeros((1, 2), np.float32), np.ones(1, np.float32)], data)
    assert (score.loss, score.accuracy) == (4, None)
    with pytest.raises(InputError, match="no examples"):
        evaluate(problem, flatten.read(problem.model), ArrayData(np.zeros((0, 2)), np.zeros((0, 1))))


def test_training_learns() -> None:
    problem = small_problem()
    (task,) = tasks_for(problem, [60], LocalSGD(0.1, epochs=5, batch_size=10))
    before = evaluate(problem, task.state, problem.data)
    after = evaluate(problem, flatten.moved(task.state, task.work(problem, task, lambda: False).update), problem.data)
    assert after.loss < before.loss
    assert after.accuracy is not None
    assert after.accuracy > 0.9
