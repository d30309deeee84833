"""The roster: all clients of a population, and the permanent circle of each.

Circles protect their members only while they do not change (So et al. 2023): the members of a circle need identical
columns in the participation matrix. So there are two kinds of change only:

* Clients **join** a queue. When T of them wait, they become a new circle. A newcomer never enters an existing circle:
  it missed the circle's earlier rounds, so its column differs from the others', and strong T would fall to the number
  of newcomers.
* A client **leaves**, and its circle is retired permanently. If the others continued without it, the sum before minus
  the sum after would be the leaver's own model. If they were regrouped, they would have their old circle's column
  among clients with other columns, and strong T would fall to the number that moved together.

A roster also fixes the **recipe**: how a client makes its contribution from its data, apart from the model that it
receives. If the server could change the recipe from round to round, sums over the same circle would be independent
equations and would reveal single contributions although no circle was ever split. Here the recipe is opaque bytes; the
transport that needs one interprets them.

The roster is therefore append-only: clients keep their number, circles keep their members, and a change is a new
version with the digest of its predecessor. With :class:`~coterie.cohorts.memory.ClientMemory`, a client enforces this.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Self

import msgspec

from coterie.cohorts.circles import Circles
from coterie.cohorts.guard import unstorable_name
from coterie.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_DOMAIN = b"coterie roster 1\x00"
_PLAIN = re.compile(r"[\w.@+-]+", re.ASCII)


class Client(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A client's name and its identity (public) key. The key may be empty if identities are not checked."""

    name: str
    identity: bytes = b""


