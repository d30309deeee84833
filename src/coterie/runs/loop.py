"""One round after the other: who is there, what goes wrong, what is aggregated, what the model learns from it."""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack

from coterie.cohorts.ledger import Head, Ledger
from coterie.errors import InputError, LocalProtocolError
from coterie.host import keep_memory
from coterie.privacy import PrivacySpending, Release
from coterie.runs import build as assembly
from coterie.runs.aggregation import Aggregation, Baseline, LocalUpdates, Observe, Plain, Played, Secure
from coterie.runs.config import RunConfig
from coterie.runs.federation import Federation
from coterie.runs.folder import Checkpoint, Progress, RunFolder, write_whole
from coterie.runs.records import RoundRecord, Standing
from coterie.training.evaluate import Score, evaluate
from coterie.training.executors.processes import make_trainer
from coterie.training.strategies import Strategy
from coterie.training.streams import stream
from coterie.transports.rounds import Rounds


class Engine:
    """Plays the rounds of a run, from where the records end; a context manager, for it has workers and a ledger."""

    def __init__(
        self,
        config: RunConfig,
        federation: Federation,
        folder: RunFolder,
        strategy: Strategy,
        records: Sequence[RoundRecord],
        head: Head | None = None,
        observe: Observe = lambda _step, _done, _asked: None,
    ) -> None:
        """Put the parts together; ``head`` is what the ledger must still contain."""
        self._config, self._federation, self._folder, self._strategy = config, federation, folder, strategy
        self._observe = observe
        self._availability = assembly.make_availability(config, federation)
        self._schedule = assembly.make_schedule(config)
        self.standing = Standing(tuple(federation.parts), hidden=config.aggregation.kind == "secure")
        for record in records:
            self.standing.add(record.round, record.aggregated)
        self._before = records[-1] if records else None
        self._release: Release | None = None
        self.protocol = ""
        self._ledger: Ledger | None = None
        self._head = head
        self._stack = ExitStack()
        self._aggregation: Aggregation | None = None

    def __enter__(self) -> "Engine":
        keep_memory()
        with ExitStack() as stack:
            self._aggregation = self._assemble(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the epsilon of the records rests on, in words; nothing without noise."""
        return PrivacySpending().spend(self._release).assumptions if self._release else ()

    def checkpoint(self, rounds: int) -> Checkpoint:
        """Return all that is needed to go on after so many rounds."""
        head = self._ledger.head() if self._ledger else None
        return Checkpoint(Progress(rounds=rounds, ledger=head), self._strategy.state())

    def round(self, number: int, *, resuming: bool) -> RoundRecord:
        """Play round ``number``; with ``resuming``, one that may have been begun before."""
        if self._aggregation is None:
            raise LocalProtocolError("the engine is used as a context manager")
        began = time.perf_counter()
        seed = self._config.seed
        played = self._aggregation.play(
            number,
            self._availability.draw(number, stream(seed, "availability", number)),
            stream(seed, "selection", number),
            assembly.make_faults(self._config, number),
            resuming=resuming,
        )
        self.standing.add(number, played.aggregated)
        if played.mean is not None:
            self._strategy.apply(number, played.mean)
        score = self._score(number, played)
        record = RoundRecord(
            round=number,
            outcome=played.outcome,
            reason=played.reason,
            selected=len(played.selected),
            aggregated=played.aggregated,
            dropped=played.dropped,
            stranded=played.stranded,
            learning_rate=self._config.training.learning_rate * self._schedule(number),
            train_loss=_mean([played.losses[name] for name in sorted(played.losses)]),
            test_loss=score.loss if score else None,
            accuracy=score.accuracy if score else None,
            strong_privacy=self.standing.strong_privacy,
            exposed=self.standing.exposed,
            fairness_gap=self.standing.fairness_gap,
            cardinality=self.standing.cardinality,
            clipped=played.clipped,
            upload_bytes=played.upload_bytes,
            download_bytes=played.download_bytes,
            epsilon=self._epsilon(),
            seconds=time.perf_counter() - began,
            train_seconds=played.train_seconds,
            protect_seconds=played.protect_seconds,
            compute_seconds=played.compute_seconds,
        )
        self._before = record
        return record

    def _assemble(self, stack: ExitStack) -> Aggregation:
        config, folder, strategy = self._config, self._folder, self._strategy
        training, names = config.training, tuple(self._federation.parts)
        trainer = stack.enter_context(
            make_trainer(
                self._federation.problem,
                training.workers if training.workers >= 0 else None,
                "vectorised" if training.executor == "vectorised" else "processes",
            )
        )
        if training.algorithm != "fedavg":
            return Baseline(strategy, trainer)
        bench = LocalUpdates(strategy, trainer)
        secret = folder.secret()
        identities = assembly.make_identities(config, names, secret)
        dropout = self._availability.probability(1)
        roster = assembly.make_roster(config, names, dropout, identities)
        if not folder.roster_file.exists():
            write_whole(folder.roster_file, roster.to_bytes())
        elif folder.roster_file.read_bytes() != roster.to_bytes():
            raise InputError(f"{folder.roster_file} is not the roster of this run")
        policy = assembly.choose_policy(config, roster, dropout)
        frequencies = self.standing.frequencies
        if config.aggregation.kind == "plain":
            return Plain(roster, policy, bench, config.aggregation.clip, config.cohort.minimum, frequencies)
        layout = assembly.layout_of(strategy)
        protection = assembly.make_protection(config, roster, policy, layout, strategy)
        self._release, self.protocol = protection.release, str(protection)
        self._ledger = stack.enter_context(Ledger.open(folder.ledger_file))
        self._ledger.verify(self._head)
        rounds = Rounds(
            roster,
            policy,
            self._ledger,
            protection.session,
            identities=identities or None,
            workers=config.aggregation.threads if config.aggregation.threads > 0 else None,
            frequencies=frequencies,
        )
        return Secure(
            rounds,
            bench,
            protection.codec,
            layout,
            config.seed,
            lambda number, name: assembly.noise_entropy(secret, number, name),
            self._observe,
        )

    def _score(self, number: int, played: Played) -> Score | None:
        """Evaluate the model if it is time to; what was found before holds as long as nothing was learnt."""
        config, before = self._config, self._before
        if number % config.training.evaluate_every and number < config.rounds:
            return None
        unchanged = played.mean is None and config.training.algorithm == "fedavg"
        if unchanged and before is not None and before.test_loss is not None:
            return Score(before.test_loss, before.accuracy, len(self._federation.test))
        problem, test = self._federation.problem, self._federation.test
        scores = [evaluate(problem, state, test) for state in self._strategy.models().values()]
        accuracies = [score.accuracy for score in scores if score.accuracy is not None]
        loss = math.fsum(score.loss for score in scores) / len(scores)
        return Score(loss, _mean(accuracies), len(test))

    def _epsilon(self) -> float | None:
        if self._release is None:
            return None
        revealed = self.standing.revealed
        spending = PrivacySpending().spend(self._release, revealed) if revealed else PrivacySpending()
        return spending.epsilon(self._config.noise.delta)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
