"""The cost of protection: rounds of training with and without it, in turns, in one run.

Both sides are runs as ``coterie run`` plays them, with ledger and worker processes, but without evaluation and
checkpoints, which would make the share of protection look smaller. The examples are random numbers in the shapes of the
data set, because the duration of training does not depend on what is learned; model and optimiser are real. All clients
are available and stay, so that all rounds are the same work.

Round by round, both sides start from the same model and train the same clients on the same batches, one side right
after the other, and take turns at being first: other load on the machine then affects both. Their new models must agree
up to rounding before any number is reported.
"""

import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields
from itertools import chain
from pathlib import Path
from time import perf_counter

import numpy as np

from coterie.arithmetic.quantize import Quantizer
from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.roster import Roster
from coterie.errors import ConfigError, RoundAborted
from coterie.runs.engine.build import build_run
from coterie.runs.engine.federation import Federation
from coterie.runs.engine.loop import Engine
from coterie.runs.records.record import RoundRecord
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import make_config
from coterie.runs.storage.folder import RunFolder
from coterie.training.flatten import ModelArrays
from coterie.training.local import ArrayData, Problem
from coterie.training.models import build, parameter_count
from coterie.training.streams import stream, torch_seed

_MEMORY_ROUNDS = 50  # in which the clients' memories are timed
_WARM_UP = 1  # pairs of rounds that do not count: in the first, workers allocate memory and import modules


@dataclass(frozen=True)
class Scenario:
    """The training: one local epoch of ``batch_size`` over ``samples`` examples for each client of a cohort.

    The sizes are those of So et al. 2023, with circles of T = ``privacy`` clients.
    """

    model: str
    input_shape: tuple[int, ...]
    samples: int
    batch_size: int
    clients: int = 120
    cohort: int = 12
    privacy: int = 3
    seed: int = 0
    classes: int = 10

    def config(self, kind: str, rounds: int, workers: int) -> RunConfig:
        """Return the settings of a run with ``secure`` or ``plain`` aggregation and without evaluation."""
        return make_config(
            {
                "name": f"bench-{kind}",
                "seed": self.seed,
                "rounds": rounds + 1,
                "data.name": "own",
                "model.name": self.model,
                "clients.count": self.clients,
                "availability.kind": "equal",
                "availability.dropout": 0.0,
                "faults.dropout": 0.0,
                "cohort.size": self.cohort,
                "cohort.privacy": self.privacy,
                "training.epochs": 1,
                "training.batch_size": self.batch_size,
                "training.learning_rate": 0.01,
                "training.weight_decay": 5e-4,
                "training.evaluate_every": rounds + 1,
                "training.executor": "processes",
                "training.workers": workers,
                "aggregation.kind": kind,
            }
        )

    def federation(self) -> Federation:
        """Return random examples, as many as a cohort needs; clients share them."""
        rng = stream(self.seed, "bench examples")
        count = self.cohort * self.samples
        examples = ArrayData(
            rng.standard_normal((count, *self.input_shape), np.float32), rng.integers(self.classes, size=count)
        )
        model = build(self.model, self.input_shape, self.classes, torch_seed(self.seed, "model"))
        parts = {
            f"client-{number}": rng.choice(count, self.samples, replace=False) for number in range(1, self.clients + 1)
        }
        return Federation(Problem(model, examples), examples, parts, None)


SCENARIOS = {
    "lenet": Scenario("lenet", (3, 32, 32), samples=417, batch_size=50),
    "mnist-cnn": Scenario("mnist-cnn", (1, 28, 28), samples=500, batch_size=100),
    "vgg11": Scenario("vgg11", (3, 32, 32), samples=417, batch_size=50, classes=100),
}
"""LeNet on the shapes of CIFAR-10, the CNN of McMahan et al. 2017 on those of MNIST, and VGG-11 on those of CIFAR-100,
each divided among 120 clients."""


@dataclass(frozen=True)
class RoundCost:
    """The cost of a round; seconds are wall-clock time, bytes those of all clients, without the model they receive.

    ``train_seconds`` is how long the round waited for clients to train, ``protect_seconds`` what secure aggregation
    took beyond that. Exchanging keys and masking overlap with training; while they use a core, they make training
    slower, so only ``seconds`` shows the full cost of protection. ``compute_seconds`` is processor time: the training
    of all clients together.
    """

    seconds: float
    train_seconds: float
    protect_seconds: float
    compute_seconds: float
    upload_bytes: int
    download_bytes: int

    @classmethod
    def of(cls, record: RoundRecord) -> "RoundCost":
        """Take the costs from a round's record."""
        return cls(*(getattr(record, cost.name) for cost in fields(cls)))


