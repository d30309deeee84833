"""Rounds of Coterie and of other systems, in turns, in one run.

Rivals train the same model on the same examples, with the same batches and learning rate; in each round they train the
cohort that our run has just aggregated. They aggregate without protection. In the first round, which does not count,
all start from the same model, and a rival's new model must agree with ours up to rounding. This shows that it did the
same work.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path

import numpy as np

from coterie.bench import training
from coterie.bench.rivals import flower_training, pfl_training
from coterie.bench.rivals.process import Order, Rival, Serve
from coterie.bench.rivals.work import RivalTasks
from coterie.bench.training import RoundCost, Scenario, TrainingCosts
from coterie.cohorts.ledger import Ledger
from coterie.errors import ConfigError, RoundAborted
from coterie.host import install_command
from coterie.runs.storage.folder import RunFolder
from coterie.training.executors.processes import make_trainer
from coterie.training.flatten import ModelArrays
from coterie.training.strategies import plain_round


@dataclass(frozen=True)
class System:
    """A system to compare with: its packages, the release of the first that is driven, and how to install them."""

    title: str
    release: str
    packages: tuple[str, ...]
    install: str
    parts: Callable[[Scenario, int, int], Sequence[Serve]]

    def require(self) -> None:
        """Check what is installed, without importing it."""
        found = {package: _installed_version(package) for package in self.packages}
        wrong = [f"{package} is not installed" for package, there in found.items() if there is None]
        package = self.packages[0]
        if found[package] not in (None, self.release):
            wrong.append(f"{package} is {found[package]}")
        if wrong:
            reason = f"comparing with {self.title} needs {package} {self.release}, but {', '.join(wrong)}"
            raise ConfigError(f"{reason}: {self.install}")


SYSTEMS = {
    "flower": System("Flower", "1.41.0", ("flwr", "ray"), install_command("simulation"), flower_training.parts),
    # pfl asks for a dp-accounting that is older than ours, but does not need it for this.
    "pfl": System(
        "pfl",
        "0.6.0",
        ("pfl", "prv-accountant", "multiprocess", "dill"),
        "pip install --no-deps pfl==0.6.0 prv-accountant==0.2.0 multiprocess dill",
        pfl_training.parts,
    ),
}
"""The systems to compare with, by name."""


@dataclass(frozen=True)
class RivalCosts:
    """The costs of a rival's rounds, in the order of ours; each was played right after ours."""

    system: System
    seconds: tuple[float, ...]
    error: float
    """The largest deviation of its model from ours after the first round."""

    @property
    def rounds_per_minute(self) -> float:
        """The number of rounds of median length in a minute."""
        return 60 / statistics.median(self.seconds)

    def slowdown(self, ours: Sequence[RoundCost]) -> float:
        """Return how many times as long as our round a rival's round takes: the median over the rounds."""
        return statistics.median(theirs / cost.seconds for theirs, cost in zip(self.seconds, ours, strict=True))


def measure_rivals(
    scenario: Scenario,
    rounds: int,
    workers: int,
    folder: Path,
    names: Sequence[str],
    watch: Callable[[int], None] = lambda _pairs: None,
) -> tuple[TrainingCosts, dict[str, RivalCosts]]:
    """Play our pairs of rounds (:func:`~coterie.bench.training.measure_training`), and after each every rival's round.

    Args:
        scenario: the training.
        rounds: the number of rounds that count; one more is played before them.
        workers: processes that train, on each side; the rivals need at least one.
        folder: for the files of both runs, and for what the rivals print.
        names: the systems to compare with, from :data:`SYSTEMS`.
        watch: called with the number of rounds that all systems have played.

    """
    systems = {name: SYSTEMS[name] for name in dict.fromkeys(names)}
    for system in systems.values():
        system.require()
    total = rounds + 1
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    errors: dict[str, float] = {}
    with ExitStack() as stack:
        rivals = {
            name: stack.enter_context(
                Rival(system.title, system.parts(scenario, total, workers), folder / f"{name}.log")
            )
            for name, system in systems.items()
        }
        for rival in rivals.values():
            rival.ready()

        def play(number: int) -> None:
            if rivals:
                order = Order(number, _cohort(folder, number))
                expected = _our_model(scenario, order) if number == 1 else None
            for name, rival in rivals.items():
                answer = rival.play(order)
                seconds[name].append(answer.seconds)
                if expected is not None:
                    errors[name] = check_model(rival.name, answer.model, expected, len(order.clients))
            watch(number)

        costs = training.measure_training(scenario, rounds, workers, folder, play)
    return costs, {name: RivalCosts(system, tuple(seconds[name][1:]), errors[name]) for name, system in systems.items()}


def check_model(name: str, model: ModelArrays, expected: ModelArrays, clients: int) -> float:
    """Return the largest deviation of a rival's model from ours; :class:`RoundAborted` if rounding does not explain it.

    Each side rounds every client's model, their sum and the mean to float32.
    """
    error = max(float(np.abs(a - b).max()) for a, b in zip(model, expected, strict=True))
    bound = (clients + 2) * 2.0**-23 * max(float(np.abs(array).max()) for array in chain(model, expected))
    if not error <= bound:
        raise RoundAborted(f"the model of {name} differs from ours by {error:.3g}; rounding explains {bound:.3g}")
    return error


def _cohort(folder: Path, number: int) -> tuple[str, ...]:
    """Return the clients that our run aggregated, from its ledger."""
    with Ledger.open(RunFolder.open(folder / "secure").ledger_file, create=False) as ledger:
        return dict(ledger.rows())[number]


def _our_model(scenario: Scenario, order: Order) -> ModelArrays:
    """Play a round of ours without protection, from the initial model."""
    place = RivalTasks(scenario, order.number)
    with make_trainer(place.problem, 0) as trainer:
        plain_round(place.strategy, trainer, order.number, order.clients)
    return place.model


def _installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
