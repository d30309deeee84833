"""The server's settings: what is decided once for all rounds of a run, and checked before anything is sent."""

import contextlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from coterie.deployment.recipe import STATISTICS, VARYING, Metric, RosterRecipe, declared
from coterie.errors import ConfigError
from coterie.secagg.terms import ThreatMode

T = TypeVar("T")

GRACE = 30.0
"""Seconds for a node that went away to come back; to start one takes five to ten, more on a busy machine."""

LONGEST = 24 * 3600.0
"""The most seconds that a step may take."""


@dataclass(frozen=True, kw_only=True)
class PrivateSettings:
    """The settings of a private strategy; a :class:`ConfigError` names the one that cannot work."""

    privacy: int = 2
    cohort: int | None = None
    minimum: int = 2
    mode: ThreatMode = ThreatMode.ACTIVE_SERVER
    colluders: int | None = None
    deadline: float = 120.0
    grace: float = GRACE
    empty_rounds: int = 3
    clip: float = 1.0
    clips: tuple[tuple[str, float], ...] = ()
    train_metrics: tuple[Metric, ...] = ()
    evaluate_metrics: tuple[Metric, ...] = ()
    weight: str = "num-examples"
    most_examples: int = 10_000
    precision: int = 24
    varying: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_whole("privacy", self.privacy, 1)
        _check_whole("minimum", self.minimum, 2)
        if self.cohort is not None:
            _check_whole("cohort", self.cohort, max(self.privacy, self.minimum))
        if self.colluders is not None:
            _check_whole("colluders", self.colluders, 0)
        _check_whole("empty_rounds", self.empty_rounds, 0)
        _check_whole("most_examples", self.most_examples, 1)
        _check_whole("precision", self.precision, 2)
        if self.most_examples.bit_length() >= self.precision:
            most = (1 << (self.precision - 1)) - 1
            raise ConfigError(f"most_examples is at most {most} with a precision of {self.precision} bits")
        if not _within(self.deadline, 0, LONGEST) or self.deadline == 0:
            raise ConfigError(f"deadline is a number of seconds above 0 and up to {LONGEST:g}, not {self.deadline!r}")
        if not _within(self.grace, 0, LONGEST):
            raise ConfigError(f"grace is a number of seconds from 0 to {LONGEST:g}, not {self.grace!r}")
        for name, clip in [("clip", self.clip), *((f"clips[{name!r}]", clip) for name, clip in self.clips)]:
            if not _within(clip, 1e-30, 1e30):
                raise ConfigError(f"{name} is a number from 1e-30 to 1e30, not {clip!r}")
        if not _is_text(self.weight):
            raise ConfigError(f"{self.weight!r} cannot be the name of what replies are weighted by")
        _ = self.recipe

    @property
    def recipe(self) -> RosterRecipe:
        """How contributions are made, which a roster fixes for good."""
        return RosterRecipe(
            weight=self.weight,
            most_weight=self.most_examples,
            precision=self.precision,
            clip=self.clip,
            clips=self.clips + STATISTICS,
            train_metrics=self.train_metrics,
            evaluate_metrics=self.evaluate_metrics,
            varying=self.varying + VARYING,
        )


def threat_mode(mode: str) -> ThreatMode:
    """Return the mode of this name."""
    try:
        return ThreatMode(mode)
    except ValueError:
        raise ConfigError(f"mode is one of {', '.join(ThreatMode)}, not {mode!r}") from None


def checked_clips(clips: Mapping[str, float] | None) -> tuple[tuple[str, float], ...]:
    """Return the ranges of some arrays by patterns of their names, in the order in which they are tried."""
    listed = tuple(_mapping("clips", clips).items())
    for name, _ in listed:
        if not _is_text(name):
            raise ConfigError(f"clips: {name!r} cannot be a pattern of names")
    return listed


def checked_metrics(setting: str, ranges: Mapping[str, tuple[float, float]] | None, weight: str) -> tuple[Metric, ...]:
    """Return the metrics that a setting declares, none of them called as one that is always there."""
    listed = _mapping(setting, ranges)
    for name, bounds in listed.items():
        if not _is_text(name) or name == weight:
            raise ConfigError(f"{setting}: {name!r} cannot be the name of a metric that is averaged")
        if not _is_range(bounds):
            raise ConfigError(
                f"{setting}: {name!r} needs a range (low, high) of numbers with others in between, not {bounds!r}"
            )
    return declared(listed)


def checked_varying(names: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of configurations that may differ between sessions."""
    listed = (names,) if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if isinstance(names, str) or not all(map(_is_text, listed)):
        raise ConfigError(f"varying is a collection of names of configuration keys, not {names!r}")
    return listed


def _mapping(setting: str, given: Mapping[str, T] | None) -> Mapping[str, T]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"{setting} is a mapping of names, not {given!r}")
    return given or {}


def _is_text(name: object) -> bool:
    """Tell whether this is text that can be sent."""
    if isinstance(name, str):
        with contextlib.suppress(UnicodeEncodeError):
            name.encode()
            return True
    return False


def _check_whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} is a whole number of at least {least}, not {value!r}")


def _within(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _is_range(bounds: object) -> bool:
    """Tell whether these are two numbers that a metric can lie between."""
    most = sys.float_info.max
    if not isinstance(bounds, tuple | list) or len(bounds) != 2 or not all(_within(end, -most, most) for end in bounds):
        return False
    return Metric("", *map(float, bounds)).usable
