"""The federation of a run: the examples, which client has which, the model, and how clients train it."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.cohorts.circles import Indices
from coterie.cohorts.guard import unstorable_name
from coterie.cohorts.policies import Policy
from coterie.errors import ConfigError
from coterie.runs.algorithms import algorithm_of
from coterie.runs.engine.metrics import find_metrics
from coterie.runs.records.client_scores import Basis
from coterie.runs.records.yardstick import ACCURACY, LOSS, SQUARED_ERROR, Yardstick
from coterie.runs.sections.base import make_chosen
from coterie.runs.sections.common import OWN, CommonSettings
from coterie.runs.sections.extensions import call_named, call_offering, is_named
from coterie.training import flatten
from coterie.training.data.dataset import Dataset
from coterie.training.data.datasets import load
from coterie.training.data.feature_file import read_features
from coterie.training.data.fresh_data import FreshData
from coterie.training.data.generators import seeded
from coterie.training.data.partitions import PARTITIONS
from coterie.training.data.series import ForecastSeries
from coterie.training.data.user_data import client_names, from_anything
from coterie.training.evaluate import Score, evaluate
from coterie.training.keyword_model import KeywordModel
from coterie.training.local import ArrayData, LocalSGD, Loss, Problem, cross_entropy, squared_error
from coterie.training.metrics import Compute, metric_form
from coterie.training.models import build
from coterie.training.schedules import Cosine, Curriculum, Inverse, Milestones, Schedule
from coterie.training.streams import stream, torch_seed
from coterie.training.trial import check_last_batches, try_out
from coterie.training.user_models import Module, instantiate, structure_digest


@dataclass(frozen=True, eq=False)
class Federation:
    """The model, the examples, and which of them each client has."""

    problem: Problem = field(repr=False)
    test: ArrayData = field(repr=False)
    """Examples to evaluate the model on; there may be none."""
    parts: dict[str, Indices] = field(repr=False)
    """The examples of each client, by its name."""
    labels: Indices | None = field(repr=False)
    """The label of every example, if targets are labels."""
    policy: Policy | None = None
    """The policy of the caller, if there is one."""
    series: ForecastSeries | None = field(default=None, repr=False)
    """The time series that the test examples come from, if they do."""
    notes: tuple[str, ...] = ()
    """What users should know about the data before training."""
    decisions: tuple[str, ...] = ()
    """Decisions made for the caller that may be unexpected."""
    members: Mapping[str, int] | None = None
    """The members of each client and how many columns each has, if the data comes in columns of several members."""
    metrics: Mapping[str, Compute] = field(default_factory=dict, repr=False)
    """The metrics that models are evaluated by, by the names of their columns."""
    own_tests: Mapping[str, Indices] = field(default_factory=dict, repr=False)
    """The indices of each client's own test examples; all others are common. Unused for series."""
    held_out: bool = False
    """Whether these are held out from the clients' examples."""

    @property
    def names(self) -> list[str]:
        """The names of the clients, in the order of their numbers on the roster."""
        return sorted(self.parts)

    @property
    def yardstick(self) -> Yardstick:
        """The yardstick of the models. It depends on the kind of the targets, and is decided only here."""
        if self.labels is not None:
            return ACCURACY
        if self.problem.loss is not squared_error:
            return LOSS
        if self.series is None:
            return SQUARED_ERROR
        rules = {rule: float(np.square(said - self.test.y).mean()) for rule, said in self.series.rules.items()}
        return replace(SQUARED_ERROR, scaling=self.series.scaling, unit=self.series.unit, rules=rules)

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Digests of the ``data`` and the ``model``: SHA-256 over names, shapes and values.

        The parameters of the model count with their shapes only: their start may be random, and a resumed run takes
        them from the checkpoint.
        """
        data = hashlib.sha256()
        arrays = {"test x": self.test.x, "test y": self.test.y, **self.parts}
        if isinstance(self.problem.data, ArrayData):
            arrays |= {"train x": self.problem.data.x, "train y": self.problem.data.y}
        elif isinstance(self.problem.data, FreshData):
            data.update(self.problem.data.digest)
        if self.members:
            data.update(json.dumps(list(self.members.items())).encode())
        if self.own_tests:
            data.update(json.dumps([[name, rows.tolist()] for name, rows in self.own_tests.items()]).encode())
        for name, array in arrays.items():
            data.update(json.dumps([name, str(array.dtype), array.shape]).encode())
            data.update(np.ascontiguousarray(array).data)
        return {"data": data.hexdigest(), "model": structure_digest(self.problem.model)}

    @property
    def basis(self) -> Basis:
        """Which test examples each client's scores are based on."""
        if self.held_out:
            return Basis.HELD_OUT
        if self.own_tests or self.series:
            return Basis.TESTS
        return Basis.COMMON if self.labels is None else Basis.PROPORTIONS

    def tests(self, model: str) -> Indices:
        """Return the test examples for a model: those of its client, or the common ones.

        If all test examples belong to clients, all of them together are the common ones.
        """
        own = self.own_tests.get(model)
        if own is None and self.series:
            own = self.series.members.get(model)
        return self._common_tests if own is None else own

    @property
    def public_tests(self) -> bool:
        """Whether some test examples belong to no client. Scores on these reveal no client's data."""
        owned = sum(rows.size for rows in self.own_tests.values())
        return len(self.test) > owned

    @cached_property
    def _common_tests(self) -> Indices:
        owned = np.concatenate(list(self.own_tests.values())) if self.own_tests else np.zeros(0, np.int64)
        common = np.setdiff1d(np.arange(len(self.test)), owned)
        return common if common.size else np.arange(len(self.test))

    def score(self, model: str, state: Sequence[FloatArray]) -> Score:
        """Score the model of this name in this state, also by the metrics."""
        chosen = self.tests(model)
        test = self.test if chosen.size == len(self.test) else ArrayData(self.test.x[chosen], self.test.y[chosen])
        scale = self.series.scale[chosen] if self.series else None
        return evaluate(self.problem, state, test, scale=scale, metrics=self.metrics)


