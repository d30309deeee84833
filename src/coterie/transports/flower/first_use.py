"""First use: what a node is configured with when it contributes for the first time stays as it was.

A configuration turns data into a contribution as much as a recipe does. With a small learning rate a node's update is
about rate * steps * gradient, and its number of steps is epochs * ceil(examples / batch size): a batch size of the
server's choice is another coefficient for each node. So a node keeps, for each function of its app, what it was first
asked with: the run's configuration, that of the message with the order of its keys, names, kinds and order of the
records, and names, order, shapes and kinds of the arrays, which decide on ranges. Keys that the recipe names as varying
may differ, and be anywhere. (A run's configuration is a map for Flower, which has no order.)
"""

from collections.abc import Iterator, Mapping

import msgspec
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from coterie.crypto.context import bind, digest
from coterie.errors import PeerProtocolError
from coterie.secagg.messages import SERVER
from coterie.transports.flower.recipe import NEW_POPULATION

_SHOWN = 5  # names of what differs


def task_name(message_type: str) -> str:
    """Return the one name of a function of an app: Flower takes ``train`` and ``train.default`` for the same."""
    kind, _, action = message_type.partition(".")
    return f"task {kind}.{action or 'default'}"


def configured(run_config: Mapping[str, object], received: RecordDict, varying: tuple[str, ...]) -> bytes:
    """Return all that a task is configured with, each entry by its name and a digest of what it is."""
    entries = _entries(run_config, received, frozenset(varying))
    return msgspec.msgpack.encode(sorted((name, digest(bind(name, said))) for name, said in entries))


def check_unchanged(kept: bytes | None, asked: bytes) -> None:
    """Refuse a task that is not configured as the first of its kind was."""
    if kept is None or kept == asked:
        return
    then, now = (dict(msgspec.msgpack.decode(entries, type=list[tuple[str, bytes]])) for entries in (kept, asked))
    names = sorted(name for name in {**then, **now} if then.get(name) != now.get(name))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise PeerProtocolError(
        SERVER,
        f"configured this task otherwise than the first time: {', '.join(names[:_SHOWN])}{more}. That is fixed for a "
        f"roster, because sums of contributions made in two ways single clients out. Set it back, or {NEW_POPULATION}, "
        "with PrivateStrategy(varying=...) naming what has to change",
    )


def _entries(
    run_config: Mapping[str, object], received: RecordDict, varying: frozenset[str]
) -> Iterator[tuple[str, bytes]]:
    for key, value in run_config.items():
        if key not in varying:
            yield f"{key!r} of the run", repr(value).encode()
    for place, (record, found) in enumerate(received.items()):  # an app may take the first that there is
        yield f"record {record!r}", repr((place, type(found).__name__)).encode()
    records: dict[str, ConfigRecord | MetricRecord] = {**received.config_records, **received.metric_records}
    for record, entries in records.items():
        fixed = ((key, value) for key, value in entries.items() if key not in varying)
        for place, (key, value) in enumerate(fixed):
            yield f"{key!r} of {record!r}", repr((place, value)).encode()
    for record, arrays in received.array_records.items():
        for place, (name, array) in enumerate(arrays.items()):
            now = array.numpy()
            yield f"array {name!r} of {record!r}", repr((place, now.shape, now.dtype.kind == "f")).encode()
