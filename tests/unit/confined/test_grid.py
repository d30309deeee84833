"""Grids: a vertical split gives the same models, and cached activations give those of the plain descent."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.confined.test_descent import flat, mean

from coterie.arithmetic import FloatArray
from coterie.confined import (
    ConfinedDescent,
    ConstantStep,
    Contribution,
    HistoryCheck,
    IncreaseCheck,
    NoCheck,
    Parameters,
    Spread,
)
from coterie.confined import iterate as play
from coterie.confined.cached_groups import CachedGroups, _row_squares
from coterie.confined.grid import ColumnOffsets, Grid, GridOffsets
from coterie.confined.network import loss_and_gradient, zero_anchor
from coterie.confined.offsets import Offsets
from coterie.confined.vertical import VerticalSum
from coterie.errors import ConfigError, InputError, LocalProtocolError
from coterie.privacy import clip_norm
from coterie.training.data.datasets import load

FEATURES, HIDDEN, CLASSES = 11, 6, 4


def generator(name: str) -> np.random.Generator:
    return np.random.default_rng([*name.encode()])


def examples(rows: int, seed: int = 0, dtype: str = "float64") -> tuple[FloatArray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, FEATURES))
    labels = np.argmax(x @ rng.normal(size=(FEATURES, CLASSES)), axis=1)
    return x.astype(dtype), labels


def make_descent(grid: Grid, alpha: float = 0.5, dtype: str = "float64", **settings: object) -> ConfinedDescent:
    anchor = zero_anchor(FEATURES, HIDDEN, CLASSES, dtype)
    offsets = GridOffsets(anchor, generator, Spread(0.3), grid=grid)
    return ConfinedDescent(offsets, grid.names, ConstantStep(alpha), **settings)  # type: ignore[arg-type]


# The network.


def accuracy(x: FloatArray, labels: np.ndarray, parameters: Sequence[FloatArray]) -> float:
    w1, b1, w2, b2 = parameters
    return float((np.argmax(np.maximum(x @ w1 + b1, 0) @ w2 + b2, axis=1) == labels).mean())


def numbers(labels: np.ndarray) -> np.ndarray:
    """Return numbers to predict instead of labels: the cosine of each label, with several phases."""
    return np.cos(labels[:, None] + np.arange(CLASSES))


@pytest.mark.parametrize("targets", [lambda labels: labels, numbers], ids=["labels", "numbers"])
def test_the_gradient_is_the_derivative_of_the_loss(targets: Callable[[np.ndarray], np.ndarray]) -> None:
    x, labels = examples(30)
    wanted = targets(labels)
    parameters = make_descent(Grid(1)).confined("group-0")
    _, gradient = loss_and_gradient(x, wanted, parameters)
    rng = np.random.default_rng(0)
    for position, array in enumerate(parameters):
        for _ in range(5):
            index = tuple(int(rng.integers(size)) for size in array.shape)

            def loss(change: float, position: int = position, index: tuple[int, ...] = index) -> float:
                moved = [part.copy() for part in parameters]
                moved[position][index] += change
                return loss_and_gradient(x, wanted, moved)[0]

            assert gradient[position][index] == pytest.approx((loss(1e-6) - loss(-1e-6)) / 2e-6, abs=1e-7)


def test_a_loss_is_the_mean_cross_entropy_or_the_mean_squared_error() -> None:
    x, labels = examples(50)
    nothing = zero_anchor(FEATURES, HIDDEN, CLASSES)
    assert loss_and_gradient(x, labels, nothing)[0] == pytest.approx(np.log(CLASSES))
    assert loss_and_gradient(x, numbers(labels), nothing)[0] == pytest.approx(np.mean(numbers(labels) ** 2))


def test_examples_that_do_not_fit_the_network_are_refused() -> None:
    x, labels = examples(10)
    parameters = zero_anchor(FEATURES, HIDDEN, CLASSES)
    for bad in ((x[:, 1:], labels), (x, labels[1:]), (x, labels + CLASSES), (x[:0], labels[:0])):
        with pytest.raises(InputError):
            loss_and_gradient(*bad, parameters)
    with pytest.raises(InputError, match=f"{CLASSES} numbers for each"):  # a column would be broadcast against the rows
        loss_and_gradient(x, numbers(labels)[:, :1], parameters)


def test_cached_groups_predict_numbers_as_the_plain_network_does() -> None:
    grid, (x, labels) = Grid(3), examples(24)
    descent = make_descent(grid, 0.05)
    cached, rng = CachedGroups(x, numbers(labels), grid, descent), np.random.default_rng(0)
    for _ in range(5):
        step = descent.propose(cached.gradient(np.ones(3, bool), Contribution(None), rng))
        before = [descent.confined(name) for name in grid.names]
        parts = zip(x.reshape(3, 8, -1), numbers(labels).reshape(3, 8, -1), before, strict=True)
        expected = np.mean([flat(loss_and_gradient(*part)[1]) for part in parts], axis=0)
        assert np.allclose(flat(step), -0.05 * expected)
        cached.advance(step, rng)
    for part, wanted, name, loss in zip(
        x.reshape(3, 8, -1), numbers(labels).reshape(3, 8, -1), grid.names, cached.losses, strict=True
    ):
        assert loss == pytest.approx(loss_and_gradient(part, wanted, descent.confined(name))[0])


# Grids.


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 200))
def test_columns_are_dealt_out_evenly(groups: int, members: int, features: int) -> None:
    grid = Grid(groups, members)
    assert grid.participants == groups * members
    if features < members:
        with pytest.raises(ConfigError):
            grid.columns(features)
        return
    columns = grid.columns(features)
    sizes = [part.stop - part.start for part in columns]
    assert len(columns) == members
    assert (columns[0].start, columns[-1].stop) == (0, features)
    assert all(first.stop == second.start for first, second in pairwise(columns))
    assert max(sizes) - min(sizes) <= 1


def test_impossible_grids_are_refused() -> None:
    for groups, members in ((0, 1), (1, 0)):
        with pytest.raises(ConfigError):
            Grid(groups, members)
    with pytest.raises(ConfigError, match="take 9"):
        Grid(3).rows_each(10)


def test_the_largest_grid_of_the_paper_divides_mnist_evenly() -> None:
    assert Grid(1000, 112).rows_each(60_000) == 60
    assert {part.stop - part.start for part in Grid(1000, 112).columns(784)} == {7}


def test_with_one_lambda_a_split_group_starts_like_an_unsplit_one() -> None:
    anchor = zero_anchor(FEATURES, HIDDEN, CLASSES, "float64")
    unsplit = Offsets(anchor, generator).of("group-1")
    assert np.array_equal(flat(unsplit), flat(GridOffsets(anchor, generator, grid=Grid(2, 5)).of("group-1")))


def test_every_vertical_member_has_a_lambda_of_its_own() -> None:
    grid = Grid(1, 4)
    offsets = GridOffsets([np.zeros((40, 500)), *zero_anchor(1, 500)[1:]], generator, Spread(0.001, 0.1), grid=grid)
    w1 = offsets.of("group-0")[0]
    deviations = [float(w1[columns].std()) for columns in grid.columns(40)]
    assert len({round(deviation, 4) for deviation in deviations}) == 4
    assert all(0.0009 < deviation < 0.11 for deviation in deviations)


def column_offsets(**settings: object) -> ColumnOffsets:
    anchor = [np.zeros((500, 40)), np.zeros(500), np.zeros((4, 500))]
    columns = Grid(1, 4).columns(40)
    return ColumnOffsets(anchor, generator, columns=columns, **settings)  # type: ignore[arg-type]


def test_members_with_columns_start_like_an_unsplit_group_if_they_have_one_lambda() -> None:
    offsets = column_offsets(spread=Spread(0.2))
    unsplit = Offsets(offsets.anchor, generator, Spread(0.2)).of("group-1")
    assert np.array_equal(flat(unsplit), flat(offsets.of("group-1")))


def test_members_with_columns_have_their_own_lambda() -> None:
    w1, *top = column_offsets(spread=Spread(0.1), members=[Spread(own) for own in (0.0, 0.5, 1.0, 2.0)]).of("group-0")
    found = [float(w1[:, columns].std()) for columns in Grid(1, 4).columns(40)]
    assert found == pytest.approx([0.0, 0.5, 1.0, 2.0], rel=0.1)
    assert float(flat(top).std()) == pytest.approx(0.1, rel=0.1)
    drawn = column_offsets(spread=Spread(0.001, 0.1)).of("group-0")[0]
    assert len({round(float(drawn[:, columns].std()), 4) for columns in Grid(1, 4).columns(40)}) == 4


# A vertical split.


class SplitGroup:
    """One group whose members each have only their columns, and add their parts of the hidden layer."""

    def __init__(self, x: FloatArray, labels: np.ndarray, grid: Grid, *, securely: bool) -> None:
        self.parts = [x[:, columns] for columns in grid.columns(x.shape[1])]
        self.columns, self.labels, self.securely = grid.columns(x.shape[1]), labels, securely

    def run(self, model: Parameters, norm: float | None) -> tuple[float, Parameters]:
        w1, b1, w2, b2 = model
        summands = [part @ w1[columns] for part, columns in zip(self.parts, self.columns, strict=True)]
        z = VerticalSum(len(summands), self.securely, 50.0).add(summands) + b1
        hidden = np.maximum(z, 0)
        logits = hidden @ w2 + b2
        logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        rows = np.arange(len(self.labels))
        errors = np.exp(logs)
        errors[rows, self.labels] -= 1
        errors /= len(self.labels)
        delta = (errors @ w2.T) * (z > 0)
        blocks = [[part.T @ delta] for part in self.parts]
        own = [delta.sum(axis=0), hidden.T @ errors, errors.sum(axis=0)]
        if norm is not None:
            blocks, own = [clip_norm(block, norm) for block in blocks], clip_norm(own, norm)
        return float(-logs[rows, self.labels].mean()), [np.concatenate([block for (block,) in blocks]), *own]


@pytest.mark.parametrize("securely", [False, True])
def test_a_vertical_split_has_the_loss_and_gradient_of_the_unsplit_network(securely: bool) -> None:
    grid, (x, labels) = Grid(1, 4), examples(20)
    model = make_descent(grid).confined("group-0")
    loss, gradient = SplitGroup(x, labels, grid, securely=securely).run(model, None)
    plain_loss, plain = loss_and_gradient(x, labels, model)
    tolerance = 1e-6 if securely else 1e-12
    assert loss == pytest.approx(plain_loss, abs=tolerance)
    assert np.abs(flat(gradient) - flat(plain)).max() < tolerance


# Cached activations, compared with the descent that computes everything again.


def plain_iteration(
    descent: ConfinedDescent, groups: dict[str, SplitGroup], chosen: Sequence[str], norm: float | None
) -> tuple[str, ...]:
    return play(
        descent,
        chosen,
        lambda name, model: groups[name].run(model, norm)[1],
        lambda name, model: groups[name].run(model, None)[0],
        mean,
        np.random.default_rng(0),
    )


@given(
    st.integers(1, 5),
    st.integers(1, FEATURES),
    st.sampled_from([1, 3, 8]),
    st.sampled_from([0.2, 4.0]),
    st.sampled_from([None, 0.05, 1.0]),
    st.integers(0, 2**32),
)
def test_cached_activations_give_the_models_of_the_plain_descent(
    groups: int, members: int, rows: int, alpha: float, norm: float | None, seed: int
) -> None:
    grid, (x, labels) = Grid(groups, members), examples(groups * rows, seed)
    plain, fast = make_descent(grid, alpha), make_descent(grid, alpha)
    cached = CachedGroups(x, labels, grid, fast)
    split = {
        name: SplitGroup(x[rows * at : rows * at + rows], labels[rows * at : rows * at + rows], grid, securely=False)
        for at, name in enumerate(grid.names)
    }
    rng = np.random.default_rng(seed)
    for _ in range(6):
        chosen = rng.random(groups) < 0.7
        chosen[rng.integers(groups)] = True
        names = [name for name, picked in zip(grid.names, chosen, strict=True) if picked]
        expected = plain_iteration(plain, split, names, norm)
        step = fast.propose(cached.gradient(chosen, Contribution(norm), rng))
        assert cached.advance(step, rng) == expected
    for name, loss in zip(grid.names, cached.losses, strict=True):
        assert np.abs(flat(fast.confined(name)) - flat(plain.confined(name))).max() < 1e-10
        assert loss == pytest.approx(split[name].run(plain.confined(name), None)[0], abs=1e-10)


@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from([None, 0.05]), st.integers(0, 2**32))
def test_batches_give_the_models_of_the_plain_descent_on_their_rows(
    groups: int, batches: int, norm: float | None, seed: int
) -> None:
    size = 2
    grid, (x, labels) = Grid(groups), examples(groups * batches * size, seed)
    plain, fast = (make_descent(grid, check=NoCheck()) for _ in range(2))
    parts = CachedGroups(x, labels, grid, fast).split(batches)
    by_group = x.reshape(groups, batches, size, -1), labels.reshape(groups, batches, size)
    rng = np.random.default_rng(0)
    for number in range(2 * batches + 1):
        batch = number % batches
        split = {
            name: SplitGroup(by_group[0][at, batch], by_group[1][at, batch], grid, securely=False)
            for at, name in enumerate(grid.names)
        }
        plain_iteration(plain, split, grid.names, norm)
        parts[batch].catch_up()
        step = fast.propose(parts[batch].gradient(np.ones(groups, bool), Contribution(norm), rng))
        fast.take(step, dict.fromkeys(grid.names, True))
    for name in grid.names:
        assert np.abs(flat(fast.confined(name)) - flat(plain.confined(name))).max() < 1e-10


def test_batches_of_different_sizes_or_after_a_refused_step_are_errors() -> None:
    grid, (x, labels) = Grid(2), examples(20)
    cached = CachedGroups(x, labels, grid, make_descent(grid, 4.0))
    with pytest.raises(ConfigError, match="10 examples of a group cannot be split into 3 batches"):
        cached.split(3)
    first, _ = cached.split(2)
    step = cached.descent.propose(first.gradient(np.ones(2, bool), Contribution(None), np.random.default_rng(0)))
    cached.descent.take(step, {"group-0": True, "group-1": False})
    with pytest.raises(LocalProtocolError, match="a group refused a step"):
        first.catch_up()


def test_at_a_large_step_some_groups_refuse_and_some_accept() -> None:
    """Thus the comparison above covers both decisions."""
    grid, (x, labels) = Grid(5, 2), examples(40, 3)
    cached = CachedGroups(x, labels, grid, make_descent(grid, 4.0))
    rng = np.random.default_rng(0)
    refused = [
        len(cached.advance(cached.descent.propose(cached.gradient(np.ones(5, bool), Contribution(None), rng)), rng))
        for _ in range(10)
    ]
    assert any(0 < count < 5 for count in refused)


@pytest.mark.parametrize("check", [IncreaseCheck(), HistoryCheck(length=3)])
def test_groups_restored_from_a_descent_continue_equally(check: IncreaseCheck | HistoryCheck) -> None:
    grid, (x, labels) = Grid(5, 2), examples(40, 3)
    descents = [make_descent(grid, 2.0, check=check) for _ in range(2)]
    cached = CachedGroups(x, labels, grid, descents[0])

    def advance(groups: CachedGroups, seed: int) -> tuple[str, ...]:
        mean = groups.gradient(np.ones(5, bool), Contribution(None), np.random.default_rng(seed))
        return groups.advance(groups.descent.propose(mean), np.random.default_rng(seed))

    for seed in range(5):
        advance(cached, seed)
    descents[1].restore(descents[0].state())
    again = CachedGroups(x, labels, grid, descents[1])
    assert again.losses == pytest.approx(cached.losses, abs=1e-12)
    for seed in range(5, 9):
        assert advance(again, seed) == advance(cached, seed)
    assert np.abs(flat(descents[0].displacement) - flat(descents[1].displacement)).max() < 1e-12


def test_the_gradient_is_the_same_whether_groups_are_computed_together_or_in_portions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid, (x, labels) = Grid(10, 3), examples(40)
    chosen = np.arange(10) % 3 > 0
    make = partial(CachedGroups, x, labels, grid)
    whole = make(make_descent(grid)).gradient(chosen, Contribution(0.1), np.random.default_rng(0))
    monkeypatch.setattr("coterie.confined.cached_groups.ROWS", 12)
    parts = make(make_descent(grid)).gradient(chosen, Contribution(0.1), np.random.default_rng(0))
    assert np.abs(flat(whole) - flat(parts)).max() < 1e-12


@given(st.integers(1, 12), st.integers(0, 2**32))
def test_row_norms_follow_their_definition(rows: int, seed: int) -> None:
    """For few rows they are computed by the Gram matrix, for many by forming the blocks."""
    rng = np.random.default_rng(seed)
    x, delta = rng.normal(size=(3, rows, FEATURES)), rng.normal(size=(3, rows, HIDDEN))
    expected = [np.square(one.T @ other).sum(axis=1) for one, other in zip(x, delta, strict=True)]
    assert _row_squares(x, delta) == pytest.approx(np.array(expected))


def test_the_noise_in_the_mean_has_the_expected_deviation() -> None:
    grid, (x, labels) = Grid(16, 2), examples(32)
    cached = CachedGroups(x, labels, grid, make_descent(grid))
    rng = np.random.default_rng(0)
    clean, noisy = (flat(cached.gradient(np.ones(16, bool), Contribution(1.0, sigma), rng)) for sigma in (0.0, 8.0))
    assert (noisy - clean).std() == pytest.approx(8.0 / 4, rel=0.2)


def test_everything_is_computed_in_the_type_of_the_data() -> None:
    grid, (x, labels) = Grid(4, 2), examples(20, dtype="float32")
    descent = make_descent(grid, dtype="float32")
    cached = CachedGroups(x, labels, grid, descent)
    rng = np.random.default_rng(0)
    mean = cached.gradient(np.ones(4, bool), Contribution(0.01), rng)
    cached.advance(descent.propose(mean), rng)
    assert {array.dtype.name for array in (*mean, cached._z, cached._w2, cached._errors)} == {"float32"}


def test_groups_that_are_too_stale_may_not_be_chosen() -> None:
    grid, (x, labels) = Grid(3), examples(12)
    descent = make_descent(grid, tau=0)
    cached = CachedGroups(x, labels, grid, descent)
    step = [np.zeros(array.shape) for array in descent.displacement]
    descent.take(step, {"group-0": True, "group-1": False, "group-2": True})
    with pytest.raises(LocalProtocolError, match="group-1"):
        cached.gradient(np.ones(3, bool), Contribution(None), np.random.default_rng(0))
    cached.gradient(np.array([True, False, True]), Contribution(None), np.random.default_rng(0))


def test_digits_are_learnt_and_the_public_model_is_the_better_one() -> None:
    """Pixels from 0 to 1, anchor 0, full batches, lambda = .1."""
    data, grid, rng = load("digits"), Grid(20, 4), np.random.default_rng(0)
    x, test = (part.reshape(len(part), -1).astype(np.float32) for part in (data.train_x, data.test_x))
    offsets = GridOffsets(zero_anchor(64, 32), generator, grid=grid)
    descent = ConfinedDescent(offsets, grid.names, ConstantStep(0.5))
    cached = CachedGroups(x[:1400], data.train_y[:1400].astype(np.int64), grid, descent)
    for _ in range(200):
        cached.advance(descent.propose(cached.gradient(np.ones(20, bool), Contribution(None), rng)), rng)
    labels = data.test_y.astype(np.int64)
    own = [accuracy(test, labels, descent.confined(name)) for name in grid.names]
    assert np.mean(own) > 0.9
    assert accuracy(test, labels, descent.public_model) > np.mean(own)


def test_groups_that_do_not_fit_are_refused() -> None:
    grid, (x, labels) = Grid(4, 2), examples(20)
    with pytest.raises(ConfigError, match="evenly"):
        CachedGroups(x[:18], labels[:18], grid, make_descent(grid))
    with pytest.raises(ConfigError, match="by name"):
        CachedGroups(x, labels, grid, make_descent(Grid(2)))
    cached = CachedGroups(x, labels, grid, make_descent(grid))
    for chosen in (np.zeros(4, bool), np.ones(3, bool)):
        with pytest.raises(ConfigError, match="one at least"):
            cached.gradient(chosen, Contribution(None), np.random.default_rng(0))
