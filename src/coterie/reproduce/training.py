"""Training runs of experiments: the same as ``coterie run`` with the same settings."""

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
"""The folder of runs in the results."""


def make_run_config(name: str, seed: int, data: Path | None, settings: Mapping[str, Any]) -> RunConfig:
    """Return the settings of a run, with keys like ``"cohort.size"``, and those common to all experiments."""
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
    """Start or resume a training run in a folder; None if it was stopped before the end."""
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
            raise ConfigError(f"{folder} has a run with other settings; remove it or use another folder")
    else:
        run = TrainingRun.begin(folder, config, observers=[Stopper()])
    result = run.play()
    return result if result.summary.finished else None


def share_played(folder: Path, rounds: int) -> float:
    """Return the share of its rounds that a run has played."""
    metrics = folder / "metrics.jsonl"
    played = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
    return min(1.0, played / rounds)
