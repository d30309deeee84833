"""How the clients of a round are selected and trained, and how their updates become one mean: securely or plainly.

Both ways select with the same policy, lose the same clients at the same moments and aggregate whole circles only, so
that they differ in protection and rounding and in nothing else. Only where so many shares are lost that masks cannot
be removed does a secure round fail that would succeed without masks.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.arithmetic.quantize import Encoded, Layout, Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.cohorts.circles import Mask
from coterie.cohorts.ledger import Outcome
from coterie.cohorts.policies import Policy
from coterie.cohorts.roster import Roster
from coterie.crypto.entropy import Entropy
from coterie.errors import LocalProtocolError, RoundAborted
from coterie.privacy import NoisyQuantizer
from coterie.secagg.server import Step
from coterie.training.executors.processes import Trainer, TrainingError
from coterie.training.flatten import ModelArrays
from coterie.training.strategies import Strategy, plain_round, weighted_mean
from coterie.training.streams import stream
from coterie.transports.faults import Faults, Kind
from coterie.transports.memory import Report
from coterie.transports.rounds import PlayedRound, Rounds

_TOO_FEW = "too few clients are available"

Observe: TypeAlias = Callable[[str, int, int], None]
"""Told of progress inside a round: the step, how many clients have answered, and how many are asked."""


@dataclass(frozen=True, eq=False)
class Played:
    """What became of a round; ``mean`` is there if and only if there is something to learn from."""

    outcome: Outcome
    reason: str = ""
    selected: tuple[str, ...] = ()
    aggregated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    stranded: tuple[str, ...] = ()
    mean: ModelArrays | None = field(default=None, repr=False)
    losses: Mapping[str, float] = field(default_factory=dict, repr=False)
    clipped: float = 0.0
    upload_bytes: int = 0
    download_bytes: int = 0
    train_seconds: float = 0.0
    protect_seconds: float = 0.0
    compute_seconds: float = 0.0


class LocalUpdates:
    """Has the clients of a round trained, and notes how long anybody waited for that."""

    def __init__(self, strategy: Strategy, trainer: Trainer) -> None:
        self.strategy = strategy
        self._trainer = trainer
        self._waits: list[tuple[float, float]] = []
        self.losses: dict[str, float] = {}
        self._computed: dict[str, float] = {}

    def begin(self) -> None:
        """Forget the round before."""
        self._waits, self.losses, self._computed = [], {}, {}

    def start(self, number: int, clients: Sequence[str]) -> None:
        """Let these clients begin to train."""
        self._trainer.start([self.strategy.task(number, client) for client in clients])

    def contribution(self, client: str) -> ModelArrays:
        """Wait for a client's update; called from several threads at once."""
        began = time.perf_counter()
        result = self._trainer.result(client)
        self._waits.append((began, time.perf_counter()))
        self.losses[client] = result.loss
        self._computed[client] = result.seconds
        contribution = self.strategy.contribution(result)
        if contribution is None:
            raise LocalProtocolError(f"{type(self.strategy).__name__} has nothing to aggregate")
        if not all(np.isfinite(array).all() for array in contribution):
            raise TrainingError(
                f"the update of {client} in round {result.round} is not finite: training diverges; "
                "try a lower training.learning_rate"
            )
        return contribution

    @property
    def seconds(self) -> float:
        """How long at least one thread waited: the union of all waits, not their sum."""
        total, reached = 0.0, 0.0
        for began, ended in sorted(self._waits):
            total += max(0.0, ended - max(began, reached))
            reached = max(reached, ended)
        return total

    @property
    def compute_seconds(self) -> float:
        """Processor time of all clients whose update was asked for."""
        return sum(self._computed.values())


