"""Runs of Python programs (``coterie.train``): their settings, and what may change when they are resumed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from os import PathLike
from typing import Any

from coterie.cohorts.policies import POLICIES, Policy
from coterie.errors import ConfigError
from coterie.runs.algorithms import ALGORITHMS
from coterie.runs.engine.cohorts import circles_of
from coterie.runs.engine.notes import filled, fitting_privacy
from coterie.runs.report.observers import Observer
from coterie.runs.sections.common import OWN, CohortSettings
from coterie.runs.settings.changes import CHANGEABLE, check_changes
from coterie.runs.settings.config import RunConfig, with_schedule_length
from coterie.runs.settings.toml import make_config
from coterie.runs.storage.folder import RunFolder
from coterie.training.data.dataset import Dataset
from coterie.training.data.example_readers import Examples
from coterie.training.data.user_data import from_clients, from_torch

_COHORT = 8
_CALLED = "your data"  # in errors
_ARGUMENTS = {
    "data": "train_set or clients",
    "data.name": "train_set or clients",
    "model": "model",
    "model.name": "model",
}
"""Settings that describe what ``train`` is given, and the arguments that decide them."""
PROGRAM_DEFAULTS: dict[str, Any] = {
    "availability.kind": "equal",
    "availability.dropout": 0.0,
    "faults.dropout": 0.0,
    "training.executor": "auto",
    "training.workers": 0,
}
"""Defaults that differ from ``coterie run``: no client is absent or drops out, and no process is started."""


@dataclass(frozen=True)
class Wanted:
    """The arguments of ``train`` that decide the settings of the run."""

    clients: int
    """The number of clients, unless they come with the data."""
    cohort: int | None
    """None is 8, or all clients if there are fewer."""
    privacy: int
    rounds: int
    policy: Policy | None
    """The caller's policy, if there is one."""
    settings: Mapping[str, Any]


def check_train_arguments(clients: object, settings: object, out: object, loss: object, observers: object) -> None:
    """Refuse arguments of a wrong kind before data is read; the other arguments are checked where they are used."""
    if isinstance(clients, str | bytes | bool) or not isinstance(clients, int | Mapping | Sequence):
        raise ConfigError(
            f"clients is a number, or the examples of each client by name or in a list, not {clients!r:.60}"
        )
    if isinstance(clients, int) and clients < 2:
        raise ConfigError(f"clients should be at least 2, not {clients}")
    if settings is not None and not (isinstance(settings, Mapping) and all(isinstance(key, str) for key in settings)):
        raise ConfigError('settings are keys with values, such as {"training.learning_rate": 0.05}')
    for key, argument in _ARGUMENTS.items():
        if settings and key in settings:
            raise ConfigError(f"settings contain {key}, which the argument {argument} of train decides: leave it out")
    if out is not None and not isinstance(out, str | PathLike):
        raise ConfigError(f"out is the path of a folder, not {out!r}")
    if out == "":
        raise ConfigError("out is empty: give the path of a folder, or leave it out for a new folder in runs")
    if isinstance(loss, type):
        raise ConfigError(f"loss is the class {loss.__name__}, not a function: create it by {loss.__name__}()")
    if loss is not None and not callable(loss):
        raise ConfigError(f"loss is a function of outputs and targets, such as torch.nn.MSELoss(), not {loss!r:.60}")
    if not isinstance(observers, Sequence):
        raise ConfigError(f"observers is a list, not {type(observers).__name__}")
    called = ("begin", "step", "after_round", "end", "close")
    for observer in observers:
        if not all(callable(getattr(observer, name, None)) for name in called):
            raise ConfigError(
                f"{type(observer).__name__} is no observer: derive it from "
                f"{Observer.__module__}.{Observer.__qualname__}"
            )


def own_dataset(
    train_set: Examples,
    test_set: Examples,
    clients: object,
    client_tests: Mapping[str, Examples] | Sequence[Examples] | None,
    *,
    algorithm: str | None,
    one_hot: bool,
) -> Dataset:
    """Read the caller's examples, in one set or by client; with ``one_hot``, rows with a single 1 are labels.

    Dictionaries of arrays are the columns of members if the ``algorithm`` supports members, otherwise named inputs.
    """
    if isinstance(clients, Mapping | Sequence):
        known = ALGORITHMS.get(algorithm or RunConfig().training.algorithm)
        columns = known is not None and known.takes_columns
        called: dict[str, Any] = {"name": _CALLED, "one_hot": one_hot}
        held = from_clients(clients, test_set, **called, columns=columns, client_tests=client_tests)
        return replace(held, name=OWN)
    if client_tests is not None:
        raise ConfigError(
            "client_tests are tests of clients that bring their examples: give these in clients, by name. For a "
            'train_set that is divided, settings={"clients.holdout": 0.2} keeps a share of each part for testing'
        )
    if isinstance(train_set, Dataset):
        return train_set
    return replace(from_torch(train_set, test_set, name=_CALLED, one_hot=one_hot), name=OWN)