def find_federation(config: CommonSettings) -> Federation:
    """Load the data set and build the model that the settings name."""
    data, model = config.data, config.model.name
    if OWN in (data.name, model, config.cohort.policy):
        raise ConfigError(
            f'a run with "{OWN}" data, model or policy gets them from a Python program, by coterie.train(...); the '
            "same call with resume=True continues it"
        )
    if data.features:
        dataset = read_features(Path(data.features))
    elif is_named(data.name):
        given = call_named("data.name", data.name, **data.options)
        dataset = from_anything(given, name=data.name, columns=algorithm_of(config).takes_columns)
    else:
        dataset = load(data.name, data.folder or None, **data.options)
    seed = torch_seed(config.seed, "model")
    if is_named(model):
        sizes = {"input_shape": dataset.input_shape, "outputs": dataset.outputs}
        return make_federation(config, dataset, instantiate(lambda: call_offering("model.name", model, **sizes), seed))
    return make_federation(config, dataset, build(model, dataset.input_shape, dataset.outputs, seed))


def make_federation(
    config: CommonSettings,
    dataset: Dataset,
    model: Module,
    loss: Loss | None = None,
    policy: Policy | None = None,
    metrics: Mapping[str, Compute] | None = None,
) -> Federation:
    """Combine data set and model; divide the examples among the clients unless they came divided.

    ``metrics`` are functions of the caller, by the names in ``training.metrics`` without :data:`OWN`.
    """
    labels = dataset.train_y.astype(np.int64) if dataset.classes is not None else None
    examples = ArrayData(dataset.train_x, dataset.train_y)
    model = KeywordModel(model, dataset.fields) if dataset.fields else model
    problem = Problem(model, examples, loss or (squared_error if labels is None else cross_entropy))
    _try_out(config, problem, dataset)
    if dataset.sources:
        if config.training.executor == "vectorised":
            raise ConfigError(
                "training.executor: must be processes, not vectorised, for examples that are read again in every pass"
            )
        fresh = FreshData(dataset.sources, examples, labelled=labels is not None, fields=dataset.fields)
        problem = replace(problem, data=fresh)
        with seeded(config.seed):
            _try_out(config, problem, dataset)
    notes = (*dataset.notes, *_unlike_loaders(config, dataset))
    parts, test, own_tests = _tested(config, dataset, _divided(config, dataset, labels))
    check_last_batches(make_work(config), problem, parts)
    found = Federation(
        problem,
        test,
        parts,
        labels,
        policy,
        dataset.series,
        notes,
        members=dataset.members,
        metrics=find_metrics(config, metrics or {}, labelled=labels is not None),
        own_tests=own_tests,
        held_out=config.clients.holdout > 0,
    )
    if any(metric_form(name).user for name in config.training.metrics):
        if not len(test):
            raise ConfigError("training.metrics: a metric of yours needs test examples, and there are none")
        found.score("", flatten.read(model))  # an error in the function is found before the first round
    return found


