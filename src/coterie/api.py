"""The verbs of Coterie, each the whole of it in one call; heavy things are imported when they are used."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.arithmetic.quantize import Arrays, FloatArray, Layout, Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.crypto.signing import Identity
from coterie.errors import ConfigError, InputError
from coterie.graphs.topology import Complete, Topology
from coterie.planning.session import FEW_CLIENTS, recommend
from coterie.secagg.terms import Terms, ThreatMode
from coterie.transports.faults import Faults
from coterie.transports.memory import Report, Session

if TYPE_CHECKING:
    from coterie.runs.config import RunConfig
    from coterie.runs.observers import Observer
    from coterie.runs.run import RunResult
    from coterie.training.data.datasets import Dataset
    from coterie.training.local import Loss
    from coterie.training.own import Module


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a session."""

    mean: FloatArray | list[FloatArray]
    """The weighted mean over ``clients``: one array if each gave one array, else a list."""
    total_weight: int
    """The sum of their weights; the number of clients where no weights were given."""
    clients: tuple[str, ...]
    """Whose arrays are in the mean."""
    clipped: int
    """How many entries, over all clients, lay outside the clipping range."""
    error_bound: float
    """The mean of the clipped inputs is no further away than this, entry by entry."""
    report: Report
    """Who took part, and what it cost."""

    @property
    def sum(self) -> FloatArray | list[FloatArray]:
        """The weighted sum."""
        if isinstance(self.mean, list):
            return [array * self.total_weight for array in self.mean]
        return self.mean * self.total_weight


def aggregate(
    inputs: Mapping[str, Arrays],
    *,
    clip: float,
    weights: Mapping[str, int] | None = None,
    precision: int = 16,
    topology: Topology | None = None,
    threshold: int | None = None,
    batches: Mapping[str, int] | None = None,
    minimum: int = 2,
    colluders: int | None = None,
    identities: Mapping[str, Identity] | None = None,
    dropout: float = 0.1,
    faults: Faults | None = None,
    workers: int | None = None,
    seed: int | None = None,
) -> Outcome:
    """Aggregate each client's array, or list of arrays, without the server seeing any of them.

    Args:
        inputs: for each client by name, a float array or a list of them; all clients the same shapes.
        clip: entries are clipped to ``[-clip, clip]``.
        weights: a whole number for each client; the mean is weighted, and nobody's weight is disclosed.
        precision: bits for each entry; the ring is made large enough that no sum overflows.
        topology: who shares with whom; by default chosen for the expected ``dropout``.
        threshold: shares that open a client's secret; by default a majority, or what the chosen topology needs.
        batches: a batch number for each client; only complete batches are aggregated.
        minimum: fewer clients than this are never aggregated.
        colluders: clients that may collude with a server that lies; needed with a sparse ``topology`` of your own.
        identities: signing keys; with them the server is taken for an active adversary.
        dropout: the fraction of clients expected to drop out, for choosing the topology.
        faults: what goes wrong in this session, for simulations.
        workers: threads to use; one for each core by default.
        seed: makes the *rounding* of entries reproducible; masks always come from the operating system.

    """
    if not inputs:
        raise InputError("there is nothing to aggregate")
    names = tuple(inputs)
    layouts = {name: Layout.of(arrays) for name, arrays in inputs.items()}
    layout = layouts[names[0]]
    odd = [name for name in names if layouts[name] != layout]
    if odd:
        raise InputError(f"the arrays of {odd[0]!r} differ in shape or dtype from those of {names[0]!r}")
    for label, given in (("weights", weights), ("batches", batches), ("identities", identities)):
        if given is not None and given.keys() != inputs.keys():
            raise ConfigError(f"{label} must be given for exactly the clients with inputs")
    if topology is None:
        topology, threshold, colluders = _choose(len(names), dropout, identities is not None, threshold, colluders)
    largest = max(weights.values()) if weights else 1
    quantizer = Quantizer(clip, precision, len(names), largest if isinstance(largest, int) else 1)
    terms = Terms(
        session=os.urandom(32),
        clients=names,
        bits=quantizer.ring.bits,
        length=quantizer.length(layout),
        topology=topology,
        threshold=threshold,
        circles=tuple(batches[name] for name in names) if batches else None,
        minimum=minimum,
        colluders=colluders,
        mode=ThreatMode.ACTIVE_SERVER if identities else ThreatMode.HONEST_BUT_CURIOUS,
        identities=tuple(identities[name].public for name in names) if identities else (),
    )
    generator = np.random.default_rng(seed)
    streams = dict(zip(names, generator.spawn(len(names)), strict=True))
    vectors: dict[str, RingVector] = {}
    clipped = 0
    for name in names:
        encoded = quantizer.encode(inputs[name], streams[name], weights[name] if weights else 1)
        vectors[name] = encoded.vector
        clipped += encoded.clipped
    session = Session(terms, vectors, identities=identities, faults=faults, workers=workers)
    result = session.run()
    decoded = quantizer.decode(result.total, layout, len(result.clients))
    single = isinstance(inputs[names[0]], np.ndarray)
    return Outcome(
        mean=decoded.mean[0] if single else decoded.mean,
        total_weight=decoded.total_weight,
        clients=result.clients,
        clipped=clipped,
        error_bound=quantizer.error_bound(len(result.clients), decoded.total_weight),
        report=session.report,
    )


