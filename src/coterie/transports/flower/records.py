"""Flower's records: Coterie's own beside those of the app, and models in them as arrays by name.

A request carries two records of Coterie beside those of the app: ``coterie`` says what the request is,
``coterie-payload`` has the protocol's message. Bytes travel as an array of uint8, which Flower cuts into chunks and
sends once, however many nodes it goes to; as a value of a ``ConfigRecord`` they take about three times as long.
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
"""Flower's code for a mod that would not go on."""
FIRST = "private_mod comes first, as in ClientApp(mods=[private_mod, ...])"
"""Where Coterie has to be in an app."""

DESCENT = "coterie-descent"
"""The record that says where the models of a confined descent are in their chain."""
MISSED = "coterie-missed-"
"""The beginning of the names of records with models that some nodes have missed."""
ALTERED = "altered"
"""In a node's reply to a hello: the request arrived with records that the server did not send."""


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
    except Exception:  # numpy accepts archives and headers of any size, and fails at them in as many ways
        raise PeerProtocolError(sender, "sent a payload that cannot be read") from None
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 1:
        raise PeerProtocolError(sender, f"sent a payload that is not bytes; a mod may have changed it: {FIRST}")
    return bytes(array.tobytes())


def without_ours(records: RecordDict) -> RecordDict:
    """Return the records that a session is about: those of the app, and the models of a descent."""
    return RecordDict({key: record for key, record in records.items() if key not in (HEADER, PAYLOAD)})


def app_records(records: RecordDict) -> RecordDict:
    """Return the records of the app alone."""
    ours = (HEADER, PAYLOAD, DESCENT)
    return RecordDict(
        {key: record for key, record in records.items() if key not in ours and not key.startswith(MISSED)}
    )


class RecordArrays(Mapping[str, NDArray[Any]]):
    """The arrays of a record by name, to be read and not changed; they share the memory of the record if they can."""

    def __init__(self, record: ArrayRecord) -> None:
        self._record = record
        self._views: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if (known := self._views.get(name)) is not None:
            return known
        found = view_of(self._record[name])
        if not found.flags.owndata:  # a copy would stay in memory
            self._views[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._record

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)


def view_of(array: Array) -> NDArray[Any]:
    """Return an array without a copy of its entries, as a model may be as large as all else that a node has in memory.

    What is not in numpy's plain format is left to Flower, with its errors.
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
    """Return the model in records of an app; an :class:`InputError` unless there is exactly one."""
    return RecordArrays(_single(records.array_records, "ArrayRecord"))


def configuration_of(
    run_config: Mapping[str, object], received: RecordDict, varying: Collection[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield all that configures a function of an app, by name, except for keys that may vary.

    That is the run's configuration; the one in the message with the order of its keys; names, kinds and order of the
    records; and names, order, shapes and types of the arrays, which decide on ranges and on how an app computes. (The
    run's configuration is a map for Flower, which has no order.)
    """
    for key, value in run_config.items():
        if key not in varying:
            yield f"{key!r} of the run", repr(value).encode()
    for place, (record, found) in enumerate(received.items()):  # an app may take the first record there is
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
