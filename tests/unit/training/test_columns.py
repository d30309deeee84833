"""Groups whose members have different columns: the split changes nothing, and each member sees its own columns only."""

import pickle
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.learning import dealt
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.confined import ConfinedDescent, ConstantStep, Contribution, Offsets, Parameters, Spread
from coterie.confined.cached_groups import CachedGroups
from coterie.confined.grid import Grid, GridOffsets
from coterie.confined.network import zero_anchor
from coterie.confined.vertical import VerticalSum
from coterie.errors import Cancelled, ConfigError, InputError, OverflowRisk
from coterie.runs.engine.updates import canonical
from coterie.training import columns as columns_module
from coterie.training import flatten
from coterie.training.columns import (
    ColumnGroup,
    ColumnSplit,
    GroupGradient,
    GroupLoss,
    KnownSums,
    split_computation,
)
from coterie.training.executors.processes import InProcess
from coterie.training.gradients import FullGradient, MeanLoss
from coterie.training.input_layers import find_input_layer
from coterie.training.local import ArrayData, LocalTask, Problem, squared_error
from coterie.training.models import build
from coterie.training.strategies import Confined, plain_round
from coterie.training.streams import stream


def make_problem(name: str, shape: tuple[int, ...], rows: int = 30, seed: int = 0, double: bool = True) -> Problem:
    rng = np.random.default_rng(seed)
    model = build(name, shape, 3, seed)
    x = rng.normal(size=(rows, *shape))
    return Problem(
        model.double() if double else model,
        ArrayData(x if double else x.astype(np.float32), rng.integers(3, size=rows)),
    )


def make_split(problem: Problem, *ends: int) -> ColumnSplit:
    examples, _ = problem.data.batch(np.arange(2))
    return ColumnSplit(find_input_layer(problem.model, examples), ends)


def task_of(problem: Problem, work: FullGradient | GroupGradient) -> LocalTask:
    return LocalTask("group", 1, 0, flatten.read(problem.model), np.arange(len(problem.data)), work)


def largest_difference(one: Parameters, other: Parameters) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


@st.composite
def splits(draw: st.DrawFn) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """A model, the shape of its input, and the ends of the members' columns."""
    name, shape, columns = draw(
        st.sampled_from(
            [("mlp", (1, 3, 4), 12), ("softmax-regression", (9,), 9), ("fcn", (7,), 7), ("lstm", (5, 6), 6)]
        )
    )
    inner = draw(st.sets(st.integers(1, columns - 1), min_size=1, max_size=columns - 1))
    return name, shape, (0, *sorted(inner), columns)


@settings(deadline=None, max_examples=25)
@given(splits(), st.booleans(), st.integers(0, 2**16))
def test_a_split_changes_nothing(case: tuple[str, tuple[int, ...], tuple[int, ...]], secure: bool, seed: int) -> None:
    name, shape, ends = case
    problem = make_problem(name, shape, seed=seed)
    split, addition = make_split(problem, *ends), VerticalSum(len(ends) - 1, secure)
    whole = FullGradient()(problem, task_of(problem, FullGradient()))
    work = GroupGradient(split, addition)
    apart = work(problem, task_of(problem, work))
    tolerance = 1e-5 if secure else 1e-12
    assert apart.loss == pytest.approx(whole.loss, abs=tolerance)
    assert largest_difference(apart.update, whole.update) < tolerance
    state, rows = flatten.read(problem.model), np.arange(len(problem.data))
    assert GroupLoss(problem, split, addition)(state, rows) == pytest.approx(
        MeanLoss(problem)(state, rows), abs=tolerance
    )


def test_many_sums_give_what_one_sum_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem("mlp", (8,))
    split = make_split(problem, 0, 3, 8)
    work = GroupGradient(split, VerticalSum(2))
    one = work(problem, task_of(problem, work))
    monkeypatch.setattr(columns_module, "NUMBERS", 256 * 7)  # 256 hidden units: seven rows at a time
    many = work(problem, task_of(problem, work))
    assert largest_difference(one.update, many.update) < 1e-12
    assert one.loss == pytest.approx(many.loss)