class Roster(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """One version of the population. It is immutable, and checked whenever it is created or parsed.

    Derived values, such as its digest, are computed once, because every client of every session needs them.

    A client's number is its position in ``clients``. ``circles`` lists the numbers of each circle's members in
    ascending order, ``retired`` the positions of circles that are no longer used, and ``queue`` the clients that wait
    for a circle, in order of arrival. ``privacy`` is the promised T. ``recipe`` fixes permanently how contributions are
    made; it may be empty.
    """

    privacy: int
    clients: tuple[Client, ...]
    circles: tuple[tuple[int, ...], ...] = ()
    retired: tuple[int, ...] = ()
    queue: tuple[int, ...] = ()
    version: int = 0
    predecessor: bytes = b""
    recipe: bytes = b""

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, Integral):
            raise ConfigError(f"the T of a roster is a whole number, not {self.privacy!r:.60}")
        if self.privacy < 1:
            raise ConfigError(f"a circle needs at least one client, not {self.privacy}")
        msgspec.structs.force_setattr(self, "privacy", int(self.privacy))  # the encoding has no integers of numpy
        if self.version < 0 or (self.version == 0) != (self.predecessor == b""):
            raise ConfigError("version 0 has no predecessor, every later version has one")
        if (odd := unstorable_name(self.names)) is not None:
            raise ConfigError(f"the client's name {odd!r} is not valid Unicode and cannot be stored")
        _refuse_duplicates("name", [client.name for client in self.clients])
        _refuse_duplicates("identity key", [client.identity for client in self.clients if client.identity])
        placed = [number for circle in self.circles for number in circle] + list(self.queue)
        if len(set(placed)) < len(placed) or not set(placed) <= set(range(len(self.clients))):
            raise ConfigError("every client is in one circle or in the queue, and only once")
        if any(len(circle) < self.privacy for circle in self.circles):
            raise ConfigError(f"a circle has fewer than {self.privacy} members")
        if any(tuple(sorted(circle)) != circle for circle in self.circles):
            raise ConfigError("the members of a circle must be listed in ascending order")
        if sorted(set(self.retired)) != list(self.retired) or not set(self.retired) <= set(range(len(self.circles))):
            raise ConfigError("retired circles must exist and be listed once, in ascending order")

    @classmethod
    def found(cls, clients: Iterable[Client], circles: Circles, privacy: int, recipe: bytes = b"") -> Self:
        """Make version 0. Clients are numbered in the order of their names; ``circles`` uses these numbers.

        Remaining clients make some circles larger. To let them wait instead, start with an empty roster and
        :meth:`join` all clients: ``Roster(privacy=T, clients=()).join(clients)``.
        """
        ordered = tuple(sorted(clients, key=lambda client: client.name))
        if circles.members.size != len(ordered) or circles.span != len(ordered):
            raise ConfigError(f"the circles do not cover the {len(ordered)} clients")
        placed = tuple(tuple(sorted(circle)) for circle in circles)
        return cls(privacy=privacy, clients=ordered, circles=placed, recipe=recipe)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse and check what :meth:`to_bytes` wrote."""
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except ValueError as error:
            raise ConfigError(f"not a roster: {error}") from error

    def to_bytes(self) -> bytes:
        """Encode canonically: no maps, so that equal rosters have equal bytes.

        An empty recipe is left out, so that rosters written before recipes existed keep their bytes and digest.
        """
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        fields = msgspec.structs.astuple(self)
        return msgspec.msgpack.encode(fields if self.recipe else fields[:-1])

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical encoding. Session terms and successors refer to it."""
        return hashlib.sha256(_DOMAIN + self.to_bytes()).digest()

    @property
    def recipe_digest(self) -> bytes:
        """SHA-256 of the recipe, as stored in a ledger; empty without a recipe."""
        return hashlib.sha256(self.recipe).digest() if self.recipe else b""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all clients, by number."""
        return tuple(client.name for client in self.clients)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each client, by name."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def _circle_numbers(self) -> dict[int, int]:
        """The circle of each client that has one, retired or not, by the client's number."""
        return {client: number for number, circle in enumerate(self.circles) for client in circle}

    def has(self, client: Client) -> bool:
        """Return whether this client is on the roster, under the same identity key."""
        number = self.numbers.get(client.name)
        return number is not None and self.clients[number] == client

    def mates(self, client: Client) -> frozenset[str] | None:
        """Return the names of a client's circle, retired or not, with its own; None if it has no circle."""
        circle = self._circle_numbers.get(self.numbers[client.name]) if self.has(client) else None
        return None if circle is None else frozenset(self.names[mate] for mate in self.circles[circle])

    @property
    def active(self) -> tuple[tuple[int, ...], ...]:
        """The circles that can still be selected."""
        gone = set(self.retired)
        return tuple(circle for number, circle in enumerate(self.circles) if number not in gone)

    def usable(self) -> Circles:
        """The active circles, as :class:`Circles` for policies."""
        return Circles.of(self.active)

    def join(self, newcomers: Iterable[Client]) -> Self:
        """Append the newcomers to the queue, in this order, and turn every T waiting clients into a circle.

        A client that was in a circle before is refused, even if that circle is retired: it would be regrouped. A client
        that left the queue before it had a circle may come back.
        """
        numbers = dict(self.numbers)
        grouped = {number for circle in self.circles for number in circle}
        clients, queue = list(self.clients), list(self.queue)
        for newcomer in newcomers:
            number = numbers.setdefault(newcomer.name, len(clients))
            if number == len(clients):
                clients.append(newcomer)
            elif number in grouped:
                raise ConfigError(
                    f"{newcomer.name} already belongs to a circle and cannot be regrouped: its participation so "
                    "far would single it out among its new mates"
                )
            elif clients[number] != newcomer:
                raise ConfigError(f"{newcomer.name} joined before with another identity key")
            queue.append(number)
        full = len(queue) - len(queue) % self.privacy
        formed = [tuple(sorted(queue[i : i + self.privacy])) for i in range(0, full, self.privacy)]
        return self._next(clients=tuple(clients), circles=(*self.circles, *formed), queue=tuple(queue[full:]))

    def leave(self, leavers: Collection[str]) -> Self:
        """Retire the circles of the leavers permanently, and remove leavers from the queue.

        The other members of these circles cannot take part any more: no other client has the same participation so far,
        so there is no circle that they could join. Group reliable clients together, and choose T with this in mind.
        """
        if unknown := sorted(set(leavers) - self.numbers.keys()):
            raise ConfigError(f"not on the roster: {', '.join(unknown)}")
        gone = {self.numbers[name] for name in leavers}
        broken = {number for number, circle in enumerate(self.circles) if gone.intersection(circle)}
        return self._next(
            retired=tuple(sorted(broken.union(self.retired))),
            queue=tuple(number for number in self.queue if number not in gone),
        )

    def check_successor(self, later: Roster) -> None:
        """Raise :class:`ConfigError` unless ``later`` differs from this roster only by additions and retirements.

        The link between versions is checked if ``later`` directly follows this version.
        """
        if later.version <= self.version:
            raise ConfigError(f"version {later.version} does not come after version {self.version}")
        if later.version == self.version + 1 and later.predecessor != self.digest:
            raise ConfigError(f"version {later.version} does not name this version {self.version} as predecessor")
        if later.privacy != self.privacy:
            raise ConfigError(f"the promised T changed from {self.privacy} to {later.privacy}")
        if later.recipe != self.recipe:
            raise ConfigError("the recipe changed: sums of contributions made in two ways single clients out")
        if later.clients[: len(self.clients)] != self.clients:
            raise ConfigError("clients were renamed, renumbered, removed or given other identity keys")
        if later.circles[: len(self.circles)] != self.circles:
            raise ConfigError("circles were regrouped: their members' earlier participation would single them out")
        if not set(self.retired) <= set(later.retired):
            raise ConfigError("a retired circle was taken into use again: one of its members has left")

    def circle_of(self, name: str) -> tuple[Client, ...] | None:
        """Return the active circle of a client, itself included; empty while it waits; None if it takes no part."""
        number = self.numbers.get(name, -1)
        if number in self.queue:
            return ()
        circle = self._circle_numbers.get(number)
        if circle is None or circle in self.retired:
            return None
        return tuple(self.clients[mate] for mate in self.circles[circle])

    def lines(self) -> list[str]:
        """Return one line for each circle, with its members, and one for the queue. Ambiguous names are quoted."""
        gone = set(self.retired)
        names = [name if _PLAIN.fullmatch(name) else repr(name) for name in self.names]
        lines = [
            f"circle {number}{' (retired)' if number in gone else ''}: {', '.join(names[at] for at in circle)}"
            for number, circle in enumerate(self.circles)
        ]
        if self.queue:
            lines.append(f"waiting until they are {self.privacy}: {', '.join(names[at] for at in self.queue)}")
        return lines

    def _next(self, **changes: object) -> Self:
        successor: Self = msgspec.structs.replace(self, version=self.version + 1, predecessor=self.digest, **changes)
        return successor


def _refuse_duplicates(what: str, values: list[str] | list[bytes]) -> None:
    if len(set(values)) < len(values):
        raise ConfigError(f"two clients have the same {what}")