def _choose(
    clients: int, dropout: float, active: bool, threshold: int | None, colluders: int | None
) -> tuple[Topology, int | None, int | None]:
    if clients <= FEW_CLIENTS or threshold is not None:
        return Complete(), threshold, colluders
    collusion = None if colluders is None else colluders / clients
    plan = recommend(clients, dropout, collusion=collusion, active=active, length=1)
    return plan.guarantee.topology, plan.guarantee.threshold, plan.colluders


def train(
    model: "Module | Callable[[], Module]",
    train_set: Any,  # noqa: ANN401 - anything with (input, target) pairs
    test_set: Any = None,  # noqa: ANN401
    *,
    clients: int = 40,
    cohort: int = 8,
    privacy: int = 2,
    rounds: int = 100,
    settings: Mapping[str, Any] | None = None,
    loss: "Loss | None" = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    observers: "Sequence[Observer]" = (),
) -> "RunResult":
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
    from coterie.runs.config import OWN
    from coterie.runs.federation import make_federation
    from coterie.runs.folder import RunFolder
    from coterie.runs.run import TrainingRun
    from coterie.training.data.datasets import Dataset, from_torch
    from coterie.training.own import instantiate
    from coterie.training.streams import torch_seed

    dataset = train_set if isinstance(train_set, Dataset) else from_torch(train_set, test_set, name=OWN)
    config = _config(dataset, clients, cohort, privacy, rounds, settings or {})
    federation = make_federation(config, dataset, instantiate(model, torch_seed(config.seed, "model")), loss)
    shown: list[Observer] = []
    if progress:
        from coterie.runs.console import Watcher

        shown.append(Watcher())
    everybody = [*shown, *observers]
    path = Path(out) if out is not None else Path("runs") / f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if resume and (path / "config.toml").exists():
        folder = RunFolder.open(path)
        if _comparable(folder.config()) != _comparable(config):
            raise ConfigError(f"the run in {path} has other settings; see {folder.config_file}")
        return TrainingRun(folder, federation, everybody).play()
    return TrainingRun.begin(path, config, federation, everybody).play()


def _config(
    dataset: "Dataset", clients: int, cohort: int, privacy: int, rounds: int, settings: Mapping[str, Any]
) -> "RunConfig":
    from coterie.runs.config import OWN
    from coterie.runs.config_file import make_config

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


def _comparable(config: "RunConfig") -> "RunConfig":
    """Leave out which way of training was measured to be faster."""
    return config.model_copy(update={"training": config.training.model_copy(update={"executor": "auto"})})
