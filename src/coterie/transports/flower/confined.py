"""Confined descent in Flower's records: the public models that nodes judge are sent beside the records of the app.

The session's content covers them, so all members get the same ones. The app's function does not see them.
"""

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from coterie.deployment.displacement import Displacement
from coterie.deployment.engine import Arrays
from coterie.errors import PeerProtocolError
from coterie.secagg.messages import SERVER
from coterie.transports.flower.records import DESCENT, MISSED, RecordArrays, app_records, model_of


def with_displacement(records: RecordDict, shown: Displacement) -> RecordDict:
    """Return records of an app with a displacement beside them; its last model, if it has any, is the app's."""
    shows = bool(shown.models)
    header = ConfigRecord({"descent": shown.descent, "first": shown.first, "before": shown.before, "shows": shows})
    if not shows:
        header["task"], header["configuration"] = shown.task, shown.configuration
    together = RecordDict({**dict(records.items()), DESCENT: header})
    for place, model in enumerate(shown.models[:-1]):
        together[f"{MISSED}{place}"] = ArrayRecord({name: Array(array) for name, array in model.items()})
    return together


def displacement_in(records: RecordDict) -> Displacement | None:
    """Read the displacement that :func:`with_displacement` added; None if there is none."""
    header = records.config_records.get(DESCENT)
    if header is None:
        return None
    descent, first, before = header.get("descent"), header.get("first"), header.get("before")
    count = sum(name.startswith(MISSED) for name in records)
    found = [records.array_records.get(f"{MISSED}{place}") for place in range(count)]
    missed: list[Arrays] = [dict(RecordArrays(record)) for record in found if record is not None]
    if not isinstance(descent, bytes) or not isinstance(before, bytes) or len(missed) != count:
        raise PeerProtocolError(SERVER, "sent a displacement that cannot be read")
    if isinstance(first, bool) or not isinstance(first, int):
        raise PeerProtocolError(SERVER, "sent a displacement that cannot be read")
    if header.get("shows") is True:
        missed.append(dict(model_of(app_records(records))))
    task, configuration = header.get("task", ""), header.get("configuration", b"")
    if not isinstance(task, str) or not isinstance(configuration, bytes):
        raise PeerProtocolError(SERVER, "sent a displacement that cannot be read")
    return Displacement(descent, first, before, tuple(missed), task, configuration)
