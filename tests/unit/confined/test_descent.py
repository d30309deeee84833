"""Confined descent, compared with Algorithm 1 of the paper, which updates every model separately."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.arithmetic import FloatArray
from coterie.confined import (
    ConfinedDescent,
    ConstantStep,
    Contribution,
    HistoryCheck,
    IncreaseCheck,
    InverseRootStep,
    NoCheck,
    Offsets,
    Parameters,
    Spread,
    iterate,
)
from coterie.errors import ConfigError, InputError, LocalProtocolError

SHAPES = ((3, 2), (2,))


def names(size: int) -> list[str]:
    return [f"p{number}" for number in range(size)]


def generator(seed: int) -> Callable[[str], np.random.Generator]:
    return lambda name: np.random.default_rng([seed, *name.encode()])


def make_offsets(seed: int = 0, dtype: str = "float64", **settings: object) -> Offsets:
    return Offsets([np.ones(shape, dtype) for shape in SHAPES], generator(seed), **settings)  # type: ignore[arg-type]


class Quadratics:
    """F_l(w) = sum of s (w - centre_l)^2 / 2, over all arrays: easy to differentiate."""

    def __init__(self, participants: Sequence[str], seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.centres = {name: [rng.normal(size=shape) for shape in SHAPES] for name in participants}
        self.curvature = {name: rng.uniform(0.2, 2) for name in participants}

    def loss(self, name: str, model: Parameters) -> float:
        squares = (float(np.sum((w - c) ** 2)) for w, c in zip(model, self.centres[name], strict=True))
        return self.curvature[name] / 2 * sum(squares)

    def gradient(self, name: str, model: Parameters) -> Parameters:
        return [self.curvature[name] * (w - c) for w, c in zip(model, self.centres[name], strict=True)]


def mean(given: Mapping[str, Parameters]) -> Parameters:
    return [np.mean(arrays, axis=0) for arrays in zip(*given.values(), strict=True)]


def flat(model: Sequence[FloatArray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in model])


def algorithm_1(
    offsets: Offsets,
    problem: Quadratics,
    subsets: Sequence[Sequence[str]],
    alpha: Callable[[int], float],
    threshold: float,
    contribution: Contribution,
    rng: np.random.Generator,
) -> tuple[dict[str, np.ndarray], int]:
    """Update every participant's model as Algorithm 1 of the paper does, with its line 12 corrected."""
    models = {name: offsets.of(name) for name in problem.centres}
    refused = 0
    for k, subset in enumerate(subsets, 1):
        given = [contribution.of(problem.gradient(name, models[name]), rng) for name in subset]
        total = [np.sum(arrays, axis=0) for arrays in zip(*given, strict=True)]
        for name, model in models.items():
            moved = [w - alpha(k) / len(subset) * g for w, g in zip(model, total, strict=True)]
            if problem.loss(name, moved) - problem.loss(name, model) <= threshold:
                models[name] = moved
            else:
                refused += 1
    return {name: flat(model) for name, model in models.items()}, refused


@given(
    st.integers(2, 6),
    st.integers(0, 2**32),
    st.sampled_from([0.02, 0.7, 3.0]),
    st.sampled_from([0.0, 0.3, np.inf]),
    st.sampled_from([Contribution(norm=None), Contribution(1.0), Contribution(0.5, sigma=0.2)]),
)
def test_the_displacement_form_is_algorithm_1(
    size: int, seed: int, alpha: float, threshold: float, contribution: Contribution
) -> None:
    problem, offsets = Quadratics(names(size), seed), make_offsets(seed, spread=Spread(0.1, 1.0))
    choose = np.random.default_rng(seed)
    subsets = [names(size)[: choose.integers(1, size + 1)] for _ in range(12)]
    step_size = InverseRootStep(alpha)
    direct, refused = algorithm_1(
        offsets, problem, subsets, step_size, threshold, contribution, np.random.default_rng(seed)
    )
    descent = ConfinedDescent(offsets, names(size), step_size, IncreaseCheck(threshold))
    rng, seen = np.random.default_rng(seed), 0
    for subset in subsets:
        seen += len(iterate(descent, subset, problem.gradient, problem.loss, mean, rng, contribution))
    assert seen == refused
    for name in names(size):
        assert np.abs(flat(descent.confined(name)) - direct[name]).max() < 1e-12


