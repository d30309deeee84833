"""The noise of a run whose settings name an epsilon: computed before the first round, and never changed afterwards."""

import math

from coterie.errors import ConfigError
from coterie.privacy import NoisyQuantizer, Release
from coterie.privacy.calibration import least_noise
from coterie.privacy.noise import LEAST_VARIANCE, MOST_VARIANCE
from coterie.runs.engine.build import BuiltRun, build_run
from coterie.runs.engine.federation import Federation
from coterie.runs.engine.protection import multiplied_noise
from coterie.runs.settings.config import RunConfig

_INSIDE = 1 + 1e-9  # keeps the search within the variances that noise can have
_SAME = 1e-6  # relative difference below which a recorded multiplier counts as equal to one computed again


def build_calibrated(config: RunConfig, federation: Federation) -> BuiltRun:
    """Build a new run. If the settings give noise.epsilon, choose the smallest noise.multiplier that meets it.

    Settings with both an epsilon and another multiplier are refused. The recorded settings of a run have both, and they
    agree.
    """
    built = build_run(config, federation)
    noise = config.noise
    if not noise.epsilon:
        return built
    multiplier = solved_multiplier(built)
    if "multiplier" in noise.model_fields_set and not math.isclose(multiplier, noise.multiplier, rel_tol=_SAME):
        raise ConfigError(
            f"noise.multiplier: is {noise.multiplier:g}, and noise.epsilon = {noise.epsilon:g} needs {multiplier:.6g} "
            "in this run; give one of the two, and delete the other"
        )
    solved = noise.model_copy(update={"multiplier": multiplier})
    return build_run(config.model_copy(update={"noise": solved}), federation)


def solved_multiplier(built: BuiltRun) -> float:
    """Return the smallest noise.multiplier with which all rounds of this run together spend at most noise.epsilon."""
    noise, rounds = built.config.noise, built.config.rounds
    codecs = [protection.codec for protection in built.protections]
    noisy = [codec for codec in codecs if isinstance(codec, NoisyQuantizer)]
    if not noisy:
        raise ConfigError("noise.epsilon: no sum of this run has noise, so no epsilon can be promised; set it to 0")

    def spent(multiplier: float) -> float:
        releases = [
            Release(multiplied_noise(noise, multiplier, codec.quantizer, codec.noise.least), codec.sensitivity)
            for codec in noisy
        ]
        found = built.epsilon_of(releases, rounds)
        return math.inf if found is None else found

    units = [math.sqrt(codec.noise.least) * codec.quantizer.step / noise.clip_norm for codec in noisy]
    low, high = max(units) * math.sqrt(LEAST_VARIANCE) * _INSIDE, min(units) * math.sqrt(MOST_VARIANCE) / _INSIDE
    try:
        return least_noise(spent, noise.epsilon, low, high)
    except ConfigError as error:
        raise ConfigError(f"noise.epsilon: {error}") from None
