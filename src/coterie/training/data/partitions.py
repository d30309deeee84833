"""Partitions of a training set among clients.

Every function returns one array of example indices for each client, ascending. Unless stated otherwise, the arrays are
disjoint and not empty, and together they contain all examples. Labels are int64, one for each example. ``rng`` is the
only source of randomness.
"""

from collections.abc import Callable

import numpy as np

from coterie.cohorts.circles import Indices
from coterie.errors import ConfigError

Parts = list[Indices]


def iid(size: int, clients: int, rng: np.random.Generator) -> Parts:
    """Divide ``size`` examples at random into parts whose sizes differ by at most one."""
    return _ascending(_cut(rng.permutation(size), clients))


def label_shards(labels: Indices, clients: int, rng: np.random.Generator, shards: int = 1) -> Parts:
    """Sort by label, cut into ``clients`` x ``shards`` equal shards and assign them at random (McMahan et al. 2017).

    A client has about ``shards`` labels, or more if a shard crosses the border between two labels. Sizes of shards
    differ by at most one example.
    """
    if shards < 1:
        raise ConfigError(f"every client needs at least one shard, not {shards}")
    pieces = _cut(np.argsort(labels, kind="stable"), clients * shards)
    hands = rng.permutation(len(pieces)).reshape(clients, shards)
    return _ascending([np.concatenate([pieces[piece] for piece in hand]) for hand in hands])


def shared_and_own_label(labels: Indices, clients: int, rng: np.random.Generator, shared: int = 20) -> Parts:
    """Give every client the same ``shared`` examples of each class, and one shard of the others (Zhao et al. 2018).

    The shared examples are drawn at random; the others are divided by :func:`label_shards`, one shard each. With
    CIFAR-10 and 120 clients (So et al. 2023), a client has 200 shared examples and 415 of one label. The parts are *not
    disjoint:* any two clients have exactly the shared examples in common.
    """
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    if not 0 <= shared <= min((members.size for members in classes), default=0):
        raise ConfigError(f"not every class has {shared} examples to share")
    common = np.concatenate([rng.choice(members, shared, replace=False) for members in classes])
    own = np.setdiff1d(np.arange(labels.size), common)
    return _ascending([np.concatenate([common, own[shard]]) for shard in label_shards(labels[own], clients, rng)])


def dirichlet(labels: Indices, clients: int, rng: np.random.Generator, alpha: float, least: int = 1) -> Parts:
    """Divide each class among the clients in proportions from Dirichlet(α, ..., α) (Yurochkin et al. 2019).

    With small α each client has few classes; with large α all clients have similar data. Each example is assigned to a
    client drawn with the proportions of its class. A client with fewer than ``least`` examples then receives random
    ones from the largest client. (The usual method draws again until no client is short, which may never end.)
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


def sampled(size: int, clients: int, rng: np.random.Generator, examples: int = 20) -> Parts:
    """Let every client draw ``examples`` of ``size`` examples at random, each at most once.

    Clients draw independently of each other, so the parts are *not disjoint*, and some examples may belong to no
    client. There may be more clients than examples: a small data set then simulates a large population with many
    similar clients.
    """
    if not 1 <= examples <= size:
        raise ConfigError(f"a client draws between 1 and {size} examples, not {examples}")
    if examples**2 > size:  # rejection would take too long
        return [np.sort(rng.choice(size, examples, replace=False)) for _ in range(clients)]
    drawn = np.sort(rng.integers(size, size=(clients, examples)), axis=1)
    while (again := np.flatnonzero((np.diff(drawn, axis=1) == 0).any(axis=1))).size:
        drawn[again] = np.sort(rng.integers(size, size=(again.size, examples)), axis=1)
    return list(drawn)


def by_person(labels: Indices) -> Parts:
    """Return one client for each person. The label is the person, as in the AT&T faces."""
    return [np.flatnonzero(labels == person) for person in np.unique(labels)]


def time_blocks(size: int, clients: int) -> Parts:
    """Cut examples in order of time into consecutive blocks whose lengths differ by at most one."""
    return _cut(np.arange(size), clients)


PARTITIONS: dict[str, Callable[..., Parts]] = {
    "iid": iid,
    "label-shards": label_shards,
    "shared-and-own-label": shared_and_own_label,
    "dirichlet": dirichlet,
    "sampled": sampled,
    "by-person": by_person,
    "time-blocks": time_blocks,
}
"""Partitions by name. Their parameters have the same names as the settings."""


def _cut(order: Indices, count: int) -> Parts:
    _check(order.size, count)
    return np.array_split(order, count)


def _ascending(parts: Parts) -> Parts:
    return [np.sort(part) for part in parts]


def _check(size: int, count: int) -> None:
    if not 1 <= count <= size:
        hint = (
            "; take fewer clients, or partition.kind = sampled, where clients may share examples"
            if count > size
            else ""
        )
        raise ConfigError(f"{size:,} examples cannot be divided into {count:,} parts that are not empty{hint}")
