"""A recorder of a strategy's rounds: it continues their numbers after an interruption, and stores their results.

A strategy's ``start`` counts from 1, so it is called with the number of remaining rounds. The recorder calls the
strategy's methods with the number of the round in the whole run. It records their results and stores them in the
checkpoint.
"""

from collections.abc import Callable, Iterable
from copy import deepcopy
from types import TracebackType
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from coterie.deployment.logs import LOGGER
from coterie.transports.flower.checkpoint import METRICS, StrategyCheckpoint, StrategyProgress

EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]

_METHODS = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")


def new_progress(arrays: ArrayRecord, train: ConfigRecord | None, evaluate: ConfigRecord | None) -> StrategyProgress:
    """Return the progress of a new run."""
    train, evaluate = train or ConfigRecord(), evaluate or ConfigRecord()
    return StrategyProgress(0, arrays, train, evaluate, deepcopy(train), deepcopy(evaluate))


def reconfigure(kept: StrategyProgress, new: StrategyProgress) -> None:
    """Update the configurations of an interrupted run with those of the run that continues it, and log differences.

    Entries that the strategy changed from round to round are always taken from the checkpoint.
    """
    differences = []
    for kind in "train", "evaluate":
        now, then = getattr(new, f"{kind}_given"), getattr(kept, f"{kind}_given")
        config = getattr(kept, f"{kind}_config")
        changed = {key for key in {**then, **config} if then.get(key) != config.get(key)}
        for key in sorted({**now, **then}):
            if now.get(key) != then.get(key):
                wins = "of the checkpoint, because the strategy changes it" if key in changed else "of this run"
                differences.append(f"{key} of {kind}_config is that {wins}")
        merged = {key: value for key, value in now.items() if key not in changed}
        merged |= {key: value for key, value in config.items() if key in changed}
        setattr(kept, f"{kind}_config", ConfigRecord(merged))
        setattr(kept, f"{kind}_given", now)
    if differences:
        LOGGER.warning("the configuration differs from that of the interrupted run: %s", "; ".join(differences))


class Recorder:
    """While it is entered, continues the numbers of a strategy's rounds, and writes a checkpoint of their results.

    The strategy's ``start`` calls its own methods, so they are replaced on this one object until the end.
    """

    def __init__(self, strategy: Strategy, progress: StrategyProgress, checkpoint: StrategyCheckpoint) -> None:
        self._strategy, self._progress, self._checkpoint = strategy, progress, checkpoint
        self._offset = progress.round
        self._own: dict[str, Callable[..., Any]] = {name: getattr(strategy, name) for name in _METHODS}
        self._replaced = {name: vars(strategy)[name] for name in _METHODS if name in vars(strategy)}
        self._sent = progress.train_config
        self.number = self._offset
        """The current round, counted over interruptions."""

    def __enter__(self) -> None:
        vars(self._strategy).update({name: getattr(self, name) for name in _METHODS})

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in _METHODS:
            delattr(self._strategy, name)
        vars(self._strategy).update(self._replaced)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure the training of a round, with its number in the whole run."""
        self._sent = config
        self.number = server_round + self._offset
        messages: Iterable[Message] = self._own["configure_train"](self.number, arrays, config, grid)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate a round, and write the checkpoint if it had a result."""
        number, progress = server_round + self._offset, self._progress
        arrays, metrics = self._own["aggregate_train"](number, replies)
        if arrays is None:
            return arrays, metrics
        progress.train_config = self._sent
        progress.round, progress.arrays = number, arrays
        if metrics is not None:
            progress.result.train_metrics_clientapp[number] = metrics
        self._checkpoint.save(progress, self._strategy)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure the evaluation of a round, with its number in the whole run."""
        self._progress.evaluate_config = config
        self.number = server_round + self._offset
        messages: Iterable[Message] = self._own["configure_evaluate"](self.number, arrays, config, grid)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate the evaluation of a round, with its number in the whole run."""
        number = server_round + self._offset
        metrics: MetricRecord | None = self._own["aggregate_evaluate"](number, replies)
        self._note(self._progress.result.evaluate_metrics_clientapp, number, metrics)
        return metrics

    def with_continued_numbers(self, evaluate_fn: EvaluateFunction | None) -> EvaluateFunction | None:
        """Return the server's evaluation function, with continued round numbers."""
        if evaluate_fn is None:
            return None

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            number = server_round + self._offset
            metrics = evaluate_fn(number, arrays)
            self._note(self._progress.result.evaluate_metrics_serverapp, number, metrics)
            return metrics

        return evaluate

    def catch_up(self, grid: Grid, timeout: float) -> None:
        """Let nodes evaluate the last round before an interruption, if its evaluation is missing.

        Evaluation on the server needs no such step: ``start`` evaluates the model it begins with.
        """
        progress = self._progress
        if progress.round and progress.round not in progress.result.evaluate_metrics_clientapp:
            messages = self.configure_evaluate(0, progress.arrays, progress.evaluate_config, grid)
            self.aggregate_evaluate(0, grid.send_and_receive(messages, timeout=timeout))

    def complete_result(self, result: Result) -> Result:
        """Return the result of all rounds, those before an interruption included."""
        if isinstance(result, Result):
            result.arrays = result.arrays or self._progress.arrays
            for kind in METRICS if self._offset else ():
                found = {number + self._offset: metrics for number, metrics in getattr(result, kind).items()}
                setattr(result, kind, {**getattr(self._progress.result, kind), **found})
        return result

    def _note(self, metrics: dict[int, MetricRecord], number: int, found: MetricRecord | None) -> None:
        if found is not None:
            metrics[number] = found
            if 0 < number == self._progress.round:  # a round without a result is not in the checkpoint
                self._checkpoint.save(self._progress, self._strategy)
