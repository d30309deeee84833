"""First use: the configuration of a node's first contribution is permanent.

The configuration of the app affects a contribution as much as the recipe does. With a small learning rate, a node's
update is about rate * steps * gradient, and its number of steps is epochs * ceil(examples / batch size). So each batch
size that the server chooses gives each node another coefficient. Therefore a node stores, for each function of its app,
the configuration of the first task: every entry by its name and a digest of its value. The engine lists the entries
(:meth:`~coterie.deployment.engine.NodeRequest.configuration`); keys that the recipe names as varying are left out.
"""

from collections.abc import Iterable

import msgspec

from coterie.crypto.context import bind, digest
from coterie.deployment.logs import list_names
from coterie.deployment.recipe import NEW_POPULATION
from coterie.errors import PeerProtocolError
from coterie.secagg.messages import SERVER


def task_name(function: str) -> str:
    """Return the name under which a function of an app is stored; ``train`` and ``train.default`` are the same."""
    kind, _, action = function.partition(".")
    return f"task {kind}.{action or 'default'}"


def encode_configuration(entries: Iterable[tuple[str, bytes]]) -> bytes:
    """Encode a task's configuration: each entry by its name and a digest of its value."""
    return msgspec.msgpack.encode(sorted((name, digest(bind(name, value))) for name, value in entries))


def join_configurations(one: bytes, other: bytes) -> bytes:
    """Join two parts of a task's configuration; ``ValueError`` if one of them cannot be read."""
    return msgspec.msgpack.encode(sorted(_entries(one) + _entries(other)))


def check_unchanged(kept: bytes | None, asked: bytes) -> None:
    """Refuse a task whose configuration differs from that of the first task of its kind."""
    if kept is None or kept == asked:
        return
    then, now = dict(_entries(kept)), dict(_entries(asked))
    names = sorted(name for name in {**then, **now} if then.get(name) != now.get(name))
    raise PeerProtocolError(
        SERVER,
        f"configured this task differently than the first time: {list_names(names)}. The configuration is fixed "
        "for a roster, because sums of contributions made in two ways reveal single clients. Set it back, or "
        f"{NEW_POPULATION}, whose setting varying=... names the keys that have to change",
    )


def _entries(configuration: bytes) -> list[tuple[str, bytes]]:
    return msgspec.msgpack.decode(configuration, type=list[tuple[str, bytes]])