def test_at_a_large_step_some_participants_refuse_and_some_accept() -> None:
    """Thus the comparison above covers both decisions."""
    problem, descent = Quadratics(names(6), 1), ConfinedDescent(make_offsets(1), names(6), ConstantStep(1.5))
    counts = [
        len(iterate(descent, names(6)[:2], problem.gradient, problem.loss, mean, np.random.default_rng(0)))
        for _ in range(10)
    ]
    assert any(0 < count < 6 for count in counts)


def test_without_refusals_distances_never_shrink() -> None:
    problem, offsets = Quadratics(names(3), 0), make_offsets()
    descent = ConfinedDescent(offsets, names(3), ConstantStep(0.1), NoCheck())
    for _ in range(50):
        assert iterate(descent, names(3), problem.gradient, problem.loss, mean, np.random.default_rng(0)) == ()
    apart = flat(descent.confined("p0")) - flat(descent.confined("p1"))
    assert apart == pytest.approx(flat(offsets.of("p0")) - flat(offsets.of("p1")), abs=1e-12)


def test_the_public_displacement_is_a_model() -> None:
    """It has no offset. Here offsets are only noise, so it is better than the participants' models on average."""
    problem, offsets = Quadratics(names(20), 0), make_offsets(spread=Spread(0.5))
    descent = ConfinedDescent(offsets, names(20), ConstantStep(0.3), NoCheck())
    for _ in range(60):
        iterate(descent, names(20), problem.gradient, problem.loss, mean, np.random.default_rng(0))

    def average(model: Parameters) -> float:
        return float(np.mean([problem.loss(name, model) for name in names(20)]))

    public = descent.public_model
    assert np.array_equal(flat(public), flat([1 + u for u in descent.displacement]))
    assert average(public) < np.mean([average(descent.confined(name)) for name in names(20)])


def test_models_keep_the_type_of_the_anchor_and_the_displacement_is_double() -> None:
    descent = ConfinedDescent(make_offsets(dtype="float32"), names(2), ConstantStep(0.5))
    step = descent.propose([np.full(shape, 0.1, np.float32) for shape in SHAPES])
    descent.take(step, {"p0": True, "p1": False})
    assert {array.dtype.name for array in descent.confined("p0") + descent.public_model} == {"float32"}
    assert {array.dtype.name for array in descent.displacement} == {"float64"}


@pytest.mark.parametrize("check", [IncreaseCheck(), HistoryCheck(length=3)])
def test_a_restored_descent_continues_bit_exact(check: IncreaseCheck | HistoryCheck) -> None:
    problem = Quadratics(names(4), 5)
    make = partial(ConfinedDescent, make_offsets(5), names(4), InverseRootStep(1.5), check, 3)
    whole, first, second = make(), make(), make()

    def play(descent: ConfinedDescent, iterations: range) -> None:
        for k in iterations:
            rng = np.random.default_rng([k])
            subset = [name for name in names(4) if name not in descent.excluded][: 1 + k % 4]
            iterate(descent, subset, problem.gradient, problem.loss, mean, rng)

    play(whole, range(12))
    play(first, range(6))
    assert any(key.startswith("taken.") for key in first.state())
    second.restore(first.state())
    play(second, range(6, 12))
    assert second.state().keys() == whole.state().keys()
    assert all(np.array_equal(array, second.state()[key]) for key, array in whole.state().items())


# The loss check within a descent.