@dataclass(frozen=True)
class Recorded(VerticalSum):
    """A vertical sum that keeps what the members gave."""

    parts: list[list[FloatArray]] = field(default_factory=list)

    def add(self, parts, entropy=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        self.parts.append([part.copy() for part in parts])
        return super().add(parts, entropy)


def test_a_member_computes_from_its_own_columns_and_weights_alone() -> None:
    """Whatever columns and weights the others have, its part is the same."""
    problem = make_problem("mlp", (8,))
    split = make_split(problem, 0, 3, 8)
    first = Recorded(2)
    whole = GroupGradient(split, first)(problem, task_of(problem, FullGradient()))
    other = make_problem("mlp", (8,))
    assert isinstance(other.data, ArrayData)
    other.data.x[:, 3:] += 1.0
    other.model[1].weight.data[:, 3:] *= -2.0  # type: ignore[index]
    second = Recorded(2)
    GroupGradient(split, second)(other, task_of(other, FullGradient()))
    assert np.array_equal(first.parts[0][0], second.parts[0][0])
    assert not np.array_equal(first.parts[0][1], second.parts[0][1])
    # Nothing else reads the input: with no part at all, all gradients are those of an input of zeros.
    zeros = Problem(problem.model, ArrayData(np.zeros((30, 8)), problem.data.y))  # type: ignore[attr-defined]
    none = GroupGradient(split, VerticalSum(2))(zeros, task_of(zeros, FullGradient()))
    plain = FullGradient()(zeros, task_of(zeros, FullGradient()))
    assert largest_difference(none.update, plain.update) < 1e-12
    assert largest_difference(none.update, whole.update) > 0.01


@given(st.sampled_from([0.01, 0.5, 1e6]), st.integers(0, 2**16))
@settings(deadline=None, max_examples=10)
def test_every_block_is_clipped_by_itself(norm: float, seed: int) -> None:
    problem = make_problem("mlp", (8,))
    split = make_split(problem, 0, 1, 5, 8)
    rng = np.random.default_rng(seed)
    gradient: Parameters = [rng.normal(size=array.shape) for array in flatten.read(problem.model)]
    clipped = split.clip(gradient, norm)
    blocks = [[gradient[0][:, columns]] for columns in split.columns]
    found = [[clipped[0][:, columns]] for columns in split.columns]
    for before, after in [*zip(blocks, found, strict=True), (gradient[1:], clipped[1:])]:
        length = np.sqrt(sum(float(np.square(array).sum()) for array in before))
        factor = min(1.0, norm / length)
        assert largest_difference([factor * array for array in before], after) < 1e-12
    together = np.sqrt(sum(float(np.square(array).sum()) for array in clipped))
    assert together <= norm * np.sqrt(len(blocks) + 1) * (1 + 1e-12)


def test_a_split_must_cover_all_columns() -> None:
    problem = make_problem("mlp", (8,))
    for ends in ((0, 3), (1, 8), (0, 3, 3, 8), (0, 9)):
        with pytest.raises(ConfigError, match="all 8 columns of the first layer, at least one each"):
            make_split(problem, *ends)


# Cached sums.


def test_the_next_gradient_reuses_the_sum_of_the_loss_check() -> None:
    problem = make_problem("mlp", (8,), double=False)
    split, recorded = make_split(problem, 0, 3, 8), Recorded(2)
    computation = split_computation(problem, split, recorded)
    state, rows = flatten.read(problem.model), np.arange(30)
    computation.loss(state, rows)
    assert isinstance(computation.work, GroupGradient)
    known = computation.work(problem, task_of(problem, computation.work))
    assert len(recorded.parts) == 1
    anew = GroupGradient(split, recorded)(problem, task_of(problem, FullGradient()))
    assert len(recorded.parts) == 2
    assert all(one.tobytes() == other.tobytes() for one, other in zip(known.update, anew.update, strict=True))
    computation.loss([array + np.float32(0.1) for array in state], rows)
    computation.loss(state, rows[1:])
    assert len(recorded.parts) == 4


def test_an_iteration_after_refused_steps_makes_one_sum_for_each_group() -> None:
    """It is the sum for the model that is judged, which is the model of the next gradient.

    This holds also for a participant that refused a step before. The first iteration needs two sums for each group.
    """
    problem = make_problem("mlp", (8,), double=False)
    split, recorded = make_split(problem, 0, 3, 8), Recorded(2)
    names = ("first", "second")
    offsets = Offsets(flatten.read(problem.model), lambda name: np.random.default_rng([*name.encode()]))
    descent = ConfinedDescent(offsets, names, ConstantStep(0.1))
    parts = {"first": np.arange(15), "second": np.arange(15, 30)}
    strategy = Confined(problem, parts, descent, 1.0, 0, split_computation(problem, split, recorded))
    descent.take([np.full(array.shape, 1e-3) for array in descent.displacement], {"first": False, "second": True})
    trainer, made = InProcess(problem), []
    for number in range(1, 6):
        before = len(recorded.parts)
        plain_round(strategy, trainer, number, names)
        made.append(len(recorded.parts) - before)
    assert strategy.refused == 0  # every step was taken, also by the participant that had refused one
    assert made == [4, 2, 2, 2, 2]


def test_cached_sums_are_not_part_of_the_work_and_stay_in_their_process() -> None:
    problem = make_problem("mlp", (8,))
    split = make_split(problem, 0, 3, 8)
    used = GroupGradient(split, VerticalSum(2), KnownSums())
    fresh = GroupGradient(split, VerticalSum(2), KnownSums())
    used(problem, task_of(problem, used))
    assert canonical(used) == canonical(fresh)
    assert canonical(used) != canonical(GroupGradient(split, VerticalSum(2, secure=False), KnownSums()))
    assert len(pickle.dumps(used)) == len(pickle.dumps(fresh)) < 2000


def test_old_sums_are_dropped_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "_KNOWN_BYTES", 100)
    known, made = KnownSums(), []

    def find(number: int) -> None:
        known.find(torch.zeros(2), np.array([number]), lambda: made.append(number) or np.zeros(8))  # type: ignore[func-returns-value]

    for number in (1, 1, 2, 1, 3, 3):
        find(number)
    assert made == [1, 2, 1, 3]


