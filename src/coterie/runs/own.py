"""A run on what a Python program brings along: its settings, and what they must have in common to go on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from coterie.cohorts.policies import Policy
from coterie.runs.changes import CHANGEABLE, check_changes
from coterie.runs.config import OWN, RunConfig
from coterie.runs.config_file import make_config
from coterie.runs.folder import RunFolder
from coterie.runs.selection import circles_of
from coterie.training.data.datasets import Dataset
from coterie.training.data.own import Examples, from_clients, from_torch

_COHORT = 8
KIND: dict[str, Any] = {
    "availability.kind": "equal",
    "availability.dropout": 0.0,
    "faults.dropout": 0.0,
    "training.executor": "auto",
    "training.workers": 0,
}
"""Where a program's own runs differ from ``coterie run``: nobody is absent or lost, and no process is started."""


@dataclass(frozen=True)
class Wanted:
    """What the caller of ``train`` asks for; None is left to the data."""

    clients: int
    cohort: int | None
    privacy: int
    rounds: int
    policy: Policy | None
    settings: Mapping[str, Any]


def own_dataset(train_set: Examples, test_set: Examples, clients: object) -> Dataset:
    """Take the caller's examples: all in one, or each client's."""
    if isinstance(train_set, Dataset):
        return train_set
    if isinstance(clients, Mapping | Sequence):
        return from_clients(clients, test_set, name=OWN)
    return from_torch(train_set, test_set, name=OWN)


def own_config(dataset: Dataset, wanted: Wanted) -> RunConfig:
    """Return the settings of a run on this data."""
    count = len(dataset.clients) if dataset.clients is not None else wanted.clients
    kept = circles_of(wanted.policy, count).privacy if wanted.policy is not None else wanted.privacy
    defaults: dict[str, Any] = {
        "name": OWN,
        "rounds": wanted.rounds,
        "data.name": OWN,
        "model.name": OWN,
        "clients.count": count,
        "cohort.policy": "multi-round" if wanted.policy is None else OWN,
        "cohort.size": min(_COHORT, count) if wanted.cohort is None else wanted.cohort,
        "cohort.privacy": kept,
        "partition.kind": "iid" if dataset.classes is None else "label-shards",
    }
    return make_config(KIND | defaults | dict(wanted.settings))


def reconciled(folder: RunFolder, wanted: RunConfig) -> list[str]:
    """Return what the caller asks for beyond the run in a folder, as changes of its settings; refuse all but a few."""
    begun = folder.config()
    if wanted.training.executor == "auto":  # which way was measured to be faster is written down when a run begins
        training = wanted.training.model_copy(update={"executor": begun.training.executor})
        wanted = wanted.model_copy(update={"training": training})
    check_changes(begun, wanted)
    values = {key: attrgetter(key) for key in CHANGEABLE}
    return [f"{key}={json.dumps(of(wanted))}" for key, of in values.items() if of(wanted) != of(begun)]
