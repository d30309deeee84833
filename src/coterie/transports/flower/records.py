"""Flower's records: Coterie's records beside those of the app, and models as arrays by name.

A request has two records of Coterie beside those of the app: ``coterie`` describes the request, ``coterie-payload``
contains the protocol's message. Bytes are sent as an array of uint8, which Flower cuts into chunks and uploads only
once for any number of nodes. As a value of a ``ConfigRecord`` they would take about three times as long.
"""

import io
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigRecordValues, MetricRecord, RecordDict
from numpy.typing import NDArray

from coterie.deployment.engine import Arrays
from coterie.errors import InputError, PeerProtocolError

R = TypeVar("R")

HEADER = "coterie"
PAYLOAD = "coterie-payload"
_BYTES = "bytes"
_NUMPY = "numpy.ndarray"

REFUSED = 6
"""Flower's error code for a mod that raised an error."""
FIRST = "private_mod comes first, as in ClientApp(mods=[private_mod, ...])"
"""Where Coterie must be in an app."""

DESCENT = "coterie-descent"
"""The record with the position of a confined descent's models in their chain."""
MISSED = "coterie-missed-"
"""The prefix of the names of records with models that some nodes have missed."""
ALTERED = "altered"
"""In a node's reply to a hello: the request contained records that the server did not send."""


def packed(payload: bytes, header: Mapping[str, ConfigRecordValues], app: RecordDict | None = None) -> RecordDict:
    """Return records with a payload and its header, beside the records of the app."""
    records = RecordDict({HEADER: ConfigRecord(dict(header))})
    if payload:
        records[PAYLOAD] = ArrayRecord({_BYTES: Array(np.frombuffer(payload, dtype=np.uint8))})
    for key, record in (app or {}).items():
        records[key] = record
    return records


def header_of(records: RecordDict) -> ConfigRecord | None:
    """Return the header of the payload; None if the records are not Coterie's."""
    return records.config_records.get(HEADER)


def payload_of(records: RecordDict, sender: str) -> bytes:
    """Return the payload, empty if there is none; a :class:`PeerProtocolError` blames the sender of anything else."""
    if header_of(records) is None:
        raise PeerProtocolError(sender, f"did not answer through private_mod, and is left out: {FIRST}")
    found = records.array_records.get(PAYLOAD)
    if found is None:
        return b""
    try:
        array = found[_BYTES].numpy()
    except Exception:  # numpy accepts archives and headers of any size, and raises many kinds of errors
        raise PeerProtocolError(sender, "sent a payload that cannot be read") from None
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 1:
        raise PeerProtocolError(sender, f"sent a payload that is not bytes; a mod may have changed it: {FIRST}")
    return bytes(array.tobytes())


def without_ours(records: RecordDict) -> RecordDict:
    """Return the records that a session covers: those of the app, and the models of a descent."""
    return RecordDict({key: record for key, record in records.items() if key not in (HEADER, PAYLOAD)})


def app_records(records: RecordDict) -> RecordDict:
    """Return only the records of the app."""
    ours = (HEADER, PAYLOAD, DESCENT)
    return RecordDict(
        {key: record for key, record in records.items() if key not in ours and not key.startswith(MISSED)}
    )


class RecordArrays(Mapping[str, NDArray[Any]]):
    """The arrays of a record by name, read-only. They share the memory of the record if possible."""

    def __init__(self, record: ArrayRecord) -> None:
        self._record = record
        self._views: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if (known := self._views.get(name)) is not None:
            return known
        found = view_of(self._record[name])
        if not found.flags.owndata:  # a cached copy would stay in memory
            self._views[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._record

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)


def view_of(array: Array) -> NDArray[Any]:
    """Return an array without copying its entries, because a model may be as large as the rest of a node's memory.

    Arrays that are not in numpy's plain format are left to Flower, with its errors.
    """
    data = array.data
    try:
        file = io.BytesIO(data)
        if array.stype == _NUMPY and np.lib.format.read_magic(file) == (1, 0):
            shape, in_columns, dtype = np.lib.format.read_array_header_1_0(file)
            if math.prod(shape) and not in_columns and not dtype.hasobject:
                return np.frombuffer(data, dtype, math.prod(shape), file.tell()).reshape(shape)
    except ValueError:
        pass
    return array.numpy()


def model_of(records: RecordDict) -> Arrays:
    """Return the model in records of an app; :class:`InputError` unless there is exactly one."""
    return RecordArrays(_single(records.array_records, "ArrayRecord"))


def configuration_of(
    run_config: Mapping[str, object], received: RecordDict, varying: Collection[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the whole configuration of a function of an app, by name, except keys that may vary.

    It consists of the run's configuration; the one in the message with the order of its keys; names, kinds and order of
    the records; and names, order, shapes and types of the arrays, which affect ranges and the app's computation. (For
    Flower, the run's configuration is a map without an order.)
    """
    for key, value in run_config.items():
        if key not in varying:
            yield f"{key!r} of the run", repr(value).encode()
    for place, (record, found) in enumerate(received.items()):  # an app may use the first record
        yield f"record {record!r}", repr((place, type(found).__name__)).encode()
    records: dict[str, ConfigRecord | MetricRecord] = {**received.config_records, **received.metric_records}
    for record, entries in records.items():
        fixed = ((key, value) for key, value in entries.items() if key not in varying)
        for place, (key, value) in enumerate(fixed):
            yield f"{key!r} of {record!r}", repr((place, value)).encode()
    for record, arrays in received.array_records.items():
        for place, (name, array) in enumerate(arrays.items()):
            now = view_of(array)
            kind = place, now.shape, now.dtype.str, tuple(array.shape), array.dtype
            yield f"array {name!r} of {record!r}", repr(kind).encode()


def _single(records: Mapping[str, R], kind: str) -> R:
    if len(records) != 1:
        raise InputError(f"expected exactly one {kind}, not {len(records)}")
    return next(iter(records.values()))