def _unlike_loaders(config: CommonSettings, dataset: Dataset) -> Iterator[str]:
    """Yield notes on settings that differ from those of data loaders."""
    for key, values in dataset.loaded.items():
        applied: object = attrgetter(key)(config)
        if any(value != applied for value in values.values()):
            yield f"{key} is {applied}, as the settings have it; that of the data loader is not used"


def _tested(
    config: CommonSettings, dataset: Dataset, parts: dict[str, Indices]
) -> tuple[dict[str, Indices], ArrayData, Mapping[str, Indices]]:
    """Return the training examples, all test examples, and the indices of those that belong to each client."""
    test = ArrayData(dataset.test_x, dataset.test_y)
    share = config.clients.holdout
    if not share:
        return parts, test, dataset.client_tests or {}
    if dataset.client_tests or dataset.series:
        raise ConfigError("clients.holdout: must be 0, because the clients have test examples of their own")
    together = np.concatenate(list(parts.values()))
    if np.unique(together).size < together.size:
        raise ConfigError(
            f"clients.holdout: must be 0 with partition.kind = {config.partition.kind}: clients share examples, and "
            "what one keeps for testing another would train on"
        )
    kept: dict[str, Indices] = {}
    tests: dict[str, Indices] = {}
    rows: list[Indices] = []
    first = len(test)
    for name, part in parts.items():
        count = min(part.size - 1, max(1, round(share * part.size)))
        order = stream(config.seed, "holdout", name).permutation(part.size)
        held, kept[name] = part[np.sort(order[:count])], part[np.sort(order[count:])]
        if count:
            tests[name] = np.arange(first, first + count)
            first += count
            rows.append(held)
    everything = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    x, y = (
        np.concatenate([given, held[everything]])
        for given, held in ((dataset.test_x, dataset.train_x), (dataset.test_y, dataset.train_y))
    )
    return kept, ArrayData(x, y), tests


def _divided(config: CommonSettings, dataset: Dataset, labels: Indices | None) -> dict[str, Indices]:
    count = config.clients.count
    if dataset.clients is not None:
        if len(dataset.clients) != count:
            raise ConfigError(f"clients.count: must be {len(dataset.clients)}, who come with the data, not {count}")
        if (odd := unstorable_name(list(dataset.clients))) is not None:
            raise ConfigError(f"clients: the name {odd!r} is not valid Unicode and cannot be stored; give another name")
        return dict(dataset.clients)
    try:
        parts = make_chosen(
            PARTITIONS,
            "partition",
            config.partition,
            size=len(dataset.train_y),
            labels=labels,
            clients=count,
            rng=stream(config.seed, "partition"),
        )
    except ConfigError as error:
        if str(error).startswith("partition."):
            raise
        raise ConfigError(f"clients.count = {count}, partition.kind = {config.partition.kind}: {error}") from None
    if len(parts) != count:
        raise ConfigError(f"clients.count: must be {len(parts)} for this partition, not {count}")
    return dict(zip(client_names(count), parts, strict=True))


def _try_out(config: CommonSettings, problem: Problem, dataset: Dataset) -> None:
    """Apply the model to an example, to find out before anything is written whether it fits the data."""
    model = "the model" if config.model.name == OWN else f"model.name: {config.model.name}"
    try_out(problem, dataset, model, "the data" if config.data.title == OWN else config.data.title)


def make_curriculum(config: CommonSettings, federation: Federation) -> Curriculum:
    """Return the examples and the work of every client."""
    return Curriculum(federation.parts, make_work(config), config.seed, make_schedule(config))


def make_work(config: CommonSettings) -> LocalSGD:
    """Return how a client trains in a round, at the initial learning rate."""
    training = config.training
    return LocalSGD(
        training.learning_rate,
        training.epochs,
        training.batch_size,
        training.momentum,
        training.weight_decay,
        training.shuffle,
        training.drop_last,
    )


def make_schedule(config: CommonSettings) -> Schedule:
    """Return how the learning rate changes."""
    schedule = config.training.schedule
    match schedule.kind:
        case "milestones":
            return Milestones(schedule.milestones, schedule.factor)
        case "inverse":
            return Inverse(schedule.decay)
        case "cosine":
            return Cosine(schedule.rounds or config.rounds, schedule.floor)
    return Milestones()
