"""The loop over rounds: who is there, what goes wrong, what is aggregated, what the model learns from it."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from coterie.auditing.auditor import Auditor
from coterie.cohorts.ledger import Head, Ledger, Outcome
from coterie.errors import InputError, LocalProtocolError
from coterie.host import keep_memory
from coterie.runs.engine import build as assembly
from coterie.runs.engine.build import BuiltRun
from coterie.runs.engine.federation import fingerprint
from coterie.runs.engine.played import Aggregation, Observe
from coterie.runs.engine.resources import RunResources
from coterie.runs.records.record import RoundRecord, extend
from coterie.runs.settings.toml import to_toml
from coterie.runs.storage.folder import Checkpoint, Progress, RunFolder
from coterie.training.evaluate import Score
from coterie.training.executors.processes import make_trainer
from coterie.training.streams import stream


class Engine:
    """Plays the rounds of a run, from where the records end; a context manager, for it has workers and a ledger."""

    def __init__(
        self,
        built: BuiltRun,
        folder: RunFolder,
        records: Sequence[RoundRecord],
        head: Head | None = None,
        observe: Observe = lambda _step, _done, _asked: None,
    ) -> None:
        """Take up a run, its strategy as it was after these records; ``head`` is what the ledger must still contain."""
        self._built, self._folder = built, folder
        self._observe = observe
        self._auditor = Auditor(built.federation.parts)
        for record in records:
            self._auditor.add_round(record.round, record.aggregated)
        self._scores: Mapping[str, Score] = {}
        self._fingerprints = fingerprint(built.federation)
        self._ledger: Ledger | None = None
        self._head = head
        self._stack = ExitStack()
        self._aggregation: Aggregation | None = None

    def __enter__(self) -> "Engine":
        keep_memory()
        with ExitStack() as stack:
            self._aggregation = self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def checkpoint(self, rounds: int) -> Checkpoint:
        """Return all that is needed to go on after so many rounds."""
        head = self._ledger.head() if self._ledger else None
        progress = Progress(
            rounds=rounds,
            ledger=head,
            settings=to_toml(self._built.config),
            fingerprints=self._fingerprints,
        )
        return Checkpoint(progress, self._built.strategy.state())

    def round(self, number: int, *, resuming: bool) -> RoundRecord:
        """Play round ``number``; with ``resuming``, one that may have been begun before."""
        if self._aggregation is None:
            raise LocalProtocolError("the engine is used as a context manager")
        began = time.perf_counter()
        config, algorithm, strategy = self._built.config, self._built.config.algorithm, self._built.strategy
        available = self._built.availability.draw(number, stream(config.seed, "availability", number))
        played = self._aggregation.play(
            number,
            available,
            stream(config.seed, "selection", number),
            assembly.make_faults(config, number),
            resuming=resuming,
        )
        self._auditor.add_round(number, played.aggregated)
        if played.mean is not None:
            if config.tracking.sums:
                self._folder.keep_sum(number, played.mean)
            strategy.apply(number, played.mean)
        if played.outcome is Outcome.COMPLETED:
            self._scores = {}
        scores = self._evaluate(number)
        strong_privacy, exposed = self._exposure()
        own = [score for name, score in scores.items() if name not in algorithm.aside]
        epsilon = algorithm.epsilon(self._built, self._auditor.revealed)
        record = RoundRecord(
            round=number,
            outcome=played.outcome,
            reason=played.reason,
            available=int(np.count_nonzero(available)) if algorithm.aggregates else None,
            selected=len(played.selected),
            aggregated=played.aggregated,
            dropped=played.dropped,
            stranded=played.stranded,
            left_later=played.left_later,
            learning_rate=algorithm.learning_rate(self._built, number),
            train_loss=_mean([played.losses[name] for name in sorted(played.losses)]),
            test_loss=_mean([score.loss for score in own]),
            accuracy=_mean([score.accuracy for score in own if score.accuracy is not None]),
            error=_mean([score.error for score in own if score.error is not None]),
            strong_privacy=strong_privacy,
            exposed=exposed,
            fairness_gap=self._auditor.fairness_gap,
            cardinality=self._auditor.cardinality,
            clipped=played.clipped,
            upload_bytes=played.upload_bytes,
            download_bytes=played.download_bytes,
            epsilon=epsilon,
            seconds=time.perf_counter() - began,
            train_seconds=played.train_seconds,
            protect_seconds=played.protect_seconds,
            compute_seconds=played.compute_seconds,
        )
        record = extend(record, algorithm.columns, algorithm.measures(self._built, scores))
        return algorithm.beside_noise(record) if self._built.noisy else record

    def _open(self, stack: ExitStack) -> Aggregation:
        built, training = self._built, self._built.config.training
        trainer = make_trainer(
            built.federation.problem,
            training.workers if training.workers >= 0 else None,
            "vectorised" if training.executor == "vectorised" else "processes",
        )
        stack.enter_context(trainer)
        if built.protections:
            self._ledger = stack.enter_context(Ledger.open(self._folder.ledger_file))
            recorded = self._ledger.verify(self._head)
            if self._head is None and recorded.sequence:
                raise InputError(
                    f"{self._folder.ledger_file} has rounds of a run whose {self._folder.checkpoint_file.name} is "
                    "missing: nobody knows under which settings they were played. Put it back, or begin a new run"
                )
            if recorded.sequence and not self._folder.memory_file.exists():
                raise InputError(
                    f"{self._folder.memory_file} is missing: clients have forgotten how their inputs were made, and "
                    "a round played again could have other noise. Put it back, or begin a new run"
                )
        resources = RunResources(self._folder, trainer, self._ledger, self._auditor.frequencies, self._observe, stack)
        return built.config.algorithm.rounds(built, resources)

    def _exposure(self) -> tuple[int | None, int]:
        """Return T so far and how many clients are exposed, by what the server saw: sums, or every update in them."""
        if self._built.config.aggregation.kind == "secure":
            return self._auditor.strong_privacy, len(self._auditor.exposed)
        seen = int(np.count_nonzero(self._auditor.frequencies))
        return 1 if seen else None, seen

    def _evaluate(self, number: int) -> Mapping[str, Score]:
        """Score all models if it is time to; what was found before holds as long as nothing was learnt."""
        config = self._built.config
        idle = number % config.training.evaluate_every and number < config.rounds
        if idle or not len(self._built.federation.test):
            return {}
        if not self._scores:
            models = self._built.public_models()
            self._scores = {name: self._built.score(model, name) for name, model in models.items()}
        return self._scores


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
