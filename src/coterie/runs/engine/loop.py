"""The loop of a run: select, train, aggregate, apply, evaluate, record, and call observers, in every round.

:meth:`Engine.run` is the loop, and :meth:`Engine.round` one round up to its record. Selecting, training and aggregating
depend on how sums are made: see :class:`~coterie.runs.algorithms.base.Rounds`.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from coterie.auditing.auditor import Auditor
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.outcome import Outcome
from coterie.errors import LocalProtocolError
from coterie.host import keep_memory
from coterie.rounds.outcome import RoundResult
from coterie.runs.algorithms.base import Rounds
from coterie.runs.engine import build as assembly
from coterie.runs.engine.build import BuiltRun
from coterie.runs.engine.cohort_rounds import OnStep, RunResources, cohort_rounds
from coterie.runs.engine.history import Exposed, check_exposure, check_history, check_memories, check_secret
from coterie.runs.engine.presence import late_clients
from coterie.runs.records.record import RoundCosts, RoundRecord, Stop, extend
from coterie.runs.report.observers import Observer
from coterie.runs.settings.toml import to_toml
from coterie.runs.storage.folder import Checkpoint, Journal, Progress, RunFolder
from coterie.training.evaluate import Score
from coterie.training.executors.processes import Trainer, make_trainer
from coterie.training.flatten import ModelArrays
from coterie.training.streams import stream


class Engine:
    """Plays the rounds after those in the records. A context manager, because it has workers and a ledger."""

    def __init__(
        self,
        built: BuiltRun,
        folder: RunFolder,
        records: Sequence[RoundRecord],
        progress: Progress | None = None,
        on_step: OnStep = lambda _step, _done, _asked: None,
    ) -> None:
        """Continue a run after these records. Its strategy must have the state of ``progress``; None begins a run."""
        self._built, self._folder, self._on_step = built, folder, on_step
        self._records, self._progress = tuple(records), progress
        self.auditor = Auditor(built.federation.parts)
        """The auditor of the rounds so far."""
        self._replayed: list[Exposed] = []
        for record in records:
            self.auditor.add_round(record.round, record.aggregated)
            self._replayed.append(self._exposure())
        self._scores: Mapping[str, Score] = {}
        self._ledger: Ledger | None = None
        self._memories: MemoryFile | None = None
        self._secret = ""
        self._stack = ExitStack()
        self._open: tuple[Rounds, Trainer] | None = None

    def __enter__(self) -> "Engine":
        keep_memory()
        with ExitStack() as stack:
            self._open = self._open_rounds(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(
        self,
        records: list[RoundRecord],
        journal: Journal,
        observer: Observer,
        *,
        resuming: bool,
        interrupted: Callable[[], bool],
    ) -> Stop | None:
        """Play the remaining rounds, and add their records. If an observer ends the run early, return its reason.

        A round is on disk before observers see it and before the next one begins. With ``resuming``, the first round
        may already have begun before a crash.
        """
        stop, first = None, len(records) + 1
        for number in range(first, self._built.config.rounds + 1):
            if stop is not None or interrupted():
                break
            record = self.round(number, resuming=resuming and number == first)  # all steps up to the record
            journal.add(record)
            self.save(number)
            records.append(record)
            stop = observer.after_round(record)
        if stop is not None:
            self.save(len(records), stop)
        return stop

    def round(self, number: int, *, resuming: bool) -> RoundRecord:
        """Play round ``number`` and return its record; with ``resuming``, it may have begun before a crash."""
        if self._open is None:
            raise LocalProtocolError("the engine is used as a context manager")
        began = time.perf_counter()
        built, (rounds, trainer) = self._built, self._open
        seed, algorithm = built.config.seed, built.algorithm
        available = built.availability.draw(number, stream(seed, "availability", number))
        excluded = algorithm.excluded()
        eligible = available & ~np.isin(built.federation.names, excluded) if excluded else available
        faults = replace(assembly.make_faults(built.config, number), prompt=frozenset(algorithm.ready()))

        rounds.select(number, eligible, stream(seed, "selection", number), faults, resuming=resuming)
        rounds.train()
        result, costs = rounds.aggregate()
        self.auditor.add_round(number, result.revealed)
        summed = result.revealed if result.value is not None else ()
        late = late_clients(faults, result.attendance.selected) if result.outcome is not Outcome.SKIPPED else ()
        algorithm.attend(summed, late, faults.cut_off(built.strategy.clients))
        if result.value is not None:
            if built.config.tracking.sums:
                self._folder.keep_sum(number, result.value)
            costs = algorithm.apply(number, result.value, costs, trainer)
        if result.outcome is Outcome.COMPLETED:
            self._scores = {}
        scores = self._evaluate(number)
        return self._record(result, costs, scores, int(np.count_nonzero(available)), began)

    def save(self, rounds: int, stop: Stop | None = None) -> None:
        """Write everything that is needed to continue after this number of rounds, or the reason for the end.

        The clients' memories are on disk before the checkpoint. So they contain all rounds that it counts, even after a
        loss of power.
        """
        if self._memories:
            self._memories.sync()
        self._folder.save(self._checkpoint(rounds, stop))

    def _checkpoint(self, rounds: int, stop: Stop | None) -> Checkpoint:
        progress = Progress(
            rounds=rounds,
            ledger=self._ledger.head() if self._ledger else None,
            settings=to_toml(self._built.config),
            fingerprints=self._built.federation.fingerprints,
            stop=stop,
            secret=self._secret,
        )
        return Checkpoint(progress, self._built.strategy.state())

    def _evaluate(self, number: int) -> Mapping[str, Score]:
        """Score all models if the round is to be evaluated. Reuse old scores if the models have not changed."""
        built = self._built
        idle = number % built.config.training.evaluate_every and number < built.config.rounds
        if idle or not built.has_tests:
            return {}
        if not self._scores:
            models = built.public_models()
            self._scores = {name: built.score(models[name], name) for name in built.scored(models)}
        return self._scores

    def _record(
        self,
        result: RoundResult[ModelArrays],
        costs: RoundCosts,
        scores: Mapping[str, Score],
        available: int,
        began: float,
    ) -> RoundRecord:
        """Return the record of a round; with noise, only what may be public."""
        built, algorithm, auditor = self._built, self._built.algorithm, self.auditor
        strong_privacy, exposed = self._exposure()
        own = [score for name, score in scores.items() if name not in algorithm.aside]
        # A mean over other clients could be that of a single client whose circle was not summed.
        trained = result.revealed if algorithm.aggregates else costs.losses
        record = RoundRecord(
            round=result.number,
            outcome=result.outcome,
            reason=result.reason,
            available=available if algorithm.aggregates else None,
            selected=len(result.attendance.selected),
            aggregated=result.revealed,
            dropped=result.dropped,
            stranded=result.stranded,
            left_later=result.left_later,
            learning_rate=algorithm.learning_rate(result.number),
            train_loss=_mean([costs.losses[name] for name in sorted(trained) if name in costs.losses]),
            test_loss=_mean([score.loss for score in own]),
            accuracy=_mean([score.accuracy for score in own if score.accuracy is not None]),
            error=_mean([score.error for score in own if score.error is not None]),
            strong_privacy=strong_privacy,
            exposed=exposed,
            fairness_gap=auditor.fairness_gap,
            cardinality=auditor.cardinality,
            clipped=costs.clipped_of(trained),
            upload_bytes=costs.upload_bytes,
            download_bytes=costs.download_bytes,
            epsilon=built.epsilon(auditor.revealed),
            example_epsilon=built.example_epsilon(auditor.revealed),
            seconds=time.perf_counter() - began,
            train_seconds=costs.train_seconds,
            protect_seconds=costs.protect_seconds,
            compute_seconds=costs.compute_seconds_of(trained),
        )
        metrics = {name: _mean([score.metrics[name] for score in own]) for name in built.federation.metrics}
        record = extend(record, built.config.columns, {**algorithm.measures(scores, built.sigma), **metrics})
        return algorithm.beside_noise(record, metrics) if built.noisy else record

    def _exposure(self) -> Exposed:
        """Return T so far and the number of exposed clients. Without protection, every client in a sum is exposed."""
        if self._built.config.aggregation.kind == "secure":
            return self.auditor.strong_privacy, len(self.auditor.exposed)
        seen = int(np.count_nonzero(self.auditor.frequencies))
        return 1 if seen else None, seen

    def _open_rounds(self, stack: ExitStack) -> tuple[Rounds, Trainer]:
        built, folder, training = self._built, self._folder, self._built.config.training
        trainer = make_trainer(
            built.federation.problem,
            training.workers if training.workers >= 0 else None,
            "vectorised" if training.executor == "vectorised" else "processes",
        )
        stack.enter_context(trainer)
        if built.protections:
            self._ledger = stack.enter_context(Ledger.open(folder.ledger_file, plain=True))
            check_history(folder, self._progress, self._records, self._ledger)
            self._memories = stack.enter_context(MemoryFile(folder.memory_file, durable=False))
            check_memories(folder, self._ledger, self._memories, built.federation.parts, self._records)
            self._secret = check_secret(folder, self._progress)
        check_exposure(folder, self._records, self._replayed)
        frequencies = dict(zip(built.federation.parts, self.auditor.frequencies, strict=True))
        numbered = np.array([frequencies[name] for name in built.federation.names])
        resources = RunResources(
            trainer, folder.secret, stack, folder, self._ledger, self._memories, numbered, self._on_step
        )
        return built.algorithm.rounds(resources) or cohort_rounds(built, resources), trainer


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
