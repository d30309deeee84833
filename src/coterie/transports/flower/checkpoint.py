"""Checkpoints of a run on Flower, which cannot resume one: a second ``flwr run`` is a new run that knows of nothing.

After every round the arrays, the configurations that the strategy may have changed, the strategy's own state and the
metrics so far are put into one file, in Flower's own records. An interrupted run goes on from there; a finished one
leaves none behind. What was revealed is not here but in the ledger, which no checkpoint takes back.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.serverapp.strategy import FedAvg, FedAvgM, Result, Strategy
from flwr.serverapp.strategy.fedopt import FedOpt
from google.protobuf.message import DecodeError

from coterie.errors import ConfigError
from coterie.transports.flower.home import write_safely

_STATE: dict[type[Strategy], tuple[str, ...]] = {
    FedAvg: (),
    FedAvgM: ("current_arrays", "momentum_vector"),
    FedOpt: ("current_arrays", "m_t", "v_t"),
}
"""What strategies remember from round to round."""

_RESTORE: dict[str, Callable[[ArrayRecord], object]] = {
    "record": lambda state: state,
    "named": lambda state: {name: array.numpy() for name, array in state.items()},
    "listed": lambda state: [array.numpy() for array in state.values()],
}
"""The forms in which strategies keep arrays."""

_METRICS = ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")


@dataclass
class StrategyProgress:
    """How far a run has come."""

    round: int
    arrays: ArrayRecord
    train_config: ConfigRecord
    evaluate_config: ConfigRecord
    result: Result = field(default_factory=Result)


class StrategyCheckpoint:
    """The checkpoint of an app's run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, progress: StrategyProgress, strategy: Strategy) -> None:
        """Put the progress and the strategy's state on disk."""
        records = RecordDict(
            {
                "run": ConfigRecord({"round": progress.round}),
                "arrays": progress.arrays,
                "train": progress.train_config,
                "evaluate": progress.evaluate_config,
            }
        )
        for name in _attributes(strategy):
            records.update(_stored(name, getattr(strategy, name)))
        for kind in _METRICS:
            for number, metrics in getattr(progress.result, kind).items():
                records[f"{kind}.{number}"] = metrics
        write_safely(self._path, recorddict_to_proto(records).SerializeToString(deterministic=True))

    def load(self, strategy: Strategy, like: ArrayRecord) -> StrategyProgress | None:
        """Return the progress of an interrupted run and put the strategy back into its state; None if there is none."""
        if not self._path.exists():
            return None
        try:
            records = recorddict_from_proto(ProtoRecordDict.FromString(self._path.read_bytes()))
            number = records.config_records["run"]["round"]
            progress = StrategyProgress(
                int(number) if isinstance(number, int) else 0,
                records.array_records["arrays"],
                records.config_records["train"],
                records.config_records["evaluate"],
            )
            for key, metrics in records.metric_records.items():
                kind, _, at = key.rpartition(".")
                {kind: getattr(progress.result, kind) for kind in _METRICS}[kind][int(at)] = metrics
        except (DecodeError, KeyError, ValueError) as error:
            raise ConfigError(f"{self._path} is not a checkpoint ({error}); delete it to begin anew") from None
        if _shapes(progress.arrays) != _shapes(like):
            raise ConfigError(
                f"the run that was interrupted after round {progress.round} had another model: delete {self._path} to "
                "begin anew, or pass resume=False"
            )
        for name in _attributes(strategy):
            for kind, restore in _RESTORE.items():
                if (state := records.array_records.get(f"state.{name}.{kind}")) is not None:
                    setattr(strategy, name, restore(state))
        return progress

    def remove(self) -> None:
        """Forget the run: it is finished."""
        self._path.unlink(missing_ok=True)


def _attributes(strategy: Strategy) -> tuple[str, ...]:
    kinds = [kind for kind in _STATE if isinstance(strategy, kind)]
    return _STATE[kinds[-1]] if kinds else ()


def _stored(name: str, value: object) -> dict[str, ArrayRecord]:
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
