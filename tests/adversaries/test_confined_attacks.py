"""Attacks on confined descent: each succeeds with its defence off, and fails with it on."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from coterie.confined import (
    ConfinedDescent,
    ConstantStep,
    IncreaseCheck,
    LossCheck,
    NoCheck,
    Offsets,
    Parameters,
    SharingTerms,
    add_in_process,
    check_honest,
    iterate,
)
from coterie.errors import LocalProtocolError, TooFewHonest

NAMES = [f"p{number}" for number in range(6)]
RNG = np.random.default_rng(0)
CENTRES = {name: RNG.normal(size=5) for name in NAMES}


def gradient(name: str, model: Parameters) -> Parameters:
    return [model[0] - CENTRES[name]]


def loss(name: str, model: Parameters) -> float:
    return float(np.sum((model[0] - CENTRES[name]) ** 2)) / 2


def mean(given: Mapping[str, Parameters]) -> Parameters:
    return [np.mean([arrays[0] for arrays in given.values()], axis=0)]


def make_descent(check: LossCheck | None = None, tau: int | None = None) -> ConfinedDescent:
    offsets = Offsets([np.zeros(5)], lambda name: np.random.default_rng([*name.encode()]))
    return ConfinedDescent(offsets, NAMES, ConstantStep(0.2), check, tau)


# Poison.


def poisoned(given: Mapping[str, Parameters]) -> Parameters:
    """One of six sends ten times the opposite of the others' mean."""
    honest = mean({name: arrays for name, arrays in given.items() if name != "p5"})
    return [(5 * honest[0] - 10 * honest[0]) / 6]


def honest_loss(check: LossCheck) -> tuple[float, float, float]:
    """Return the honest participants' loss before and after poisoned iterations, and the share of steps refused."""
    descent = make_descent(check)

    def average() -> float:
        return float(np.mean([loss(name, descent.confined(name)) for name in NAMES[:5]]))

    before = average()
    refused = [len(iterate(descent, NAMES, gradient, loss, poisoned, RNG)) for _ in range(30)]
    return before, average(), sum(refused) / (30 * len(NAMES))


def test_with_the_loss_check_poison_stops_progress_and_does_no_other_harm() -> None:
    before, ruined, _ = honest_loss(NoCheck())
    assert ruined > 5 * before
    before, kept, refused = honest_loss(IncreaseCheck(0.0))
    assert kept <= before
    assert refused > 0.9  # denial of service is what remains


def test_an_attacker_may_add_the_threshold_to_the_loss_in_every_step() -> None:
    before, after, _ = honest_loss(IncreaseCheck(0.1))
    assert before + 0.1 < after <= before + 30 * 0.1


# One honest member.


def test_colluders_subtract_their_vectors_from_a_sum() -> None:
    vectors = {name: RNG.integers(0, 2**20, 5, np.uint32) for name in NAMES[:4]}
    believing = SharingTerms(b"a session for tests", tuple(vectors), 20, 5)
    known = sum(vectors[name] for name in NAMES[1:4])
    assert ((add_in_process(believing, vectors).total - known) % 2**20 == vectors["p0"]).all()
    with pytest.raises(TooFewHonest):
        SharingTerms(b"a session for tests", tuple(vectors), 20, 5, colluders=3)


# Participants that refuse all steps: their gradients do not change.


def observed(descent: ConfinedDescent, subsets: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
    """Let an attacker poison every step, so that all refuse it; return who is in each sum, and the sums."""
    rows, sums = [], []

    def watch(given: Mapping[str, Parameters]) -> Parameters:
        rows.append([float(name in given) for name in NAMES])
        sums.append(np.sum([arrays[0] for arrays in given.values()], axis=0))
        return [np.full(5, 1e6)]

    for subset in subsets:
        try:
            iterate(descent, subset, gradient, loss, watch, RNG)
        except LocalProtocolError:  # somebody in it is too stale
            continue
    return np.array(rows), np.array(sums)


def recovered(descent: ConfinedDescent, subsets: Sequence[Sequence[str]]) -> int:
    """Count the participants whose own gradient is a combination of the sums."""
    rows, sums = observed(descent, subsets)
    found = 0
    for number, name in enumerate(NAMES):
        unit = np.eye(len(NAMES))[number]
        weights, *_ = np.linalg.lstsq(rows.T, unit, rcond=None)
        if np.allclose(rows.T @ weights, unit):
            assert weights @ sums == pytest.approx(gradient(name, descent.confined(name))[0])
            found += 1
    return found


def random_subsets(count: int) -> list[list[str]]:
    rng = np.random.default_rng(1)
    return [sorted(rng.choice(NAMES, 4, replace=False).tolist()) for _ in range(count)]


def test_random_subsets_of_participants_that_refuse_all_steps_expose_all_of_them() -> None:
    assert recovered(make_descent(), random_subsets(20)) == 6


def test_circles_hide_participants_that_refuse_all_steps() -> None:
    circles = [NAMES[:2], NAMES[2:4], NAMES[4:]]
    rng = np.random.default_rng(1)
    unions = [[*circles[one], *circles[other]] for one, other in (rng.choice(3, 2, replace=False) for _ in range(20))]
    assert recovered(make_descent(), unions) == 0
    assert check_honest(4, 0, circle=2) == 2
    with pytest.raises(TooFewHonest):  # with one colluder, its circle mate is alone
        check_honest(4, 1, circle=2)


def test_the_bound_on_staleness_limits_how_often_a_gradient_is_sent_again() -> None:
    descent = make_descent(tau=2)
    rows, _ = observed(descent, random_subsets(20))
    assert len(rows) == 3
    assert set(descent.excluded) == set(NAMES)
    assert recovered(make_descent(tau=2), random_subsets(20)) == 0
