"""A run whose settings name an epsilon has enough noise for it, and slightly less would not be enough."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import ConfigError
from coterie.runs.engine.build import BuiltRun, build_run
from coterie.runs.engine.calibration import build_calibrated
from coterie.runs.engine.federation import find_federation
from coterie.runs.engine.notes import noise_notes
from coterie.runs.settings.toml import make_config

NOISY: dict[str, Any] = {"noise.kind": "skellam", "cohort.minimum": 4}


def calibrated(**changes: object) -> BuiltRun:
    config = make_config(NOISY | {key.replace("__", "."): value for key, value in changes.items()})
    return build_calibrated(config, find_federation(config))


@settings(max_examples=8, deadline=None)
@given(
    st.floats(0.5, 40),
    st.integers(1, 1_000),
    st.sampled_from(["skellam", "discrete-gaussian"]),
    st.sampled_from([2, 4, 8]),
    st.sampled_from(["complete", "harary"]),
)
def test_the_noise_is_enough_and_a_thousandth_less_is_not(
    epsilon: float, rounds: int, kind: str, minimum: int, topology: str
) -> None:
    built = calibrated(
        noise__kind=kind,
        noise__epsilon=epsilon,
        rounds=rounds,
        cohort__minimum=minimum,
        aggregation__topology=topology,
    )
    spent = built.epsilon(rounds)
    assert spent is not None
    assert spent <= epsilon
    noise = built.config.noise.model_copy(update={"multiplier": built.config.noise.multiplier * 0.999})
    less = build_run(built.config.model_copy(update={"noise": noise}), built.federation).epsilon(rounds)
    assert less is not None
    assert less > epsilon


def test_more_rounds_need_more_noise() -> None:
    ten, twenty = calibrated(noise__epsilon=8.0, rounds=10), calibrated(noise__epsilon=8.0, rounds=20)
    assert twenty.config.noise.multiplier > ten.config.noise.multiplier
    beyond = ten.epsilon(20)
    assert beyond is not None
    assert beyond > 8


def test_recorded_settings_begin_the_same_run_and_others_are_refused() -> None:
    built = calibrated(noise__epsilon=8.0, rounds=10)
    again = calibrated(noise__epsilon=8.0, rounds=10, noise__multiplier=built.config.noise.multiplier)
    assert again.config.noise == built.config.noise
    with pytest.raises(ConfigError, match=r"noise.multiplier: is 1, and noise.epsilon = 8 needs .* give one of the"):
        calibrated(noise__epsilon=8.0, rounds=10, noise__multiplier=1.0)
    with pytest.raises(ConfigError, match=r"noise.multiplier"):
        calibrated(noise__epsilon=8.0, rounds=11, noise__multiplier=built.config.noise.multiplier)


def test_an_epsilon_needs_noise_and_no_other_amount_of_it() -> None:
    with pytest.raises(ConfigError, match=r"noise.epsilon: needs noise.kind, which is none"):
        make_config({"noise.epsilon": 8})
    with pytest.raises(ConfigError, match=r"noise.epsilon: decides how much noise there is.*noise.sigma"):
        make_config({"noise.epsilon": 8, "noise.kind": "skellam", "noise.sigma": 0.1})


def test_an_epsilon_out_of_reach_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^noise.epsilon: .* take a smaller epsilon"):
        calibrated(noise__epsilon=1e30)


def test_the_introduction_names_the_multiplier_and_its_epsilon() -> None:
    built = calibrated(noise__epsilon=8.0, rounds=10)
    (note,) = noise_notes(built)
    assert f"noise.multiplier = {built.config.noise.multiplier:.5g}" in note
    assert f"epsilon = {built.epsilon(10):.5g} at delta = 1e-05 for each client after 10 rounds" in note
    assert noise_notes(calibrated()) == ()
