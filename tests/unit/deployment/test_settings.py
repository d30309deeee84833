"""Settings of a private deployment as they come from a file."""

import json
from typing import Any

import pytest

from coterie.deployment.settings import PrivateSettings, read_metrics, read_settings
from coterie.errors import ConfigError
from coterie.secagg.terms import ThreatMode


def test_settings_from_json_are_those_from_python() -> None:
    given = {
        "privacy": 3,
        "mode": "honest-but-curious",
        "clips": {"*.running_var": 10.0},
        "train_metrics": {"loss": [0, 5]},
        "varying": ["rate"],
        "colluders": None,
    }
    expected = PrivateSettings(
        privacy=3,
        mode=ThreatMode.HONEST_BUT_CURIOUS,
        clips=(("*.running_var", 10.0),),
        train_metrics=read_metrics("train_metrics", {"loss": (0, 5)}, "steps"),
        varying=("rate",),
        weight="steps",
    )
    assert read_settings(json.loads(json.dumps(given)), "steps") == expected
    assert read_settings({}, "num-examples") == PrivateSettings()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"secrecy": 2}, "secrecy: no such setting; there are clip, "),
        ({"weight": "mine"}, "weight: no such setting"),
        ({"confined": {}}, "confined: no such setting"),
        ({"privacy": 0}, "privacy"),
        ({"mode": "paranoid"}, "mode is one of"),
        ({"train_metrics": {"loss": [5, 0]}}, "needs a range"),
        ({"train_metrics": {"steps": [0, 5]}}, "cannot be the name"),
        ({"varying": "rate"}, "varying is a collection"),
        ({"clips": [1.0]}, "clips is a mapping"),
    ],
)
def test_the_error_names_a_setting_that_cannot_work(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_settings(given, "steps")
