"""Confined descent as a strategy, against the loop of the paper that moves every model by itself."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.learning import BatchNormNet, blobs, check_alike, dealt, same, small_problem

from coterie.confined import ConfinedDescent, ConstantStep, HistoryCheck, IncreaseCheck, LossCheck, Offsets, Spread
from coterie.errors import ConfigError, InputError
from coterie.training import flatten
from coterie.training.executors.processes import InProcess
from coterie.training.flatten import ModelArrays
from coterie.training.gradients import FullGradient, MeanLoss
from coterie.training.local import LocalTask, Problem
from coterie.training.strategies import Confined, plain_round
from coterie.training.strategies.base import StrategyState
from coterie.training.streams import stream

SIZES = [20, 10, 25]


def begin(problem: Problem, check: LossCheck | None = None, alpha: float = 0.8, clip: float = 1.0) -> Confined:
    anchor = [np.zeros_like(array) for array in flatten.read(problem.model)]
    offsets = Offsets(anchor, lambda name: stream(7, "offset", name), Spread(0.1))
    parts = dealt(SIZES)
    return Confined(problem, parts, ConfinedDescent(offsets, list(parts), ConstantStep(alpha), check), clip, 5)


def play(problem: Problem, strategy: Confined, rounds: range) -> None:
    for number in rounds:
        chosen = [name for position, name in enumerate(strategy.clients) if position != number % 3]
        plain_round(strategy, InProcess(problem, together=True), number, chosen)


def direct_loop(problem: Problem, alpha: float, clip: float, threshold: float, rounds: int) -> dict[str, ModelArrays]:
    """Algorithm 1 of the paper, model by model."""
    parts, loss_of = dealt(SIZES), MeanLoss(problem)
    zeros = [np.zeros_like(array) for array in flatten.read(problem.model)]
    models: dict[str, ModelArrays] = {}
    for name in parts:
        rng = stream(7, "offset", name)
        models[name] = [array + 0.1 * rng.standard_normal(array.shape) for array in zeros]
    for number in range(1, rounds + 1):
        gradients = []
        for position, name in enumerate(parts):
            if position == number % 3:
                continue
            module = problem.instance(models[name])
            x, y = problem.data.batch(parts[name])
            loss = problem.losses(module(x), y).mean()
            found = [one.numpy() for one in torch.autograd.grad(loss, list(flatten.parameters(module).values()))]
            length = np.sqrt(sum(np.square(one).sum() for one in found))
            gradients.append([one / max(1.0, length / clip) for one in found])
        step = [-alpha * np.mean(one, axis=0) for one in zip(*gradients, strict=True)]
        for name in parts:
            candidate: ModelArrays = [array + change for array, change in zip(models[name], step, strict=True)]
            before, after = (loss_of(model, parts[name]) for model in (models[name], candidate))
            if after - before <= threshold:
                models[name] = candidate
    return models


@settings(deadline=None, max_examples=8)
@given(st.floats(0.1, 4), st.sampled_from([0.3, 1.0, 100.0]), st.sampled_from([-0.02, 0.0, 1e9]))
def test_models_equal_those_of_the_papers_loop(alpha: float, clip: float, threshold: float) -> None:
    problem = small_problem(dtype=torch.float64)
    strategy = begin(problem, IncreaseCheck(threshold), alpha, clip)
    play(problem, strategy, range(1, 7))
    for name, model in direct_loop(problem, alpha, clip, threshold, 6).items():
        for one, other in zip(strategy.models()[name], model, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def test_without_refusals_models_keep_their_distances() -> None:
    problem = small_problem(dtype=torch.float64)
    strategy = begin(problem, IncreaseCheck(1e9))
    before = strategy.models()
    play(problem, strategy, range(1, 5))
    after = strategy.models()
    assert strategy.refused == 0
    for one, other in (("c0", "c1"), ("c1", "c2")):
        for a, b, c, d in zip(before[one], before[other], after[one], after[other], strict=True):
            np.testing.assert_allclose(a - b, c - d, atol=1e-12)
    assert not same(before["displacement"], after["displacement"])


@pytest.mark.parametrize("check", [IncreaseCheck(), HistoryCheck(2)])
def test_a_restored_state_continues_bit_for_bit(check: LossCheck) -> None:
    problem = small_problem()
    whole, begun, resumed = (begin(problem, check, alpha=4.0) for _ in range(3))
    play(problem, whole, range(1, 9))
    play(problem, begun, range(1, 5))
    # As in a checkpoint, where an array without a dimension becomes one with a single entry.
    resumed.restore({key: np.ascontiguousarray(array) for key, array in begun.state().items()})
    play(problem, resumed, range(5, 9))
    assert whole.refused == resumed.refused > 0
    check_alike(whole, resumed)


def test_a_state_of_another_model_or_with_missing_or_invalid_arrays_is_refused() -> None:
    """A checkpoint may come from somebody else."""
    strategy = begin(small_problem())
    state = strategy.state()
    states: list[StrategyState] = [
        *({key: array for key, array in state.items() if key != missing} for missing in state),
        {key: np.zeros((2, 2)) for key in state},
        *({**state, key: np.full_like(state[key], np.nan)} for key in ("iteration", "last_taken", "refused_so_far")),
        {**state, "iteration": np.array([np.inf])},
    ]
    for wrong in states:
        with pytest.raises(InputError, match="not one of confined descent with these clients"):
            begin(small_problem()).restore(wrong)


def test_a_step_that_all_participants_refuse_still_changes_the_displacement() -> None:
    problem = small_problem()
    strategy = begin(problem, alpha=0.1)
    before = strategy.models()
    poison = [
        -50 * array
        for array in strategy.contribution(strategy.task(1, "c0").work(problem, strategy.task(1, "c0"), lambda: False))
    ]
    strategy.apply(1, poison)
    assert strategy.refused == 3
    assert all(
        np.allclose(a, b, atol=1e-6)
        for name in strategy.clients
        for a, b in zip(before[name], strategy.models()[name], strict=True)
    )
    assert not same(before["displacement"], strategy.models()["displacement"])


def test_gradients_do_not_depend_on_how_examples_are_cut_into_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_problem(dtype=torch.float64)
    task = LocalTask("c", 1, 0, flatten.read(problem.model), np.arange(50), FullGradient())
    whole = FullGradient()(problem, task)
    loss = MeanLoss(problem)(task.state, task.indices)
    monkeypatch.setattr("coterie.training.gradients._BATCH", 7)
    cut = FullGradient()(problem, task)
    assert whole.loss == pytest.approx(cut.loss) == pytest.approx(loss)
    for one, other in zip(whole.update, cut.update, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_contributions_are_clipped_and_keep_their_type() -> None:
    problem = small_problem()
    strategy = begin(problem, clip=0.01)
    task = strategy.task(1, "c0")
    contribution = strategy.contribution(task.work(problem, task, lambda: False))
    assert np.sqrt(sum(np.square(array).sum() for array in contribution)) == pytest.approx(0.01, rel=1e-5)
    assert {array.dtype for array in contribution} == {np.dtype(np.float32)}
    with pytest.raises(InputError, match="number or shapes differ"):
        strategy.apply(1, contribution[1:])


def test_models_that_cannot_be_confined_are_refused() -> None:
    with pytest.raises(ConfigError, match="must not have statistics"):
        begin(Problem(BatchNormNet(), blobs()))
    problem = small_problem()
    descent = begin(problem).descent
    with pytest.raises(ConfigError, match="cannot be called displacement"):
        Confined(problem, {"displacement": np.arange(3)}, descent, 1.0, 0)
