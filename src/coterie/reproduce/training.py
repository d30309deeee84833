"""Training runs of experiments: exactly what ``coterie run`` does with the same settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.errors import ConfigError
from coterie.runs.settings.toml import make_config

if TYPE_CHECKING:
    from coterie.runs.engine.run import RunResult
    from coterie.runs.settings.config import RunConfig

RUNS = "runs"
"""The folder for runs among the results."""


def make_run_config(name: str, seed: int, data: Path | None, settings: Mapping[str, Any]) -> RunConfig:
    """Return the settings of a run, keyed like ``"cohort.size"``, with what every run of an experiment has."""
    own = {
        "name": name,
        "seed": seed,
        "data.folder": str(data.absolute()) if data else "",
        # Several runs share the machine; neither number changes a result.
        "training.workers": 0,
        "aggregation.threads": 1,
    }
    return make_config({**settings, **own})


def play_run(config: RunConfig, folder: Path, stop: Callable[[], bool]) -> RunResult | None:
    """Train, or go on training, in a folder; None if it was asked to stop before the end."""
    from coterie.runs.engine.run import TrainingRun
    from coterie.runs.records.record import RoundRecord
    from coterie.runs.report.observers import Observer
    from coterie.runs.settings.config import with_schedule_length
    from coterie.runs.storage.folder import RunFolder

    class Stopper(Observer):
        def after_round(self, record: RoundRecord) -> None:
            if stop() and record.round < config.rounds:
                run.stop()

    if (folder / "config.toml").exists():
        run = TrainingRun.open(RunFolder.open(folder), observers=[Stopper()])
        moved = run.config.data.model_copy(update={"folder": config.data.folder})
        if run.config.model_copy(update={"data": moved}) != with_schedule_length(config):
            raise ConfigError(f"{folder} holds a run with other settings; remove it or give another folder")
    else:
        run = TrainingRun.begin(folder, config, observers=[Stopper()])
    result = run.play()
    return result if result.summary.finished else None


def share_played(folder: Path, rounds: int) -> float:
    """Return which share of its rounds a run has played."""
    metrics = folder / "metrics.jsonl"
    played = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
    return min(1.0, played / rounds)
