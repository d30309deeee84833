"""Federated training: data sets, their division among clients, models, local training and strategies.

A :class:`~coterie.training.local.Problem` holds the model, the examples and the loss. In each round a strategy
(:mod:`coterie.training.strategies`) makes a :class:`~coterie.training.local.LocalTask` for every client, an executor
(:mod:`coterie.training.executors`) carries the tasks out, and the strategy applies the mean of the results. The mean
is computed elsewhere: by secure aggregation in a run, or in the clear by ``plain_round`` for baselines.

Start with :mod:`coterie.training.strategies.base` and :mod:`coterie.training.local`. Every random choice comes from a
named stream (:mod:`coterie.training.streams`), so results do not depend on the number of workers.

The names exported here need numpy only. Importing torch takes seconds, so modules that need it, such as
:mod:`coterie.training.local` and :mod:`coterie.training.flatten`, are imported by their full names.
"""

from coterie.training.data.datasets import DATA_VARIABLE, DATASETS, Dataset, load
from coterie.training.data.partitions import (
    by_person,
    dirichlet,
    iid,
    label_shards,
    shared_and_own_label,
    time_blocks,
)
from coterie.training.data.user_data import from_clients, from_huggingface, from_torch
from coterie.training.metrics import Metric

__all__ = [
    "DATASETS",
    "DATA_VARIABLE",
    "Dataset",
    "Metric",
    "by_person",
    "dirichlet",
    "from_clients",
    "from_huggingface",
    "from_torch",
    "iid",
    "label_shards",
    "load",
    "shared_and_own_label",
    "time_blocks",
]
