"""The parts of a descent: offsets, step sizes, loss checks and staleness."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.confined import (
    LOSS_CHECKS,
    STEP_SIZES,
    ConstantStep,
    Freshness,
    HistoryCheck,
    IncreaseCheck,
    InverseRootStep,
    NoCheck,
    Offsets,
    PaperStep,
    Spread,
    exceeds_bound_probability,
)
from coterie.errors import ConfigError, InputError, LocalProtocolError

RNG = np.random.default_rng(0)

# Offsets.


def test_an_offset_is_reproducible_and_unique() -> None:
    offsets = Offsets([np.zeros((40, 30)), np.ones(50)], lambda name: np.random.default_rng([*name.encode()]))
    first, again, other = offsets.of("a"), offsets.of("a"), offsets.of("b")
    assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert first[0].std() == pytest.approx(0.1, rel=0.1)  # lambda is a standard deviation
    assert first[1].mean() == pytest.approx(1.0, abs=0.1)  # around the anchor


def test_each_participant_may_choose_its_lambda() -> None:
    anchor = [np.zeros(20_000)]
    offsets = Offsets(anchor, lambda name: np.random.default_rng([*name.encode()]), own={"bold": Spread(2.0)})
    assert offsets.of("bold")[0].std() == pytest.approx(2.0, rel=0.05)
    assert offsets.of("shy")[0].std() == pytest.approx(0.1, rel=0.05)
    scales = [Spread(0.001, 0.1).draw(np.random.default_rng(seed)) for seed in range(200)]
    assert 0.001 <= min(scales) < 0.01
    assert 0.09 < max(scales) <= 0.1
    assert Offsets(anchor, lambda _: np.random.default_rng(0), Spread(0.0)).of("x")[0].tolist() == anchor[0].tolist()


def test_impossible_offsets_are_refused() -> None:
    for least, most in ((-0.1, None), (0.2, 0.1), (math.nan, None), (0.1, math.inf)):
        with pytest.raises(ConfigError):
            Spread(least, most)
    for anchor in ([], [np.zeros(3, int)], [np.array([np.nan])]):
        with pytest.raises(InputError):
            Offsets(anchor, lambda _: np.random.default_rng(0))


# Step sizes.


@given(st.floats(1e-6, 1e3), st.floats(0, 0.99), st.integers(1, 2_000), st.integers(0, 50))
def test_the_papers_falling_steps_begin_at_the_constant_step(
    alpha: float, mu: float, horizon: int, constant: int
) -> None:
    step = PaperStep(alpha, mu, horizon, constant)
    assert {step(k) for k in range(1, constant + 2)} == {alpha}
    falling = [step(k) for k in range(constant + 1, constant + 200)]
    assert all(later < earlier for earlier, later in pairwise(falling))
    assert falling[9] == pytest.approx(alpha * ((1 + mu * horizon) / (10 + mu * horizon)) ** 2)


@given(st.floats(1e-6, 1e3), st.floats(0, 0.99), st.integers(1, 2_000))
def test_the_papers_falling_steps_add_up_to_less_than_two_and_mu_t(alpha: float, mu: float, horizon: int) -> None:
    step = PaperStep(alpha, mu, horizon)
    assert sum(step(k) for k in range(1, 3 * horizon + 1)) < alpha * (2 + mu * horizon)


def test_step_sizes_have_the_expected_values() -> None:
    assert [ConstantStep(0.5)(k) for k in (1, 100)] == [0.5, 0.5]
    assert [InverseRootStep(0.5)(k) for k in (1, 4)] == [0.5, 0.25]
    assert [PaperStep(1.0, 0.5, 4, constant=2)(k) for k in (1, 2, 3, 4, 6)] == [1.0, 1.0, 1.0, 9 / 16, 1 / 4]
    assert PaperStep(2.0, 0.0, 10)(2) == 0.5
    assert "add up to less than" in PaperStep.warning
    assert ConstantStep.warning == InverseRootStep.warning == ""
    assert set(STEP_SIZES) == {"constant", "inverse-root", "paper"}
    for broken in (lambda: ConstantStep(0.0), lambda: InverseRootStep(math.nan), lambda: PaperStep(1.0, 1.0, 5)):
        with pytest.raises(ConfigError):
            broken()


# Checks.


@given(st.floats(-10, 10), st.floats(-10, 10), st.floats(0, 5))
def test_an_increase_above_the_threshold_is_refused(before: float, after: float, threshold: float) -> None:
    verdict, history = IncreaseCheck(threshold).judge((), before, after, RNG)
    assert verdict == (after - before <= threshold)
    assert history == ()


@pytest.mark.parametrize(("before", "after"), [(1.0, math.nan), (math.inf, math.inf), (1.0, math.inf)])
def test_a_step_with_an_invalid_loss_is_never_accepted(before: float, after: float) -> None:
    assert IncreaseCheck().judge((), before, after, RNG)[0] is False


def test_the_authors_rule_compares_with_past_losses() -> None:
    check, history = HistoryCheck(), tuple[float, ...]()
    for k in range(15):  # nothing is refused before the history is full
        accepted, history = check.judge(history, 1.0 + k % 2, math.inf, RNG)
        assert accepted
    mean, deviation = np.mean(history), np.std(history)
    assert check.judge(history, float(mean + deviation) - 1e-9, 99.0, RNG)[0]  # the loss after the step does not matter
    assert not check.judge(history, float(mean + deviation) + 1e-9, 0.0, RNG)[0]
    assert not check.judge(history, math.nan, 0.0, RNG)[0]
    kept = [check.judge(history, 50.0, 0.0, np.random.default_rng(seed))[1][-1] == 50.0 for seed in range(400)]
    assert np.mean(kept) == pytest.approx(49 / 99, abs=0.08)


def test_loss_checks_have_names_and_refuse_impossible_settings() -> None:
    assert {name: type(make()) for name, make in LOSS_CHECKS.items()} == {
        "increase": IncreaseCheck,
        "history": HistoryCheck,
        "none": NoCheck,
    }
    assert NoCheck().judge((), 0.0, math.inf, RNG) == (True, ())
    with pytest.raises(ConfigError):
        IncreaseCheck(math.nan)
    with pytest.raises(ConfigError):
        HistoryCheck(length=1)


# Staleness.


def test_equation_44_gives_another_number_than_the_paper_prints() -> None:
    """The paper prints 1.33e-5."""
    assert f"{exceeds_bound_probability(30, 0.2, 0.2, 30):.4e}" == "4.4751e-04"
    assert exceeds_bound_probability(30, 0.0, 0.2, 30) == 0.0
    assert exceeds_bound_probability(30, 0.9, 0.2, 30) == 1.0  # too few honest participants for a subset
    with pytest.raises(ConfigError):
        exceeds_bound_probability(30, 0.2, 0.0, 30)


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 5))
def test_ages_count_iterations_without_a_step(taken: list[bool], bound: int) -> None:
    freshness = Freshness(["a"], bound)
    for iteration, took in enumerate(taken, 1):
        since = next((back for back, earlier in enumerate(reversed(taken[: iteration - 1])) if earlier), iteration - 1)
        assert freshness.age("a", iteration) == since
        assert freshness.excluded(iteration) == (("a",) if since > bound else ())
        if took:
            freshness.record_step("a", iteration)


def test_freshness_refuses_impossible_ages() -> None:
    freshness = Freshness(["a"])
    freshness.record_step("a", 3)
    with pytest.raises(LocalProtocolError):
        freshness.record_step("a", 2)
    with pytest.raises(LocalProtocolError):
        freshness.record_step("b", 4)
    assert freshness.excluded(1_000) == ()  # no bound
    with pytest.raises(ConfigError):
        Freshness(["a"], -1)
