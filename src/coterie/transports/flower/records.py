"""Records of ours in Flower's messages: what a request asks for, and bytes of any length.

A request carries two records of ours beside those of the app: ``coterie`` says what it is, ``coterie-payload`` holds
the protocol's message. Bytes travel as an array of uint8, which Flower cuts into chunks and sends once, however many
nodes it goes to; as a value of a ``ConfigRecord`` they take about three times as long.
"""

from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigRecordValues, RecordDict

from coterie.errors import PeerProtocolError
from coterie.transports.flower.reasons import FIRST

HEADER = "coterie"
PAYLOAD = "coterie-payload"
_BYTES = "bytes"

REFUSED = 6
"""Flower's code for a mod that would not go on."""

HELLO = "hello"
"""Asks a node who it is."""
STEP = "step"
"""Asks a node for its answer in a session."""
ALTERED = "altered"
"""In a node's reply to the question who it is: the question arrived with records that nobody sent."""


def packed(payload: bytes, header: Mapping[str, ConfigRecordValues], app: RecordDict | None = None) -> RecordDict:
    """Put a payload and what is to be said of it beside the records of the app."""
    records = RecordDict({HEADER: ConfigRecord(dict(header))})
    if payload:
        records[PAYLOAD] = ArrayRecord({_BYTES: Array(np.frombuffer(payload, dtype=np.uint8))})
    for key, record in (app or {}).items():
        records[key] = record
    return records


def header_of(records: RecordDict) -> ConfigRecord | None:
    """Return what is said of the payload; None where the records are none of ours."""
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
    except Exception:  # numpy takes archives and headers of any size, and fails at them in as many ways
        raise PeerProtocolError(sender, "sent a payload that cannot be read") from None
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 1:
        raise PeerProtocolError(sender, f"sent a payload that is not bytes; a mod may have changed it: {FIRST}")
    return bytes(array.tobytes())


def without_ours(records: RecordDict) -> RecordDict:
    """Return the records of the app alone."""
    return RecordDict({key: record for key, record in records.items() if key not in (HEADER, PAYLOAD)})
