"""Late and disconnected participants, compared with the loop of the paper's eq. (12)."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.confined.test_descent import Quadratics, flat, make_offsets, mean, names

from coterie.confined import ConfinedDescent, ConstantStep, IncreaseCheck, LateGradients, NoCheck, iterate
from coterie.errors import ConfigError, LocalProtocolError

SIZE, ALPHA = 5, 0.3
RNG = np.random.default_rng(0)
Event = tuple[tuple[bool, ...], tuple[bool, ...]]
"""Who is late and who is cut off in an iteration."""


def events(iterations: int) -> st.SearchStrategy[list[Event]]:
    flags = st.tuples(*(st.booleans() for _ in range(SIZE - 1)), st.just(False))  # the last one always answers
    return st.lists(st.tuples(flags, flags), min_size=1, max_size=iterations)


def chosen(flags: tuple[bool, ...]) -> list[str]:
    return [name for name, flag in zip(names(SIZE), flags, strict=True) if flag]


def equation_12(
    problem: Quadratics, played: list[Event], bound: int | None, threshold: float
) -> tuple[dict[str, list[np.ndarray]], int, int, int]:
    """Keep the whole history of every model, and sum gradients of w_(k - tau_k) as the paper writes it.

    Return every model's history, how many late gradients were summed, the oldest one's age, and how many were refused.
    """
    offsets = make_offsets(3)
    history = {name: [offsets.of(name)] for name in names(SIZE)}
    waiting: dict[str, int] = {}
    summed = oldest = refused = 0
    cut_before: set[str] = set()
    for k, (late_flags, cut_flags) in enumerate(played):
        cut = set(chosen(cut_flags))
        late = set(chosen(late_flags)) - cut
        present = [name for name in names(SIZE) if name not in late | cut]
        given = []
        for name in present:
            since = waiting.pop(name, k)
            given.append(problem.gradient(name, history[name][since]))
            summed, oldest = summed + (since < k), max(oldest, k - since)
        for name in late | (cut - cut_before):
            waiting.setdefault(name, k)
        cut_before = cut
        direction = [np.mean(arrays, axis=0) for arrays in zip(*given, strict=True)]
        for name in names(SIZE):
            model = history[name][-1]
            moved = [w - ALPHA * g for w, g in zip(model, direction, strict=True)]
            accepted = problem.loss(name, moved) - problem.loss(name, model) <= threshold
            history[name].append(moved if accepted else model)
        if bound is not None:
            old = [name for name, since in waiting.items() if k + 1 - since > bound]
            refused += len(old)
            waiting = {name: since for name, since in waiting.items() if name not in old}
    return {name: [flat(model) for model in models] for name, models in history.items()}, summed, oldest, refused


@given(events(10), st.sampled_from([0, 1, 3, None]), st.sampled_from([0.0, np.inf]), st.integers(0, 2**32))
def test_gradients_of_older_iterates_are_summed_as_in_equation_12(
    played: list[Event], bound: int | None, threshold: float, seed: int
) -> None:
    problem = Quadratics(names(SIZE), seed)
    history, summed, oldest, refused = equation_12(problem, played, bound, threshold)
    descent = ConfinedDescent(make_offsets(3), names(SIZE), ConstantStep(ALPHA), IncreaseCheck(threshold), late=bound)
    cut_since: dict[str, int] = {}
    for k, (late, cut) in enumerate(played):
        play(descent, problem, late, cut)
        cut_since = {name: cut_since.get(name, k) for name in chosen(cut)}
        for name in names(SIZE):
            assert np.abs(flat(descent.confined(name)) - history[name][k + 1]).max() < 1e-12
            seen = history[name][cut_since.get(name, k + 1)]  # a participant that is cut off has not received the step
            assert np.abs(flat(descent.current_model(name)) - seen).max() < 1e-12
    assert (descent.late.summed, descent.late.oldest, descent.late.refused) == (summed, oldest, refused)
    assert bound is None or descent.late.oldest <= bound


def play(descent: ConfinedDescent, problem: Quadratics, late: tuple[bool, ...], cut: tuple[bool, ...]) -> None:
    rng = np.random.default_rng(0)
    away = chosen(cut)
    slow = [name for name in chosen(late) if name not in away]
    iterate(descent, names(SIZE), problem.gradient, problem.loss, mean, rng, late=slow, cut_off=away)


@given(events(8), events(8), st.sampled_from([2, None]))
def test_a_restored_descent_keeps_late_and_cut_off_participants(
    before: list[Event], after: list[Event], bound: int | None
) -> None:
    problem = Quadratics(names(SIZE), 0)
    make = partial(ConfinedDescent, make_offsets(), names(SIZE), ConstantStep(ALPHA), late=bound)
    whole, resumed = make(), make()
    for event in before:
        play(whole, problem, *event)
    resumed.restore(whole.state())
    for event in after:
        play(whole, problem, *event)
        play(resumed, problem, *event)
    assert whole.state().keys() == resumed.state().keys()
    assert all(np.array_equal(array, resumed.state()[key]) for key, array in whole.state().items())


def test_a_state_without_late_gradients_has_no_entries_about_them() -> None:
    problem = Quadratics(names(SIZE), 0)
    descent = ConfinedDescent(make_offsets(), names(SIZE), ConstantStep(ALPHA), late=3)
    iterate(descent, names(SIZE), problem.gradient, problem.loss, mean, RNG)
    assert {key.partition(".")[0] for key in descent.state()} == {"iteration", "last_taken", "displacement"}


@pytest.mark.parametrize(("bound", "kept"), [(0, False), (1, False), (2, False), (3, True), (4, True), (None, True)])
def test_a_gradient_older_than_the_bound_is_discarded_and_a_new_one_computed(bound: int | None, kept: bool) -> None:
    problem = Quadratics(names(SIZE), 0)
    descent = ConfinedDescent(make_offsets(), names(SIZE), ConstantStep(ALPHA), NoCheck(), late=bound)
    iterate(descent, names(SIZE), problem.gradient, problem.loss, mean, RNG, late=["p0"])
    for _ in range(2):
        iterate(descent, names(SIZE)[1:], problem.gradient, problem.loss, mean, RNG)
    assert np.array_equal(flat(descent.contributing_model("p0")), flat(make_offsets().of("p0"))) is kept


def test_impossible_late_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="bound on late gradients"):
        LateGradients(-1)
    descent = ConfinedDescent(make_offsets(), names(2), ConstantStep(1.0), late=1)
    problem = Quadratics(names(2), 0)
    with pytest.raises(LocalProtocolError, match="no selected participant can be summed"):
        iterate(descent, names(2), problem.gradient, problem.loss, mean, RNG, late=["p0"], cut_off=["p1"])