def test_a_poisoned_sum_is_refused_and_a_good_one_is_accepted() -> None:
    problem = Quadratics(names(5), 2)
    descent = ConfinedDescent(make_offsets(2), names(5), ConstantStep(0.2))
    good = mean({name: problem.gradient(name, descent.confined(name)) for name in names(5)})
    poisoned = [-10 * array for array in good]
    before = {name: flat(descent.confined(name)) for name in names(5)}

    def play(direction: Parameters) -> tuple[str, ...]:
        return iterate(descent, names(5), problem.gradient, problem.loss, lambda _: direction, np.random.default_rng(0))

    assert play(poisoned) == tuple(names(5))
    assert all(flat(descent.confined(name)) == pytest.approx(model, abs=1e-12) for name, model in before.items())
    assert flat(descent.displacement) != pytest.approx(0)  # the public displacement contains the poison
    assert play(good) == ()


def test_poison_that_is_refused_does_not_change_a_model_however_large_it_is() -> None:
    """The displacement loses all precision, and models of participants that refused the poison lose none."""
    descent = ConfinedDescent(make_offsets(dtype="float32"), names(3), ConstantStep(0.5))
    rng = np.random.default_rng(0)
    good: Parameters = [rng.normal(size=shape) for shape in SHAPES]
    descent.take(descent.propose(good), {"p0": True, "p1": True, "p2": True})
    before = {name: flat(descent.confined(name)) for name in names(3)}
    for size in (1e8, 1e16, 1e24):
        descent.take([np.full(shape, size) for shape in SHAPES], {"p0": False, "p1": False, "p2": True})
    for name in ("p0", "p1"):
        assert flat(descent.confined(name)) == pytest.approx(before[name], rel=1e-6)
    assert np.abs(flat(descent.confined("p2"))).min() > 1e20
    descent.take(descent.propose(good), {"p0": True, "p1": False, "p2": True})
    assert flat(descent.confined("p0")) == pytest.approx(before["p0"] - 0.5 * flat(good), rel=1e-5, abs=1e-6)
    assert flat(descent.confined("p1")) == pytest.approx(before["p1"], rel=1e-6)


def test_a_participant_that_keeps_refusing_is_excluded_while_its_age_exceeds_the_bound() -> None:
    tau = 2
    descent = ConfinedDescent(make_offsets(), names(3), ConstantStep(1.0), tau=tau)
    step = [np.zeros(shape) for shape in SHAPES]
    ages = []
    for _ in range(6):
        ages.append((descent.freshness.age("p2", descent.iteration + 1), descent.excluded))
        descent.take(step, {"p0": True, "p1": True, "p2": False})
    assert ages == [(0, ()), (1, ()), (2, ()), (3, ("p2",)), (4, ("p2",)), (5, ("p2",))]
    descent.take(step, dict.fromkeys(names(3), True))
    assert descent.excluded == ()


@given(st.integers(0, 2**32), st.integers(0, 4))
def test_participants_beyond_the_age_bound_do_not_contribute(seed: int, tau: int) -> None:
    problem, rng = Quadratics(names(4), seed), np.random.default_rng(seed)
    descent = ConfinedDescent(make_offsets(seed), names(4), ConstantStep(2.0), tau=tau)
    for _ in range(12):
        limit = descent.iteration + 1
        asked: list[str] = []

        def gradient(name: str, model: Parameters, asked: list[str] = asked) -> Parameters:
            asked.append(name)
            return problem.gradient(name, model)

        out = set(descent.excluded)
        if out:
            with pytest.raises(LocalProtocolError, match="stale"):
                iterate(descent, names(4), gradient, problem.loss, mean, rng)
        if len(out) == 4:
            return
        ages = {name: descent.freshness.age(name, limit) for name in names(4)}
        fresh = [name for name in names(4) if name not in out]
        iterate(descent, fresh, gradient, problem.loss, mean, rng)
        assert set(asked) == set(names(4)) - out
        assert all(ages[name] <= tau for name in asked)
        assert all(ages[name] > tau for name in out)