@dataclass(frozen=True)
class TrainingCosts:
    """The same rounds with and without protection; rounds at the same position of both lists were played in turns."""

    parameters: int
    workers: int
    secure: tuple[RoundCost, ...]
    plain: tuple[RoundCost, ...]
    memory_seconds: float
    """The time of the clients' memories in a round, measured on the files of this run: a part of a secure round."""

    @property
    def memory_share(self) -> float:
        """The share of a secure round that clients spend on their memories."""
        return self.memory_seconds / typical(self.secure).seconds

    @property
    def overhead(self) -> float:
        """How many times as long as a plain round a secure round takes: the median over the pairs."""
        return statistics.median(
            secure.seconds / plain.seconds for secure, plain in zip(self.secure, self.plain, strict=True)
        )

    @property
    def headroom(self) -> float:
        """How many times as long as its gradients a plain round takes, if workers did nothing else: the median.

        A system that computes the same gradients in the same way cannot be faster than our plain rounds by more than
        this.
        """
        return statistics.median(cost.seconds * max(1, self.workers) / cost.compute_seconds for cost in self.plain)


def typical(costs: Sequence[RoundCost]) -> RoundCost:
    """Return the median of each cost."""
    seconds, sizes = zip(*((astuple(cost)[:4], astuple(cost)[4:]) for cost in costs), strict=True)
    times = map(statistics.median, zip(*seconds, strict=True))
    return RoundCost(*times, *map(statistics.median_low, zip(*sizes, strict=True)))


def rounds_per_minute(costs: Sequence[RoundCost]) -> float:
    """Return the number of rounds of typical length in a minute."""
    return 60 / typical(costs).seconds


def measure_training(
    scenario: Scenario,
    rounds: int,
    workers: int,
    folder: Path,
    watch: Callable[[int], None] = lambda _pairs: None,
) -> TrainingCosts:
    """Play and time pairs of rounds; a pair whose models disagree raises :class:`RoundAborted`.

    Args:
        scenario: the training.
        rounds: the number of pairs that count; one more is played before them.
        workers: processes that train; with 0, this process trains.
        folder: where both runs keep their files. It should be on a disk: in memory the ledger would be too fast.
        watch: called with the number of pairs that have been played.

    """
    if rounds < 1:
        raise ConfigError(f"at least 1 round must be measured, not {rounds}")
    if workers < 0:
        raise ConfigError(f"there cannot be {workers} workers")
    federation = scenario.federation()
    total = _WARM_UP + rounds
    with ExitStack() as stack:
        secure, plain = (
            _TimedRun(scenario.config(kind, total, workers), federation, folder / kind, stack)
            for kind in ("secure", "plain")
        )
        for number in range(1, total + 1):
            for side in (secure, plain) if number % 2 else (plain, secure):
                side.play(number)
            _check(secure, plain)
            plain.strategy.restore(secure.strategy.state())
            watch(number)
    costs = [tuple(map(RoundCost.of, side.records[_WARM_UP:])) for side in (secure, plain)]
    remembering = measure_memories(RunFolder.open(folder / "secure"), secure.records[-1].aggregated)
    return TrainingCosts(parameter_count(federation.problem.model), workers, costs[0], costs[1], remembering)


def measure_memories(folder: RunFolder, clients: Sequence[str]) -> float:
    """Time the memories of these clients in a round: enter a session, answer twice, and agree to a sum."""
    roster = Roster.from_bytes(folder.roster_file.read_bytes())
    known = {client.name: client for client in roster.clients}
    spent = []
    with MemoryFile(folder.memory_file, durable=False) as file:
        memories = [file.of(known[name]) for name in clients]
        for _ in range(_MEMORY_ROUNDS):
            session, began = os.urandom(32), perf_counter()
            for memory in memories:
                memory.enter(session)
                memory.advance(session, 1)
                memory.advance(session, 2)
                memory.agree(session, 3, clients)
            spent.append(perf_counter() - began)
    return statistics.median(spent)


class _TimedRun:
    """A run, round by round, until ``stack`` is closed."""

    def __init__(self, config: RunConfig, federation: Federation, path: Path, stack: ExitStack) -> None:
        self.config = config
        built = build_run(config, federation)
        self.strategy = built.strategy
        self.records: list[RoundRecord] = []
        folder = RunFolder.create(path, config)
        self._engine = stack.enter_context(Engine(built, folder, self.records))

    def play(self, number: int) -> None:
        record = self._engine.round(number, resuming=False)
        if not record.completed:
            raise RoundAborted(f"round {number} of {self.config.name} was not completed: {record.reason}")
        self.records.append(record)

    @property
    def model(self) -> ModelArrays:
        return self.strategy.models()["global"]


def _check(secure: _TimedRun, plain: _TimedRun) -> None:
    """Check that both sides aggregated the same clients, and that their models differ by no more than rounding."""
    number, clients = plain.records[-1].round, plain.records[-1].aggregated
    if secure.records[-1].aggregated != clients:
        raise RoundAborted(f"in round {number} both sides should have aggregated the same clients")
    settings = plain.config.aggregation
    quantized = Quantizer(settings.clip, settings.precision, len(clients)).error_bound(len(clients), len(clients))
    error = max(float(np.abs(a - b).max()) for a, b in zip(secure.model, plain.model, strict=True))
    # Each side rounds its mean and its model to float32, relative to the clip and to the largest weight.
    largest = max(float(np.abs(array).max()) for array in chain(secure.model, plain.model))
    bound = quantized + 2.0**-23 * (settings.clip + largest)
    if not error <= bound:
        raise RoundAborted(f"the models of round {number} differ by {error:.3g}; rounding explains {bound:.3g}")