class Aggregation(Protocol):
    """A way to play rounds."""

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play round ``number``, counted from 1."""
        ...


class Secure:
    """Rounds of secure aggregation: the server sees sums over whole circles, and nothing else.

    An entry of the mean is within :meth:`Quantizer.error_bound` of that of :class:`Plain`, unless there is noise.
    """

    def __init__(
        self,
        rounds: Rounds,
        bench: LocalUpdates,
        codec: Quantizer | NoisyQuantizer,
        layout: Layout,
        seed: int,
        entropy: Callable[[int, str], Entropy],
        observe: Observe | None = None,
    ) -> None:
        """Prepare rounds; ``entropy`` gives a client's source of noise in a round, ``seed`` decides the rounding."""
        self._rounds, self._bench, self._codec, self._layout = rounds, bench, codec, layout
        self._seed = seed
        self._entropy = entropy
        self._observe = observe

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play a round through the real protocol; its ledger is kept."""
        bench = self._bench
        bench.begin()
        clipped: dict[str, int] = {}

        def vector(name: str) -> RingVector:
            encoded = self._encode(number, name, bench.contribution(name))
            clipped[name] = encoded.clipped
            return encoded.vector

        played = self._rounds.play(
            number,
            available,
            vector,
            rng,
            faults=faults,
            observe=self._observe,
            on_select=lambda names: bench.start(number, who_trains(faults, names)),
            resuming=resuming,
        )
        report = played.report or Report()
        outcome, reason, mean = played.outcome, str(played.error or ""), None
        if outcome is Outcome.SKIPPED:
            reason = _TOO_FEW
        if played.aggregate is not None:
            try:
                mean = self._codec.decode(played.aggregate.total, self._layout, len(played.aggregate.clients)).mean
            except RoundAborted as error:
                outcome, reason = Outcome.ABORTED_AFTER_REVEAL, str(error)
        revealed = outcome in (Outcome.COMPLETED, Outcome.ABORTED_AFTER_REVEAL)
        steps = report.steps.values()
        return Played(
            outcome,
            reason,
            played.selected,
            report.aggregated if revealed else (),
            dropped=_without(played.selected, _remaining(played)),
            stranded=_without(report.survivors, report.aggregated),
            mean=mean,
            losses=bench.losses,
            clipped=sum(clipped.values()) / max(1, len(clipped) * self._layout.size),
            upload_bytes=sum(sum(step.upload_bytes) for step in steps),
            download_bytes=sum(sum(step.download_bytes) for step in steps),
            train_seconds=bench.seconds,
            protect_seconds=max(0.0, report.seconds - bench.seconds),
            compute_seconds=bench.compute_seconds,
        )

    def _encode(self, number: int, name: str, arrays: ModelArrays) -> Encoded:
        rounding = stream(self._seed, "rounding", number, name)
        if isinstance(self._codec, NoisyQuantizer):
            return self._codec.encode(arrays, rounding, self._entropy(number, name))
        return self._codec.encode(arrays, rounding, self._bench.strategy.weight(name))


class Plain:
    """The same rounds without protection: the server sees every update. For comparison."""

    def __init__(
        self,
        roster: Roster,
        policy: Policy,
        bench: LocalUpdates,
        clip: float,
        minimum: int,
        frequencies: NDArray[np.int64],
    ) -> None:
        self._roster, self._policy, self._bench = roster, policy, bench
        self._clip, self._minimum = clip, minimum
        self._frequencies = frequencies.copy()

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play a round; clients leave when they would leave a secure one."""
        bench, roster = self._bench, self._roster
        bench.begin()
        chosen = self._policy.select(available, self._frequencies, rng)
        selected = tuple(roster.names[client] for client in chosen)
        if len(selected) < self._minimum:
            return Played(Outcome.SKIPPED, _TOO_FEW, selected)
        present = who_trains(faults, selected)
        bench.start(number, present)
        clipped = 0
        updates: dict[str, ModelArrays] = {}
        for name in present:
            arrays = bench.contribution(name)
            clipped += sum(int(np.count_nonzero(np.abs(array) > self._clip)) for array in arrays)
            updates[name] = [np.clip(array, -self._clip, self._clip) for array in arrays]
        survivors = _still_there(faults, Step.MASK, present)
        aggregated = self._whole_circles(survivors)
        lasting = survivors
        for step in Step.CONFIRM, Step.REVEAL:
            lasting = _still_there(faults, step, lasting)
        entries = sum(array.size for arrays in updates.values() for array in arrays)
        played = Played(
            Outcome.COMPLETED,
            "",
            selected,
            aggregated,
            dropped=_without(selected, lasting),
            stranded=_without(survivors, aggregated),
            losses=bench.losses,
            clipped=clipped / max(1, entries),
            upload_bytes=sum(array.nbytes for arrays in updates.values() for array in arrays),
            train_seconds=bench.seconds,
            compute_seconds=bench.compute_seconds,
        )
        if len(aggregated) < self._minimum:
            reason = f"{len(aggregated)} clients would be aggregated; the minimum is {self._minimum}"
            return replace(played, outcome=Outcome.ABORTED_BEFORE_REVEAL, reason=reason, aggregated=())
        self._frequencies += np.isin(roster.names, aggregated)
        weights = [bench.strategy.weight(name) for name in aggregated]
        return replace(played, mean=weighted_mean([updates[name] for name in aggregated], weights))

    def _whole_circles(self, survivors: Collection[str]) -> tuple[str, ...]:
        circles = [[self._roster.names[client] for client in circle] for circle in self._roster.circles]
        there = set(survivors)
        whole = {name for circle in circles if there.issuperset(circle) for name in circle}
        return tuple(name for name in survivors if name in whole)


class Baseline:
    """Rounds of a baseline, in which everybody trains, whoever is available, and there is nothing to protect."""

    def __init__(self, strategy: Strategy, trainer: Trainer) -> None:
        self._strategy, self._trainer = strategy, trainer

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play a round, in which the strategy learns by itself."""
        began = time.perf_counter()
        results = plain_round(self._strategy, self._trainer, number, self._strategy.clients)
        losses = {result.client: result.loss for result in results}
        return Played(
            Outcome.COMPLETED,
            losses=losses,
            train_seconds=time.perf_counter() - began,
            compute_seconds=sum(result.seconds for result in results),
        )


def who_trains(faults: Faults, selected: Collection[str]) -> tuple[str, ...]:
    """Return all who can still be there when updates are asked for; the others would train for nothing.

    Training begins with the round, for it need not wait until keys and shares are exchanged.
    """
    return _still_there(faults, Step.SHARE, _still_there(faults, Step.ADVERTISE, selected))


def _still_there(faults: Faults, step: Step, clients: Collection[str]) -> tuple[str, ...]:
    lost = (Kind.DROP, Kind.DELAY)
    return tuple(name for name in clients if not any(faults.strikes(kind, step, name) for kind in lost))


def _remaining(played: PlayedRound) -> tuple[str, ...]:
    """Who was there to the end, or until the round was given up."""
    report = played.report
    if report is None:
        return played.selected
    last = list(report.steps)[-1]
    if last is Step.REVEAL and played.outcome is not Outcome.ABORTED_BEFORE_REVEAL:
        return report.revealers
    return {Step.ADVERTISE: report.advertisers, Step.SHARE: report.sharers}.get(last, report.survivors)


def _without(clients: Collection[str], others: Collection[str]) -> tuple[str, ...]:
    gone = set(others)
    return tuple(name for name in clients if name not in gone)
