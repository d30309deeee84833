"""Private SGD: the effect of one example is bounded, the noise is as large as stated, and both are reproducible."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.learning import BatchNormNet, blobs, dealt, same, small_problem, tasks_for

from coterie.errors import ConfigError, LocalProtocolError
from coterie.privacy.bayesian import moments
from coterie.training import flatten
from coterie.training.dp_sgd import PrivateSGD
from coterie.training.executors.processes import InProcess
from coterie.training.local import LocalResult, LocalSGD, LocalTask, Problem
from coterie.training.schedules import Curriculum
from coterie.training.strategies import PrivateDescent, plain_round

ONE_STEP = PrivateSGD(LocalSGD(1.0), steps=1, rate=1.0, clip=0.5, multiplier=1e-12, horizon=1, secret=b"s")


def train(work: PrivateSGD, samples: int = 20, problem: Problem | None = None) -> LocalResult:
    problem = problem or small_problem(dtype=torch.float64)
    (task,) = tasks_for(problem, [samples], work)
    return work(problem, task)


def test_gradients_are_clipped_one_by_one() -> None:
    """Against a loop over examples; all are in the batch, and the noise is negligible."""
    problem = small_problem(dtype=torch.float64)
    module = problem.instance(flatten.read(problem.model))
    gradients = []
    for example in range(20):
        x, y = problem.data.batch(np.array([example]))
        gradient = torch.autograd.grad(problem.losses(module(x), y)[0], list(flatten.parameters(module).values()))
        gradients.append([one.numpy() for one in gradient])
    lengths = [float(np.sqrt(sum(np.square(one).sum() for one in gradient))) for gradient in gradients]
    clip = float(np.median(lengths))  # some are clipped and some are not
    scales = [min(1.0, clip / length) / 20 for length in lengths]
    update = train(replace(ONE_STEP, clip=clip)).update[:-1]
    for position, found in enumerate(update):
        expected = -sum(scale * gradient[position] for scale, gradient in zip(scales, gradients, strict=True))
        np.testing.assert_allclose(found, expected, atol=1e-10)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 19), st.floats(0.01, 10))
def test_one_example_changes_a_step_by_no_more_than_the_clip(left_out: int, clip: float) -> None:
    problem = small_problem(dtype=torch.float64)
    (task,) = tasks_for(problem, [20], replace(ONE_STEP, clip=clip))
    fewer = replace(task, indices=np.delete(task.indices, left_out))
    sums = [
        [array * one.indices.size for array in replace(ONE_STEP, clip=clip)(problem, one).update[:-1]]
        for one in (task, fewer)
    ]
    change = sum(np.square(a - b).sum() for a, b in zip(*sums, strict=True)) ** 0.5
    assert change <= clip * (1 + 1e-9)


def test_the_noise_has_the_stated_deviation() -> None:
    noisy = train(replace(ONE_STEP, multiplier=100.0)).update[0]
    quiet = train(ONE_STEP).update[0]
    deviation = float(np.std((noisy - quiet) * 20))
    assert deviation == pytest.approx(100 * 0.5, rel=0.05)  # 1,280 entries: 5% is 2.5 standard errors


def test_batches_and_noise_depend_on_the_secret_and_nothing_else() -> None:
    work = replace(ONE_STEP, rate=0.4, multiplier=1.0, steps=3)
    assert same(train(work).update, train(work).update)
    assert not same(train(work).update, train(replace(work, secret=b"t")).update)
    assert "secret" not in repr(work)
    with pytest.raises(LocalProtocolError, match="needs a secret"):
        train(replace(work, secret=b""))


def test_an_empty_batch_is_noise_alone_and_costs_as_much_as_the_worst_example() -> None:
    empty = train(replace(ONE_STEP, rate=1e-12, multiplier=1.0))
    assert np.isfinite(empty.update[0]).all()
    assert empty.loss == 0
    assert np.array_equal(empty.update[-1], moments(np.array([1.0]), 1e-12)[:, 0])  # clip / noise = 1


def test_models_that_mix_examples_are_refused() -> None:
    problem = Problem(BatchNormNet(), blobs())
    with pytest.raises(ConfigError, match="mixes examples"):
        train(ONE_STEP, problem=problem)


def test_a_restored_private_descent_continues_bit_exact_with_the_same_account() -> None:
    problem = small_problem()
    curriculum = Curriculum(dealt([20, 25]), LocalSGD(0.1, batch_size=6, momentum=0.5), 3)

    def begin() -> PrivateDescent:
        made = PrivateDescent(problem.model, curriculum, rounds=4, clip=1.0, multiplier=1.5)
        made.trust(b"secret")
        return made

    def play(strategy: PrivateDescent, rounds: range) -> None:
        for number in rounds:
            plain_round(strategy, InProcess(problem), number, strategy.clients)

    whole, begun, resumed = begin(), begin(), begin()
    play(whole, range(1, 5))
    play(begun, range(1, 3))
    resumed.restore({key: array.copy() for key, array in begun.state().items()})
    assert 0 < resumed.epsilon(1e-5) < whole.epsilon(1e-5)
    play(resumed, range(3, 5))
    assert same(list(whole.state().values()), list(resumed.state().values()))
    assert whole.epsilon(1e-5) == resumed.epsilon(1e-5)
    assert whole.bayesian_epsilon(1e-5) == resumed.bayesian_epsilon(1e-5) > begun.bayesian_epsilon(1e-5)


def test_the_task_is_that_of_centralised_training_with_private_steps() -> None:
    problem = small_problem()
    strategy = PrivateDescent(problem.model, Curriculum(dealt([20, 25]), LocalSGD(0.1, 2, 9), 3), 4, 1.0, 1.5)
    task: LocalTask = strategy.task(1, *strategy.clients)
    work = task.work
    assert isinstance(work, PrivateSGD)
    assert (task.indices.size, work.steps, work.rate, work.horizon) == (45, 10, 0.2, 40)
