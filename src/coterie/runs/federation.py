"""The federation that a run works on: examples, who holds which, and the model; from the settings or the caller."""

from dataclasses import dataclass, field

import numpy as np

from coterie.cohorts.circles import Indices
from coterie.errors import ConfigError
from coterie.runs.choices import make_chosen
from coterie.runs.config import OWN, RunConfig
from coterie.training.data.datasets import Dataset, load
from coterie.training.data.partitions import PARTITIONS
from coterie.training.local import ArrayData, Loss, Problem, cross_entropy, squared_error
from coterie.training.models import build
from coterie.training.own import Module
from coterie.training.streams import stream, torch_seed


@dataclass(frozen=True, eq=False)
class Federation:
    """What is learnt, from which examples; ``parts`` says which of them each client has, by name."""

    problem: Problem = field(repr=False)
    test: ArrayData = field(repr=False)
    parts: dict[str, Indices] = field(repr=False)
    labels: Indices | None = field(repr=False)
    """Every example's label, where targets are labels."""


def find_federation(config: RunConfig) -> Federation:
    """Load the data set and build the model that the settings name."""
    if OWN in (config.data.name, config.model.name):
        raise ConfigError(
            f'a run with data.name or model.name = "{OWN}" gets them from a Python program, by coterie.train(...); '
            "the same call with resume=True goes on with it"
        )
    dataset = load(config.data.name, config.data.folder or None, **config.data.options)
    seed = torch_seed(config.seed, "model")
    return make_federation(config, dataset, build(config.model.name, dataset.input_shape, dataset.outputs, seed))


def make_federation(config: RunConfig, dataset: Dataset, model: Module, loss: Loss | None = None) -> Federation:
    """Divide this data set among the clients, for this model."""
    labels = dataset.train_y.astype(np.int64) if dataset.classes is not None else None
    parts = make_chosen(
        PARTITIONS,
        "partition",
        config.partition,
        size=len(dataset.train_y),
        labels=labels,
        clients=config.clients.count,
        rng=stream(config.seed, "partition"),
    )
    if len(parts) != config.clients.count:
        raise ConfigError(f"clients.count: must be {len(parts)} for this partition, not {config.clients.count}")
    width = len(str(len(parts)))
    names = [f"client-{number:0{width}}" for number in range(1, len(parts) + 1)]
    problem = Problem(
        model,
        ArrayData(dataset.train_x, dataset.train_y),
        loss or (squared_error if labels is None else cross_entropy),
    )
    return Federation(problem, ArrayData(dataset.test_x, dataset.test_y), dict(zip(names, parts, strict=True)), labels)