def test_sums_are_not_cached_if_examples_change_in_every_pass() -> None:
    class Changing:
        def __len__(self) -> int:
            return 4

        def batch(self, indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.randn(len(indices), 8), torch.zeros(len(indices), dtype=torch.int64)

    problem = Problem(build("mlp", (8,), 3, 0), Changing())
    computation = split_computation(problem, make_split(problem, 0, 3, 8), VerticalSum(2))
    assert isinstance(computation.work, GroupGradient)
    assert computation.work.known is None


def test_values_that_are_too_large_are_refused_or_count_as_an_infinite_loss() -> None:
    problem = make_problem("mlp", (8,))
    split, addition = make_split(problem, 0, 3, 8), VerticalSum(2, bound=1e-3)
    with pytest.raises(OverflowRisk):
        GroupGradient(split, addition)(problem, task_of(problem, FullGradient()))
    assert GroupLoss(problem, split, addition)(flatten.read(problem.model), np.arange(30)) == np.inf


def test_work_can_be_cancelled() -> None:
    problem = make_problem("mlp", (8,))
    work = GroupGradient(make_split(problem, 0, 3, 8), VerticalSum(2))
    with pytest.raises(Cancelled):
        work(problem, task_of(problem, work), lambda: True)


# The implementation in numpy.


class Transposed(Offsets):
    """The starts of the numpy network, as torch has its weights."""

    grid_offsets: GridOffsets

    def of(self, participant: str) -> Parameters:
        w1, b1, w2, b2 = self.grid_offsets.of(participant)
        return [w1.T.copy(), b1, w2.T.copy(), b2]


@pytest.mark.parametrize(("clip", "alpha"), [(1e9, 0.5), (0.05, 0.5), (1e9, 1.5), (0.3, 6.0)])
def test_the_numpy_groups_take_the_steps_of_the_torch_groups(clip: float, alpha: float) -> None:
    """Groups with cached activations and groups of a run take the same steps, and refuse the same ones."""
    grid, features, hidden, each = Grid(3, 4), 10, 8, 12
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(36, features)), rng.integers(3, size=36)

    def generator(name: str) -> np.random.Generator:
        return stream(7, "offset", name)

    fast_offsets = GridOffsets(zero_anchor(features, hidden, 3, "float64"), generator, Spread(0.5), grid=grid)
    fast = CachedGroups(x, y, grid, ConfinedDescent(fast_offsets, grid.names, ConstantStep(alpha)))
    model = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 3)).double()
    problem = Problem(model, ArrayData(x, y))
    offsets = Transposed([np.zeros_like(array) for array in flatten.read(model)], generator)
    object.__setattr__(offsets, "grid_offsets", fast_offsets)
    split = make_split(problem, *(part.start for part in grid.columns(features)), features)
    parts = {name: np.arange(each * at, each * at + each) for at, name in enumerate(grid.names)}
    descent = ConfinedDescent(offsets, grid.names, ConstantStep(alpha))
    computation = split_computation(problem, split, VerticalSum(4, secure=False))
    strategy = Confined(problem, parts, descent, clip, 5, computation)
    refused = 0
    for number in range(1, 9):
        chosen = np.array([position != number % 3 for position in range(3)])
        mean = fast.gradient(chosen, Contribution(clip), rng)
        refused += len(fast.advance(fast.descent.propose(mean), rng))
        names = [name for name, picked in zip(grid.names, chosen, strict=True) if picked]
        plain_round(strategy, InProcess(problem), number, names)
    assert strategy.refused == refused
    assert 0 < refused < 24
    for name in grid.names:
        w1, b1, w2, b2 = fast.descent.confined(name)
        assert largest_difference([w1.T, b1, w2.T, b2], descent.confined(name)) < 1e-9


# ColumnGroup.


