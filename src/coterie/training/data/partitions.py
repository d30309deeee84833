"""Partitions of a training set among clients: who holds which examples.

Every function returns one array of example numbers for each client, ascending. Except where it says so, they are
disjoint, none is empty, and together they are all examples. Labels are int64, one for each example; ``rng`` is the
only source of randomness.
"""

from collections.abc import Callable

import numpy as np

from coterie.cohorts.circles import Indices
from coterie.errors import ConfigError

Parts = list[Indices]


def iid(size: int, clients: int, rng: np.random.Generator) -> Parts:
    """Deal ``size`` examples out at random; shares differ by at most one."""
    return _ascending(_cut(rng.permutation(size), clients))


def label_shards(labels: Indices, clients: int, rng: np.random.Generator, shards: int = 1) -> Parts:
    """Sort by label, cut into ``clients`` x ``shards`` equal shards and deal these out (McMahan et al. 2017).

    A client has about ``shards`` labels, and more where a shard lies across a border. Shards that cannot all be
    equal differ by at most one example.
    """
    if shards < 1:
        raise ConfigError(f"every client needs at least one shard, not {shards}")
    pieces = _cut(np.argsort(labels, kind="stable"), clients * shards)
    hands = rng.permutation(len(pieces)).reshape(clients, shards)
    return _ascending([np.concatenate([pieces[piece] for piece in hand]) for hand in hands])


def shared_and_own_label(labels: Indices, clients: int, rng: np.random.Generator, shared: int = 20) -> Parts:
    """Give every client the same few examples of each class, and one shard of the others (Zhao et al. 2018).

    ``shared`` random examples of every class are held by everybody; the others are dealt out by
    :func:`label_shards`, one shard each. With CIFAR-10 and 120 clients (So et al. 2023) that is 200 shared examples
    and 415 of one label. *Not disjoint:* any two clients have exactly the shared examples in common.
    """
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    if not 0 <= shared <= min((members.size for members in classes), default=0):
        raise ConfigError(f"not every class has {shared} examples to share")
    common = np.concatenate([rng.choice(members, shared, replace=False) for members in classes])
    own = np.setdiff1d(np.arange(labels.size), common)
    return _ascending([np.concatenate([common, own[shard]]) for shard in label_shards(labels[own], clients, rng)])


def dirichlet(labels: Indices, clients: int, rng: np.random.Generator, alpha: float, least: int = 1) -> Parts:
    """Divide each class among the clients in proportions from Dirichlet(α, ..., α) (Yurochkin et al. 2019).

    Small α leaves each client few classes, large α makes all alike. Each example goes to a client drawn with its
    class's proportions. A client with fewer than ``least`` examples is then given random ones of whoever has most:
    drawing again until nobody is short, as is usual, may take for ever if α is small and clients are many.
    """
    if not 0 < alpha < np.inf:
        raise ConfigError(f"alpha must be a positive number, not {alpha}")
    if least < 1:
        raise ConfigError(f"every client needs at least one example, not {least}")
    _check(labels.size, clients * least)
    holder = np.empty(labels.size, np.int64)
    for label in np.unique(labels):
        members = labels == label
        proportions = rng.dirichlet(np.full(clients, alpha))
        holder[members] = rng.choice(clients, np.count_nonzero(members), p=proportions)
    counts = np.bincount(holder, minlength=clients)
    while counts.min() < least:
        giver, taker = counts.argmax(), counts.argmin()
        holder[rng.choice(np.flatnonzero(holder == giver))] = taker
        counts[giver] -= 1
        counts[taker] += 1
    return [np.flatnonzero(holder == client) for client in range(clients)]


def by_person(labels: Indices) -> Parts:
    """One client for each person: a label says whose an example is, as with the AT&T faces."""
    return [np.flatnonzero(labels == person) for person in np.unique(labels)]


def time_blocks(size: int, clients: int) -> Parts:
    """Cut examples that are in order of time into consecutive blocks; lengths differ by at most one."""
    return _cut(np.arange(size), clients)


PARTITIONS: dict[str, Callable[..., Parts]] = {
    "iid": iid,
    "label-shards": label_shards,
    "shared-and-own-label": shared_and_own_label,
    "dirichlet": dirichlet,
    "by-person": by_person,
    "time-blocks": time_blocks,
}
"""Divisions of whole examples, by name. What they take has the same name in all of them, and in the settings."""


def _cut(order: Indices, count: int) -> Parts:
    _check(order.size, count)
    return np.array_split(order, count)


def _ascending(parts: Parts) -> Parts:
    return [np.sort(part) for part in parts]


def _check(size: int, count: int) -> None:
    if not 1 <= count <= size:
        raise ConfigError(f"{size} cannot be divided into {count} parts that are not empty")
