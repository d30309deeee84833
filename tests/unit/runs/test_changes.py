"""A run continues under the settings it began with. Only listed settings may change."""

import pytest

from coterie.errors import ConfigError
from coterie.runs.settings.changes import CHANGEABLE, check_changes, check_fingerprints
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import load_config

OTHERS = {
    "seed": "1",
    "training.learning_rate": "0.2",
    "training.schedule.kind": "constant",
    "cohort.privacy": "4",
    "noise.multiplier": "2.0",
    "data.options": "{test_share = 0.3}",
    "faults.steps": '["mask"]',
    "confined.lambdas": '{"client-01" = 0.2}',
    "confined.late_bound": "3",
}
ALLOWED = {
    "rounds": "7",
    "data.folder": "elsewhere",
    "training.evaluate_every": "3",
    "training.workers": "1",
    "aggregation.threads": "1",
    "tracking.tensorboard": "true",
    "tracking.mlflow": "true",
    "tracking.sums": "true",
    "stopping.patience": "5",
    "stopping.metric": "train_loss",
    "stopping.min_improvement": "0.01",
}


@pytest.mark.parametrize(("key", "value"), OTHERS.items())
def test_settings_that_decide_a_round_may_not_change(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"other settings: {key} was .* and is "):
        check_changes(RunConfig(), load_config(None, [f"{key}={value}"]))


def test_changeable_settings_may_change() -> None:
    assert set(ALLOWED) == set(CHANGEABLE)
    check_changes(RunConfig(), load_config(None, [f"{key}={value}" for key, value in ALLOWED.items()]))


def test_all_changed_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"seed was 0 and is 1; training.learning_rate was 0.1 and is 0.2"):
        check_changes(RunConfig(), load_config(None, ["seed=1", "training.learning_rate=0.2", "rounds=3"]))


@pytest.mark.parametrize("key", ["rounds", "data.folder"])
def test_with_noise_settings_that_affect_updates_may_not_change(key: str) -> None:
    """See :data:`coterie.runs.settings.changes.NOISY` for the reasons."""
    noisy = load_config(None, ["noise.kind=skellam"])
    with pytest.raises(ConfigError, match=f"{key} was"):
        check_changes(noisy, load_config(None, ["noise.kind=skellam", f"{key}={ALLOWED[key]}"]))


def test_other_data_or_another_model_is_refused_by_name() -> None:
    began = {"data": "a", "model": "b"}
    check_fingerprints(began, began)
    check_fingerprints({}, began)  # a checkpoint of an older version
    for what in began:
        with pytest.raises(ConfigError, match=f"the {what} differs from that of the run"):
            check_fingerprints(began, began | {what: "c"})