def test_a_group_is_the_unsplit_model_on_all_columns() -> None:
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    columns = {"bank": rng.normal(size=(20, 3)), "shop": rng.normal(size=(20, 2)), "rail": rng.normal(size=(20, 1))}
    labels = rng.integers(2, size=20)
    x = np.concatenate(list(columns.values()), axis=1).astype(np.float32)
    problem = Problem(model, ArrayData(x, labels))
    group = ColumnGroup(model, columns, labels)
    state = flatten.read(model)
    expected = FullGradient()(problem, task_of(problem, FullGradient()))
    assert group.members == ("bank", "shop", "rail")
    assert largest_difference(group.gradient(state), expected.update) < 1e-5
    assert group.loss(state) == pytest.approx(expected.loss, abs=1e-5)
    clipped = group.gradient(state, clip=0.01)
    assert largest_difference(clipped, group.split.clip(expected.update, 0.01)) < 1e-6
    assert [array.shape for array in group.zeros()] == [array.shape for array in state]
    assert same_as_before(model, state)


def same_as_before(model: nn.Module, state: Parameters) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(flatten.read(model), state, strict=True))


def test_a_group_of_recurrent_models_predicts_numbers() -> None:
    rng = np.random.default_rng(0)
    model = build("lstm", (6, 5), 1, 0)
    columns = {"weather": rng.normal(size=(9, 6, 3)), "load": torch.randn(9, 6, 2)}
    targets = rng.normal(size=(9, 1))
    group = ColumnGroup(model, columns, targets, addition=VerticalSum(2, bound=50.0))
    x = np.concatenate([np.asarray(array, np.float32) for array in columns.values()], axis=2)
    problem = Problem(model, ArrayData(x, targets.astype(np.float32)), squared_error)
    expected = FullGradient()(problem, task_of(problem, FullGradient()))
    assert largest_difference(group.gradient(flatten.read(model)), expected.update) < 1e-5


def test_a_group_can_have_a_loss_of_its_own() -> None:
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    columns, targets = {"bank": rng.normal(size=(9, 3)), "shop": rng.normal(size=(9, 1))}, rng.normal(size=(9, 1))
    group = ColumnGroup(model, columns, targets, loss=lambda outputs, wanted: (outputs - wanted).abs().mean(1))
    with torch.no_grad():
        outputs = model(torch.from_numpy(np.concatenate(list(columns.values()), axis=1)).float()).numpy()
    assert group.loss(flatten.read(model)) == pytest.approx(np.abs(outputs - targets).mean(), abs=1e-5)


def test_a_group_refuses_inputs_that_do_not_fit() -> None:
    model, rng = nn.Linear(4, 2), np.random.default_rng(0)
    good = {"a": rng.normal(size=(5, 2)), "b": rng.normal(size=(5, 2))}
    with pytest.raises(InputError, match=r"'b' has 4 rows and 'a' has 5 rows"):
        ColumnGroup(model, {**good, "b": rng.normal(size=(4, 2))}, np.zeros(5, int))
    with pytest.raises(InputError, match="5 rows, and there are 6 labels"):
        ColumnGroup(model, good, np.zeros(6, int))
    with pytest.raises(InputError, match="two members or more"):
        ColumnGroup(model, {"a": rng.normal(size=(5, 4))}, np.zeros(5, int))
    with pytest.raises(InputError, match=r"examples x columns, not an array of shape \(5,\)"):
        ColumnGroup(model, {**good, "b": np.zeros(5)}, np.zeros(5, int))
    with pytest.raises(ConfigError, match="is Conv2d"):
        ColumnGroup(nn.Conv2d(1, 2, 1), {"a": np.zeros((5, 1, 2, 2)), "b": np.zeros((5, 1, 2, 2))}, np.zeros(5, int))


def test_a_strategy_with_a_split_continues_bit_for_bit() -> None:
    problem = make_problem("mlp", (8,), rows=55, double=False)
    split = make_split(problem, 0, 2, 5, 8)
    sizes = dealt([20, 10, 25])

    def begin() -> Confined:
        offsets = Offsets(
            [np.zeros_like(array) for array in flatten.read(problem.model)], lambda name: stream(7, "offset", name)
        )
        descent = ConfinedDescent(offsets, list(sizes), ConstantStep(6.0))
        return Confined(problem, sizes, descent, 1.0, 5, split_computation(problem, split, VerticalSum(3)))

    def play(strategy: Confined, rounds: range) -> None:
        for number in rounds:
            plain_round(strategy, InProcess(problem), number, list(sizes))

    whole, begun, resumed = begin(), begin(), begin()
    play(whole, range(1, 9))
    play(begun, range(1, 5))
    resumed.restore({key: np.ascontiguousarray(array) for key, array in begun.state().items()})
    play(resumed, range(5, 9))
    assert whole.refused == resumed.refused > 0
    assert all(whole.state()[key].tobytes() == array.tobytes() for key, array in resumed.state().items())
