"""Changes of settings after a run began: a few are allowed, all others are refused."""

from collections.abc import Mapping
from operator import attrgetter

from coterie.errors import ConfigError
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.names import setting_names

CHANGEABLE = (
    *("rounds", "data.folder", "training.evaluate_every", "training.workers"),
    *("aggregation.threads", "tracking.tensorboard", "tracking.mlflow", "tracking.sums"),
    *("stopping.patience", "stopping.metric", "stopping.min_improvement"),
)
"""Settings that may change when a run is resumed."""
NOISY = {"rounds", "data.folder"}
"""Those that may not change with noise: rounds, because each spends more of the epsilon, and the folder of the data.

Other data give other updates. A round repeated with other updates has other noise, and enough repetitions would average
the noise away.
"""


def check_changes(before: RunConfig, after: RunConfig) -> None:
    """Refuse settings under which a resumed run would differ from one that was never interrupted.

    A round that was interrupted after its sum was opened is repeated. With another learning rate, for example, its
    updates would differ, and the two sums together would reveal more than was promised.
    """
    if changes := forbidden_changes(before, after):
        raise ConfigError(
            f"the run began under other settings: {changes}. Put them back, or begin a new run; "
            f"only these may change: {', '.join(_changeable(before))}"
        )


def forbidden_changes(before: RunConfig, after: RunConfig) -> str:
    """Return the settings that differ although they may not change; empty if there are none."""
    allowed = _changeable(before)
    values = {key: (attrgetter(key)(before), attrgetter(key)(after)) for key in setting_names() if key not in allowed}
    return "; ".join(f"{key} was {old!r} and is {new!r}" for key, (old, new) in values.items() if old != new)


def check_fingerprints(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Refuse data or a model other than at the beginning of the run; older checkpoints do not record them."""
    for what, known in before.items():
        if after.get(what) != known:
            raise ConfigError(f"the {what} differs from that of the run; resume it with the {what} that it began with")


def _changeable(config: RunConfig) -> list[str]:
    """Return the settings of this run that may change."""
    fixed = (NOISY if config.noise.kind != "none" else set()) | set(config.algorithm.fixed)
    return [key for key in CHANGEABLE if key not in fixed]
