"""Training from Python: the loop of ``coterie run`` with one's own model and data."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError
from coterie.experiments.config import OWN, RunConfig
from coterie.experiments.config_file import make_config
from coterie.experiments.materials import make_materials
from coterie.experiments.observers import Observer
from coterie.experiments.run import RunResult, TrainingRun
from coterie.experiments.run_folder import RunFolder
from coterie.training.datasets import Dataset, from_torch
from coterie.training.local import Loss
from coterie.training.own import Module, made
from coterie.training.streams import torch_seed


def train(
    model: Module | Callable[[], Module],
    train_set: Any,  # noqa: ANN401 - anything with (input, target) pairs
    test_set: Any = None,  # noqa: ANN401
    *,
    clients: int = 40,
    cohort: int = 8,
    privacy: int = 2,
    rounds: int = 100,
    settings: Mapping[str, Any] | None = None,
    loss: Loss | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    observers: Sequence[Observer] = (),
) -> RunResult:
    """Train a model across simulated clients, every round under secure aggregation.

    Args:
        model: a module, or a function that makes one; it is then made with random numbers that ``seed`` decides.
        train_set: (input, target) pairs, such as a torch data set; read into memory and divided among the clients.
        test_set: the same, to judge the model by; a :class:`~coterie.training.Dataset` holds both.
        clients: how many clients there are.
        cohort: K, how many of them take part in a round.
        privacy: T; fewer clients than this can never be told apart, however many rounds there are.
        rounds: how many rounds to play.
        settings: any settings of ``coterie run``, by their keys: ``{"training.learning_rate": 0.05, "seed": 1}``.
            Unlike there, training.executor is ``auto`` and training.workers 0 by default; worker processes are worth
            it for larger models, in scripts with ``if __name__ == "__main__":``.
        loss: from outputs and targets to one number for each example; by default cross entropy for labels and the
            squared error for other targets.
        out: the folder of the run; by default a new one in ``runs``.
        resume: go on with the run in ``out`` if there is one; everything else must be as it was.
        progress: show on the console how it goes.
        observers: who else is told.

    """
    dataset = train_set if isinstance(train_set, Dataset) else from_torch(train_set, test_set, name=OWN)
    config = _config(dataset, clients, cohort, privacy, rounds, settings or {})
    materials = make_materials(config, dataset, made(model, torch_seed(config.seed, "model")), loss)
    shown: list[Observer] = []
    if progress:
        from rich.console import Console

        from coterie.experiments.console import Watcher

        shown.append(Watcher(Console(highlight=False)))
    everybody = [*shown, *observers]
    path = Path(out) if out is not None else Path("runs") / f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if resume and (path / "config.toml").exists():
        folder = RunFolder.open(path)
        if _comparable(folder.config()) != _comparable(config):
            raise ConfigError(f"the run in {path} has other settings; see {folder.config_file}")
        return TrainingRun(folder, materials, everybody).play()
    return TrainingRun.begin(path, config, materials, everybody).play()


def _config(
    dataset: Dataset, clients: int, cohort: int, privacy: int, rounds: int, settings: Mapping[str, Any]
) -> RunConfig:
    defaults: dict[str, Any] = {
        "name": OWN,
        "rounds": rounds,
        "data.name": OWN,
        "model.name": OWN,
        "clients.count": clients,
        "cohort.size": cohort,
        "cohort.privacy": privacy,
        "partition.kind": "iid" if dataset.classes is None else "label-shards",
        "training.executor": "auto",
        "training.workers": 0,
    }
    return make_config(defaults | dict(settings))


def _comparable(config: RunConfig) -> RunConfig:
    """Leave out which way of training was measured to be faster."""
    return config.model_copy(update={"training": config.training.model_copy(update={"executor": "auto"})})
