import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.support.learning import BatchNormNet, blobs, check_alike, dealt, same, small_problem, tasks_for
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.errors import ConfigError, InputError, LocalProtocolError
from coterie.training import flatten
from coterie.training.executors.processes import InProcess
from coterie.training.local import ArrayData, LocalSGD, Problem
from coterie.training.models import build
from coterie.training.schedules import Cosine, Curriculum, Inverse, Milestones, Schedule
from coterie.training.strategies import (
    POOLED,
    FedAvg,
    LocalOnly,
    Strategy,
    Weighting,
    centralised,
    plain_round,
    weighted_mean,
)
from coterie.training.streams import stream

SIZES = [20, 10, 25]


def softmax_problem() -> Problem:
    data = blobs(60)
    model = build("softmax-regression", (5,), 3, seed=1).double()
    return Problem(model, ArrayData(data.x.astype(np.float64), data.y))


def softmax_gradient(
    weight: FloatArray, bias: FloatArray, x: FloatArray, y: npt.NDArray[np.int64]
) -> tuple[FloatArray, FloatArray]:
    scores = x @ weight.T + bias
    wrong = np.exp(scores - scores.max(1, keepdims=True))
    wrong /= wrong.sum(1, keepdims=True)
    wrong[np.arange(y.size), y] -= 1
    return wrong.T @ x / y.size, wrong.mean(0)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_federated_averaging_against_a_loop_written_by_hand(weighting: Weighting) -> None:
    problem = softmax_problem()
    assert isinstance(problem.data, ArrayData)
    work = LocalSGD(0.2, epochs=2, batch_size=7)
    schedule = Milestones((2,), 0.5)
    strategy = FedAvg(problem.model, Curriculum(dealt(SIZES), work, 11, schedule), weighting=weighting)
    weight, bias = (array.copy() for array in flatten.read(problem.model))
    for number in range(1, 5):
        plain_round(strategy, InProcess(problem), number, strategy.clients)

        sums, total = [np.zeros_like(weight), np.zeros_like(bias)], 0
        for client, indices in dealt(SIZES).items():
            own = [weight.copy(), bias.copy()]
            rng = stream(11, "data order", number - 1, client)
            for _ in range(2):
                order = rng.permutation(indices)
                for start in range(0, order.size, 7):
                    batch = order[start : start + 7]
                    slopes = softmax_gradient(own[0], own[1], problem.data.x[batch], problem.data.y[batch])
                    rate = 0.2 if number <= 2 else 0.1
                    own = [array - rate * slope for array, slope in zip(own, slopes, strict=True)]
            share = indices.size if weighting == "samples" else 1
            sums = [a + share * b for a, b in zip(sums, own, strict=True)]
            total += share
        weight, bias = (a / total for a in sums)

    learnt = strategy.models()["global"]
    np.testing.assert_allclose(learnt[0], weight, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(learnt[1], bias, rtol=1e-12, atol=1e-14)
    assert strategy.weight("c2") == (25 if weighting == "samples" else 1)


@given(st.floats(0.1, 3), st.floats(0, 0.95), st.integers(1, 20))
def test_server_momentum_against_its_closed_form(rate: float, momentum: float, rounds: int) -> None:
    # With the same Δ every round, v_t = Δ (1 - β^t) / (1 - β) for t = 1, 2, ..., and w is the sum of them.
    problem = softmax_problem()
    curriculum = Curriculum(dealt(SIZES), LocalSGD(0.1), 0)
    strategy = FedAvg(problem.model, curriculum, learning_rate=rate, momentum=momentum)
    start = flatten.read(problem.model)
    step = [np.ones_like(array) for array in start]
    for number in range(1, rounds + 1):
        strategy.apply(number, step)
    travelled = rate * sum((1 - momentum**t) / (1 - momentum) for t in range(1, rounds + 1))
    for array, before in zip(strategy.models()["global"], start, strict=True):
        np.testing.assert_allclose(array, before + travelled, rtol=1e-9)


def test_statistics_become_the_mean_whatever_the_server_does_to_parameters() -> None:
    net = BatchNormNet()
    strategy = FedAvg(net, Curriculum(dealt([5]), LocalSGD(0.1), 0), learning_rate=10, momentum=0.9)
    start = flatten.read(net)
    for number in (1, 2):
        strategy.apply(number, [np.ones_like(array) for array in start])
    moved = flatten.difference(strategy.models()["global"], start)
    assert [float(array.mean().round(3)) for array in moved] == [29.0] * 5 + [2.0, 2.0]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Milestones(), lambda t: 1),
        (Milestones((400, 800), 0.4), lambda t: 1 if t < 400 else 0.4 if t < 800 else 0.16),
        (Inverse(0.5), lambda t: 2 / (2 + t)),
        (Cosine(100, 0.2), lambda t: 0.6 + 0.4 * math.cos(math.pi * min(t, 99) / 100)),
    ],
)
def test_schedules_against_their_closed_forms(schedule: Schedule, expected: Callable[[int], float]) -> None:
    for before in (0, 1, 50, 99, 100, 399, 400, 799, 800, 5000):
        assert schedule(before + 1) == pytest.approx(expected(before), rel=1e-12)
    curriculum = Curriculum(dealt([5]), LocalSGD(0.3, momentum=0.5), 0, schedule)
    work = curriculum.task(101, "c0", []).work
    assert isinstance(work, LocalSGD)
    assert work.learning_rate == pytest.approx(0.3 * expected(100))
    assert replace(work, learning_rate=0.3) == curriculum.work


