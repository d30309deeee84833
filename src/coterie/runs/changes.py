"""Changes of a run's settings after it began: few are harmless, and the others are refused by name."""

from collections.abc import Iterator, Mapping
from typing import Any

from coterie.errors import ConfigError
from coterie.runs.config import RunConfig

CHANGEABLE = (
    *("rounds", "data.folder", "training.evaluate_every", "training.workers"),
    *("aggregation.threads", "tracking.tensorboard", "tracking.mlflow"),
)
"""Settings that may differ when a run is taken up again: none of them changes what a round that was played would be."""


def check_changes(before: RunConfig, after: RunConfig) -> None:
    """Refuse settings under which rounds would not go on as they began.

    A round that was interrupted after its sum was opened is played again. With another learning rate, say, its updates
    would be others, and what the server learns from the two sums together is more than anybody was promised.
    """
    fixed = [key for key in _differences(before.model_dump(), after.model_dump()) if key not in CHANGEABLE]
    if fixed:
        were = "; ".join(f"{key} was {_at(before, key)!r} and is {_at(after, key)!r}" for key in fixed)
        raise ConfigError(
            f"the run began under other settings: {were}. Put them back, or begin a new run; "
            f"only these may change: {', '.join(CHANGEABLE)}"
        )


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, value in before.items():
        key = f"{path}{name}"
        if isinstance(value, Mapping) and isinstance(after[name], Mapping) and name != "options":
            yield from _differences(value, after[name], f"{key}.")
        elif value != after[name]:
            yield key


def _at(config: RunConfig, key: str) -> object:
    value: object = config
    for part in key.split("."):
        value = getattr(value, part)
    return value