@given(st.lists(st.lists(st.booleans(), min_size=8, max_size=8), min_size=1, max_size=5))
def test_participants_with_equal_decisions_share_memory(decisions: list[list[bool]]) -> None:
    """With thousands of participants and few refusals there are few different models."""
    descent = ConfinedDescent(make_offsets(), names(8), ConstantStep(0.1))
    step = [np.ones(array.shape) for array in descent.displacement]
    for verdicts in decisions:
        descent.take(step, dict(zip(names(8), verdicts, strict=True)))
    histories = dict(zip(names(8), zip(*decisions, strict=True), strict=True))
    refused = {name: history for name, history in histories.items() if not all(history)}
    sums = descent._taken
    assert set(sums) == set(refused)
    assert len({id(arrays) for arrays in sums.values()}) <= len(set(refused.values()))
    for name, history in refused.items():
        assert flat(sums[name]) == pytest.approx(sum(history))


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=5), st.integers(0, 2**32))
def test_the_model_that_is_judged_equals_the_accepted_one_bit_for_bit(decisions: list[list[bool]], seed: int) -> None:
    people = names(4)
    descent = ConfinedDescent(make_offsets(seed, "float32"), people, ConstantStep(0.1))
    rng = np.random.default_rng(seed)
    for decided in decisions:
        step = descent.propose([rng.normal(size=shape) for shape in SHAPES])
        verdicts = dict(zip(people, decided, strict=True))
        judged = {name: descent.candidate(name, step) for name in people if verdicts[name]}
        descent.take(step, verdicts)
        for name, model in judged.items():
            assert [array.tobytes() for array in descent.confined(name)] == [array.tobytes() for array in model]


def test_with_a_constant_step_size_a_step_that_all_refuse_is_proposed_forever() -> None:
    """It needs full batches and a constant step size; falling steps end it."""

    def moves(step_size: ConstantStep | InverseRootStep) -> tuple[bool, float]:
        problem, rng = Quadratics(names(3), 0), np.random.default_rng(0)
        descent = ConfinedDescent(make_offsets(), names(3), step_size)
        first = iterate(descent, names(3), problem.gradient, problem.loss, mean, rng)
        assert len(first) == 3
        refused = [iterate(descent, names(3), problem.gradient, problem.loss, mean, rng) for _ in range(100)]
        return any(len(who) < 3 for who in refused), float(np.abs(flat(descent.displacement)).max())

    moved, far = moves(ConstantStep(10.0))
    assert not moved
    assert far > 100  # no model follows the public displacement
    assert moves(InverseRootStep(10.0))[0]


# Errors.


def test_impossible_settings_are_refused() -> None:
    descent = ConfinedDescent(make_offsets(), names(2), ConstantStep(1.0))
    with pytest.raises(InputError, match="not those of the model"):
        descent.propose([np.zeros(3)])
    with pytest.raises(InputError, match="NaN"):
        descent.propose([np.full(shape, np.nan) for shape in SHAPES])
    problem = Quadratics(names(2), 0)
    with pytest.raises(LocalProtocolError, match="no selected participant can be summed"):
        iterate(descent, [], problem.gradient, problem.loss, mean, np.random.default_rng(0))
    with pytest.raises(LocalProtocolError, match="one verdict from every participant"):
        descent.take([np.zeros(shape) for shape in SHAPES], {"p0": True})
    for participants in ([], ["a", "a"]):
        with pytest.raises(ConfigError):
            ConfinedDescent(make_offsets(), participants, ConstantStep(1.0))
    for settings in ({"norm": 0.0}, {"sigma": -1.0}, {"sigma": np.inf}):
        with pytest.raises(ConfigError):
            Contribution(**settings)


def test_contributions_are_clipped_before_noise_is_added() -> None:
    gradient = [np.full((30, 20), 5.0), np.full(7, -5.0)]
    assert np.linalg.norm(flat(Contribution(2.0).of(gradient, np.random.default_rng(0)))) == pytest.approx(2.0)
    noisy = flat(Contribution(2.0, sigma=3.0).of(gradient, np.random.default_rng(0)))
    assert np.linalg.norm(noisy) > 2.0
    assert noisy.std() == pytest.approx(3.0, rel=0.1)
    assert Contribution(norm=None).of(gradient, np.random.default_rng(0))[0] is gradient[0]