def own_config(dataset: Dataset, wanted: Wanted) -> tuple[RunConfig, tuple[str, ...]]:
    """Return the settings of a run on this data, and notes on decisions that the caller may not expect."""
    count = len(dataset.clients) if dataset.clients is not None else wanted.clients
    kept = circles_of(wanted.policy, count).privacy if wanted.policy is not None else wanted.privacy
    defaults: dict[str, Any] = {
        **({"confined.grid.members": len(dataset.members)} if dataset.members else {}),
        "name": OWN,
        "rounds": wanted.rounds,
        "data.name": OWN,
        "model.name": OWN,
        "clients.count": count,
        "cohort.policy": CohortSettings().policy if wanted.policy is None else OWN,
        "cohort.size": min(_COHORT, count) if wanted.cohort is None else wanted.cohort,
        "cohort.privacy": kept,
        "partition.kind": "iid" if dataset.classes is None else "label-shards",
    }
    loaded = loader_settings(dataset, wanted.settings)
    config = make_config({**PROGRAM_DEFAULTS, **defaults, **loaded, **wanted.settings})
    return _fitted(config, wanted)


def loader_settings(dataset: Dataset, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of data loaders, except the given ones; all loaders must agree."""
    found: dict[str, Any] = {}
    for key, values in dataset.loaded.items():
        if key in given:
            continue
        (first, value), *others = values.items()
        for other, another in others:
            if another != value:
                raise ConfigError(
                    f"{key}: the data loader of {first!r} has {value} and that of {other!r} has {another}; "
                    f'all clients train alike, so give one by settings={{"{key}": ...}}'
                )
        found[key] = value
    return found


def _fitted(config: RunConfig, wanted: Wanted) -> tuple[RunConfig, tuple[str, ...]]:
    """Choose larger circles if they fill the cohort better and no client is ever missing."""
    cohort, count = config.cohort, config.clients.count
    steady = config.availability.kind == "equal" and not (
        config.availability.dropout or config.faults.dropout or config.faults.late
    )
    kind = POLICIES.get(cohort.policy)
    if kind is None or not kind.adjustable or not steady or "cohort.privacy" in wanted.settings:
        return config, ()
    better = fitting_privacy(count, cohort.size, cohort.privacy)
    if better == cohort.privacy:
        return config, ()
    before, after = (filled(count, cohort.size, privacy) for privacy in (cohort.privacy, better))
    note = (
        f"Circles have at least {better} clients, not {cohort.privacy}, because they fill a cohort of {cohort.size} "
        f'better: {after:.3g} clients in a round on average instead of {before:.3g}; settings={{"cohort.privacy": '
        f"{cohort.privacy}}} keeps smaller ones"
    )
    return config.model_copy(update={"cohort": cohort.model_copy(update={"privacy": better})}), (note,)


def reconciled(folder: RunFolder, wanted: RunConfig, asked: Wanted) -> list[str]:
    """Return the changes that the caller requests for the run in a folder; only a few are allowed."""
    begun = folder.config()
    if asked.policy is None and begun.cohort.privacy == asked.privacy:  # begun before circles were fitted to cohorts
        cohort = wanted.cohort.model_copy(update={"privacy": begun.cohort.privacy})
        wanted = wanted.model_copy(update={"cohort": cohort})
    if wanted.training.executor == "auto":  # the faster way of training is measured and recorded when a run begins
        training = wanted.training.model_copy(update={"executor": begun.training.executor})
        wanted = wanted.model_copy(update={"training": training})
    if wanted.noise.epsilon and "multiplier" not in wanted.noise.model_fields_set:  # computed when a run begins
        noise = wanted.noise.model_copy(update={"multiplier": begun.noise.multiplier})
        wanted = wanted.model_copy(update={"noise": noise})
    if begun.training.schedule.rounds:
        wanted = with_schedule_length(wanted, begun)
    check_changes(begun, wanted)
    values = {key: attrgetter(key) for key in CHANGEABLE}
    return [f"{key}={json.dumps(of(wanted))}" for key, of in values.items() if of(wanted) != of(begun)]