ARRAYS = arrays.arrays(np.float32, (2, 3), elements=st.floats(-1000, 1000, width=32))


@given(st.lists(st.tuples(ARRAYS, st.integers(1, 10**6)), min_size=1, max_size=6))
def test_the_weighted_mean_against_numpy(given: list[tuple[FloatArray, int]]) -> None:
    contributions = [[array, array[0, 0]] for array, _ in given]
    mean = weighted_mean(contributions, [weight for _, weight in given])
    expected = np.average([array.astype(np.float64) for array, _ in given], axis=0, weights=[w for _, w in given])
    assert [array.dtype for array in mean] == [np.float32, np.float32]
    assert [array.shape for array in mean] == [(2, 3), ()]
    np.testing.assert_allclose(mean[0], expected, rtol=1e-6, atol=1e-6)


def test_impossible_means_are_refused() -> None:
    one = [np.zeros(2), np.zeros(3)]
    for contributions, weights in (([], []), ([one], []), ([one, one], [1, 0])):
        with pytest.raises(InputError, match="at least one contribution"):
            weighted_mean(contributions, weights)
    with pytest.raises(InputError, match="number or shapes differ"):
        weighted_mean([one, one[:1]], [1, 1])


def strategies(problem: Problem) -> dict[str, Callable[[], Strategy]]:
    curriculum = Curriculum(dealt(SIZES), LocalSGD(0.1, batch_size=6), 3, Inverse(0.1))
    return {
        "averaging": lambda: FedAvg(problem.model, curriculum, momentum=0.5, learning_rate=0.7, weighting="samples"),
        "centralised": lambda: centralised(problem.model, curriculum),
        "local only": lambda: LocalOnly(problem.model, curriculum),
    }


@pytest.mark.parametrize("name", ["averaging", "centralised", "local only"])
def test_a_restored_strategy_continues_bit_for_bit(name: str) -> None:
    problem = small_problem()
    build_strategy, trainer = strategies(problem)[name], InProcess(problem)
    whole, begun, resumed = build_strategy(), build_strategy(), build_strategy()
    for number in range(1, 5):
        plain_round(whole, trainer, number, whole.clients)
    for number in range(1, 3):
        plain_round(begun, trainer, number, begun.clients)
    resumed.restore({key: array.copy() for key, array in begun.state().items()})
    for number in range(3, 5):
        plain_round(resumed, trainer, number, resumed.clients)
    check_alike(whole, resumed)
    assert not same(list(whole.state().values()), list(begun.state().values()))


@pytest.mark.parametrize("name", ["averaging", "local only"])
def test_checkpoints_of_another_model_are_refused(name: str) -> None:
    problem = small_problem()
    strategy = strategies(problem)[name]()
    state = strategy.state()
    first = next(iter(state))
    for wrong in ({}, state | {first: np.zeros(1)}, {key: state[key] for key in state if key != first}):
        with pytest.raises(InputError, match="number or shapes differ"):
            strategy.restore(wrong)


