"""Training: data sets, their division among clients, availability, models, local work and strategies.

What this package exports needs numpy alone. Modules that import torch, which takes seconds, are imported by their own
names: :mod:`coterie.training.models` first of all.
"""

from coterie.cohorts.availability import (
    LABEL_DROPOUT,
    Availability,
    Diurnal,
    Steady,
    equal,
    heterogeneous,
    label_dependent,
)
from coterie.training.data.datasets import DATA_VARIABLE, DATASETS, Dataset, load
from coterie.training.data.own import from_clients, from_huggingface, from_torch
from coterie.training.data.partitions import (
    by_person,
    dirichlet,
    iid,
    label_shards,
    shared_and_own_label,
    time_blocks,
)

__all__ = [
    "DATASETS",
    "DATA_VARIABLE",
    "LABEL_DROPOUT",
    "Availability",
    "Dataset",
    "Diurnal",
    "Steady",
    "by_person",
    "dirichlet",
    "equal",
    "from_clients",
    "from_huggingface",
    "from_torch",
    "heterogeneous",
    "iid",
    "label_dependent",
    "label_shards",
    "load",
    "shared_and_own_label",
    "time_blocks",
]
