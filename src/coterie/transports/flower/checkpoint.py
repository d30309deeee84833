"""Checkpoints of a strategy. Flower cannot resume a run: a second ``flwr run`` is a new one, without a history.

After every training, and every evaluation with metrics, one file is written with Flower's own records: the arrays, both
configurations (as given and as changed since), all metrics so far, and the arrays and moments of FedAvgM, FedAdagrad,
FedAdam and FedYogi. Other attributes of a strategy are not stored. An interrupted run continues from there; a finished
one leaves no checkpoint.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.serverapp.strategy import FedAvg, FedAvgM, Result, Strategy
from flwr.serverapp.strategy.fedopt import FedOpt

from coterie.deployment.checkpoint import CheckpointFile
from coterie.errors import ConfigError

_STATE: dict[type[Strategy], tuple[str, ...]] = {
    FedAvg: (),
    FedAvgM: ("current_arrays", "momentum_vector"),
    FedOpt: ("current_arrays", "m_t", "v_t"),
}
"""The attributes that Flower's strategies keep from round to round. Attributes of subclasses are not stored."""

_RESTORE: dict[str, Callable[[ArrayRecord], object]] = {
    "record": lambda state: state,
    "named": lambda state: {name: array.numpy() for name, array in state.items()},
    "listed": lambda state: [array.numpy() for array in state.values()],
}
"""The types in which strategies keep arrays."""

METRICS = ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")
"""The kinds of metrics in a result, each by rounds."""


@dataclass
class StrategyProgress:
    """The progress of a run."""

    round: int
    arrays: ArrayRecord
    train_config: ConfigRecord
    evaluate_config: ConfigRecord
    train_given: ConfigRecord
    """The original configuration of the run. Entries that differ now were changed by the strategy."""
    evaluate_given: ConfigRecord
    result: Result = field(default_factory=Result)


class StrategyCheckpoint:
    """The progress of a run and the state of its strategy, in a file."""

    def __init__(self, file: CheckpointFile) -> None:
        self._file = file

    def save(self, progress: StrategyProgress, strategy: Strategy) -> None:
        """Put the progress and the strategy's state on disk."""
        if not self._file.ours:
            return
        records = RecordDict(
            {
                "run": ConfigRecord({"round": progress.round}),
                "arrays": progress.arrays,
                "train": progress.train_config,
                "evaluate": progress.evaluate_config,
                "train-given": progress.train_given,
                "evaluate-given": progress.evaluate_given,
            }
        )
        for name in _attributes(strategy):
            records.update(_state_records(name, getattr(strategy, name)))
        for kind in METRICS:
            for number, metrics in getattr(progress.result, kind).items():
                records[f"{kind}.{number}"] = metrics
        self._file.write(recorddict_to_proto(records).SerializeToString(deterministic=True))

    def load(self, strategy: Strategy, like: ArrayRecord) -> StrategyProgress | None:
        """Return the progress of an interrupted run and put the strategy back into its state; None if there is none."""
        if (content := self._file.read()) is None:
            return None
        try:
            records = recorddict_from_proto(ProtoRecordDict.FromString(content))
            number = records.config_records["run"]["round"]
            progress = StrategyProgress(
                int(number) if isinstance(number, int) else 0,
                records.array_records["arrays"],
                records.config_records["train"],
                records.config_records["evaluate"],
                records.config_records["train-given"],
                records.config_records["evaluate-given"],
            )
            found = {kind: getattr(progress.result, kind) for kind in METRICS}
            for key, metrics in records.metric_records.items():
                kind, _, at = key.rpartition(".")
                found[kind][int(at)] = metrics
            restored = {
                name: restore(state)
                for name in _attributes(strategy)
                for kind, restore in _RESTORE.items()
                if (state := records.array_records.get(f"state.{name}.{kind}")) is not None
            }
        except Exception as error:  # protobuf, Flower and numpy raise many kinds of errors for invalid input
            raise ConfigError(f"{self._file.path} is not a checkpoint ({error}); delete it to start again") from None
        if _shapes(progress.arrays) != _shapes(like):
            raise ConfigError(
                f"the run that was interrupted after round {progress.round} had another model: delete "
                f"{self._file.path} to start again, or pass resume=False"
            )
        for name, value in restored.items():
            setattr(strategy, name, value)
        return progress


def _attributes(strategy: Strategy) -> tuple[str, ...]:
    kinds = [kind for kind in _STATE if isinstance(strategy, kind)]
    return _STATE[kinds[-1]] if kinds else ()


def _state_records(name: str, value: object) -> dict[str, ArrayRecord]:
    """Return a strategy's state as records, none if there is no state yet."""
    if isinstance(value, ArrayRecord):
        return {f"state.{name}.record": value}
    if isinstance(value, dict):
        return {f"state.{name}.named": ArrayRecord({key: Array(np.asarray(array)) for key, array in value.items()})}
    if isinstance(value, list):
        return {f"state.{name}.listed": ArrayRecord([np.asarray(array) for array in value])}
    return {}


def _shapes(arrays: ArrayRecord) -> dict[str, tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in arrays.items()}
