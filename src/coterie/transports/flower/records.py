"""Flower's records: Coterie's records beside those of the app, and models as arrays by name.

A request has two records of Coterie beside those of the app: ``coterie`` describes the request, ``coterie-payload``
contains the protocol's message. Bytes are sent as an array of uint8, which Flower cuts into chunks and uploads only
once for any number of nodes. As a value of a ``ConfigRecord`` they would take about three times as long.
"""

import io
import math
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigRecordValues, MetricRecord, RecordDict
from numpy.typing import NDArray

from coterie.deployment.engine import Arrays
from coterie.errors import InputError, PeerProtocolError

HEADER = "coterie"
PAYLOAD = "coterie-payload"
_BYTES = "bytes"
_NUMPY = "numpy.ndarray"
_VERSION_1 = np.lib.format.magic(1, 0)

REFUSED = 6
"""Flower's error code for a mod that refuses to continue."""
FIRST = "private_mod comes first, as in ClientApp(mods=[private_mod, ...])"
"""Where Coterie must be in an app."""

DESCENT = "coterie-descent"
"""The record with the position of a confined descent's models in their chain."""
MISSED = "coterie-missed-"
"""The prefix of the names of records with models that some nodes have missed."""
ALTERED = "altered"
"""In a node's reply to a hello: the request contained records that the server did not send."""


def pack(payload: bytes, header: Mapping[str, ConfigRecordValues], app: RecordDict | None = None) -> RecordDict:
    """Return records with a payload and its header, beside the records of the app."""
    records = RecordDict({HEADER: ConfigRecord(dict(header))})
    if payload:
        records[PAYLOAD] = ArrayRecord({_BYTES: _array_of(payload)})
    for key, record in (app or {}).items():
        records[key] = record
    return records


def _array_of(payload: bytes) -> Array:
    """Return bytes as an array of uint8, as ``Array`` would make it of one, but with a single copy."""
    return Array(str(np.dtype(np.uint8)), (len(payload),), _NUMPY, _start_of(len(payload)) + payload)


@lru_cache(maxsize=16)
def _start_of(size: int) -> bytes:
    """Return the header of numpy's format for an array of this many bytes."""
    file = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.uint8)), "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(file, about)
    return file.getvalue()


def header_of(records: RecordDict) -> ConfigRecord | None:
    """Return the header of the payload; None if the records are not Coterie's."""
    found = records.get(HEADER)  # the views of a kind check every record again
    return found if isinstance(found, ConfigRecord) else None


def payload_of(records: RecordDict, sender: str) -> bytes:
    """Return the payload, empty if there is none; a :class:`PeerProtocolError` blames the sender of anything else."""
    if header_of(records) is None:
        raise PeerProtocolError(sender, f"did not answer through private_mod, and is left out: {FIRST}")
    found = records.get(PAYLOAD)
    if not isinstance(found, ArrayRecord):
        return b""
    try:
        array = view_of(found[_BYTES])
    except Exception:  # numpy accepts archives and headers of any size, and raises many kinds of errors
        raise PeerProtocolError(sender, "sent a payload that cannot be read") from None
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 1:
        raise PeerProtocolError(sender, f"sent a payload that is not bytes; a mod may have changed it: {FIRST}")
    return bytes(array.tobytes())


def name_of(records: RecordDict) -> bytes:
    """Return Flower's name of records; equal names mean equal records.

    Flower keeps a copy of the bytes that it names in each array. In a simulation these copies would travel with every
    message, so they are made in other arrays.
    """
    named = RecordDict(dict(records.items()))
    for key, record in records.items():
        if isinstance(record, ArrayRecord):
            named[key] = ArrayRecord({name: _twin(array) for name, array in record.items()})
    return named.object_id.encode()


def _twin(array: Array) -> Array:
    return Array(array.dtype, tuple(array.shape), array.stype, array.data)


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
        if array.stype == _NUMPY and data.startswith(_VERSION_1):
            end = len(_VERSION_1) + 2
            end += int.from_bytes(data[end - 2 : end], "little")
            shape, in_columns, dtype = _read_start(data[:end])
            if math.prod(shape) and not in_columns and not dtype.hasobject:
                return np.frombuffer(data, dtype, math.prod(shape), end).reshape(shape)
    except ValueError:
        pass
    return array.numpy()


@lru_cache(maxsize=256)
def _read_start(start: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read an array's header; cached, because numpy parses it as a Python expression."""
    file = io.BytesIO(start)
    np.lib.format.read_magic(file)
    return np.lib.format.read_array_header_1_0(file)


def model_of(records: RecordDict) -> Arrays:
    """Return the model in records of an app; :class:`InputError` unless there is exactly one."""
    found = list(records.array_records.values())
    if len(found) != 1:
        raise InputError(f"expected exactly one ArrayRecord, not {len(found)}")
    return RecordArrays(found[0])


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