def test_full_batches_of_equal_clients_are_gradient_descent_on_all_examples() -> None:
    problem = softmax_problem()
    curriculum = Curriculum(dealt([20, 20, 20]), LocalSGD(0.3, batch_size=60), 0)
    averaged, pooled = FedAvg(problem.model, curriculum), centralised(problem.model, curriculum)
    for number in range(1, 6):
        plain_round(averaged, InProcess(problem), number, averaged.clients)
        (result,) = plain_round(pooled, InProcess(problem), number, [POOLED])
        assert result.samples == 60
    for one, other in zip(averaged.models()["global"], pooled.models()["global"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_the_centralised_baseline_against_torch_optim() -> None:
    problem = softmax_problem()
    overlapping = {"a": np.arange(40), "b": np.arange(20, 60)}
    work = LocalSGD(0.1, batch_size=9, weight_decay=0.01, shuffle=False)
    strategy = centralised(problem.model, Curriculum(overlapping, work, 0))
    model = problem.instance(flatten.read(problem.model))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    for number in (1, 2):
        plain_round(strategy, InProcess(problem), number, strategy.clients)
        for start in range(0, 60, 9):
            x, y = problem.data.batch(np.arange(start, min(60, start + 9)))
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    for one, other in zip(strategy.models()["global"], flatten.read(model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_clients_that_train_alone_learn_nothing_from_each_other() -> None:
    problem = small_problem()
    curriculum = Curriculum(dealt(SIZES), LocalSGD(0.1, batch_size=8), 5)
    together, trainer = LocalOnly(problem.model, curriculum), InProcess(problem)
    plain_round(together, trainer, 1, together.clients)
    plain_round(together, trainer, 2, ["c0"])
    for client, rounds in ("c0", 2), ("c1", 1):
        alone = LocalOnly(problem.model, curriculum)
        for number in range(1, rounds + 1):
            plain_round(alone, trainer, number, [client])
        assert same(alone.models()[client], together.models()[client])
    first = tasks_for(problem, SIZES, curriculum.work)[1]
    trained = flatten.moved(first.state, first.work(problem, first, lambda: False).update)
    assert same(trained, together.models()["c1"])
    assert together.weight("c0") == 1
    with pytest.raises(LocalProtocolError, match="nothing to aggregate"):
        together.apply(1, trained)


def test_a_round_without_result_leaves_the_model_and_moves_the_schedule() -> None:
    problem = small_problem()
    strategy = FedAvg(problem.model, Curriculum(dealt(SIZES), LocalSGD(0.1), 0, Milestones((3,))))
    assert plain_round(strategy, InProcess(problem), 1, []) == []
    assert same(strategy.models()["global"], flatten.read(problem.model))
    assert strategy.task(4, "c0").work == LocalSGD(0.1 * 0.1)


def test_a_mean_does_not_change_what_was_sent_out_before() -> None:
    problem = small_problem()
    strategy = FedAvg(problem.model, Curriculum(dealt(SIZES), LocalSGD(0.1), 0))
    task = strategy.task(1, "c0")
    before = [array.copy() for array in task.state]
    strategy.apply(1, [np.ones_like(array) for array in before])
    assert same(task.state, before)
    with pytest.raises(InputError, match="number or shapes differ"):
        strategy.apply(2, before[:1])


def test_impossible_settings_are_refused() -> None:
    problem = small_problem()
    work = LocalSGD(0.1)
    curriculum = Curriculum(dealt(SIZES), work, 0)
    with pytest.raises(ConfigError, match="learning rate"):
        FedAvg(problem.model, curriculum, learning_rate=0)
    with pytest.raises(ConfigError, match="momentum"):
        FedAvg(problem.model, curriculum, momentum=1)
    with pytest.raises(ConfigError, match="unknown weighting 'size'; known are uniform, samples"):
        FedAvg(problem.model, curriculum, weighting="size")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="without examples: c1, c3"):
        Curriculum(dealt([3, 0, 2, 0]), work, 0)
    with pytest.raises(ConfigError, match="there are no clients"):
        Curriculum({}, work, 0)
    for wrong in (lambda: Milestones((1,), 0), lambda: Inverse(-1), lambda: Cosine(0), lambda: Cosine(5, 2)):
        with pytest.raises(ConfigError):
            wrong()
