"""Observers of a run: objects that are called during the run, and that may end it."""

import inspect
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from coterie.errors import ConfigError
from coterie.runs.records.promise import NO_PROMISE, Promise
from coterie.runs.records.record import RoundRecord, Stop
from coterie.runs.records.summary import Summary
from coterie.runs.records.yardstick import ACCURACY, Yardstick
from coterie.runs.sections.common import CommonSettings

MUCH_CLIPPED = 0.01
"""The share of clipped entries above which a run warns."""
_WORSE = 0.1  # warn again when the share has grown by this much since the last warning, or has doubled


class ClippingWatch:
    """Warns when many entries are clipped, and again whenever the share grows much."""

    def __init__(self, clip: float, records: Sequence[RoundRecord] = ()) -> None:
        """Continue after these rounds."""
        self._clip, self._reported = clip, 0.0
        for record in records:
            self.check(record)

    def check(self, record: RoundRecord) -> str | None:
        """Return the warning of this round, if there is one."""
        share = record.clipped
        if share <= MUCH_CLIPPED or share < min(2 * self._reported, self._reported + _WORSE):
            return None
        self._reported = share
        return (
            f"Round {record.round}: {share:.1%} of the entries of updates are clipped at ±{self._clip:g}, so the mean "
            "is not that of the updates. Raise aggregation.clip, or lower training.learning_rate."
        )


@dataclass(frozen=True)
class RunStart:
    """What is known when a run begins or is resumed."""

    config: CommonSettings
    folder: Path
    clients: tuple[str, ...]
    parameters: int
    records: Sequence[RoundRecord] = field(repr=False)
    """The rounds that were played before."""
    yardstick: Yardstick = ACCURACY
    """The yardstick of the models."""
    promise: Promise = NO_PROMISE
    """The promise for any number of rounds."""
    notes: tuple[str, ...] = ()
    """What users should know before the first round."""
    stopped: str = ""
    """Why no further round is played, if an observer ended the run before it was resumed."""


class Observer:
    """Called while a run is played; override the methods you need. Two of them may end the run by a :class:`Stop`."""

    def __init_subclass__(cls) -> None:
        if "played" in vars(cls):
            raise ConfigError(f"{cls.__name__}.played is never called: the method is now after_round")

    def begin(self, start: RunStart) -> Stop | None:
        """Called when a run begins or is resumed; ``start.records`` are the rounds before.

        A rule that depends on past rounds should decide here too, because a crash can happen after a round and before
        the rule's decision about it.
        """

    def step(self, number: int, step: str, done: int, asked: int) -> None:
        """Called in round ``number`` when ``done`` of ``asked`` clients have answered in this step of the protocol."""

    def after_round(self, record: RoundRecord) -> Stop | None:
        """Called when a round is over and on disk; return a :class:`Stop` to end the run here."""

    def end(self, summary: Summary) -> None:
        """Called when the run is over, or was interrupted."""

    def close(self) -> None:
        """Called last, also after an error."""


class ObserverGroup(Observer):
    """Several observers as one: all of them are called, and the first :class:`Stop` counts."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = list(observers)

    def begin(self, start: RunStart) -> Stop | None:
        """Begin all."""
        return _first([observer.begin(start) for observer in self._observers])

    def step(self, number: int, step: str, done: int, asked: int) -> None:
        """Report progress to all."""
        for observer in self._observers:
            observer.step(number, step, done, asked)

    def after_round(self, record: RoundRecord) -> Stop | None:
        """Show the round to all."""
        return _first([observer.after_round(record) for observer in self._observers])

    def end(self, summary: Summary) -> None:
        """End all."""
        for observer in self._observers:
            observer.end(summary)

    def close(self) -> None:
        """Close all, also if some fail."""
        with ExitStack() as stack:
            for observer in self._observers:
                stack.callback(observer.close)


def _first(stops: Iterable[Stop | None]) -> Stop | None:
    return next((stop for stop in stops if stop is not None), None)


class Warner(Observer):
    """Issues the notes of the console as Python warnings, for programs without a console."""

    def __init__(self) -> None:
        self._clipping = ClippingWatch(0.0)

    def begin(self, start: RunStart) -> None:
        """Warn about the notes on the settings."""
        self._clipping = ClippingWatch(start.config.aggregation.clip, start.records)
        for note in start.notes:
            _warn(note)

    def after_round(self, record: RoundRecord) -> None:
        """Warn if many entries are clipped."""
        if warning := self._clipping.check(record):
            _warn(warning)


def _warn(text: str) -> None:
    """Warn about the line outside Coterie that began the run, which is the one that the user can change."""
    frame, level = inspect.currentframe(), 1
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] == "coterie":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)
