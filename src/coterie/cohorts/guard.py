"""Refuse, at the last moment, to open a sum that would tell fewer than T clients apart.

So et al. 2023 (Multi-RoundSecAgg, eq. 5) ask for strong privacy T: everything a server can compute from
all the sums it ever saw is a combination of sums over disjoint groups of at least T clients. Let row t of
the participation matrix P mark the clients aggregated in round t. The condition then holds exactly if every
class of identical non-zero columns of P has at least T members, because clients whose columns agree cannot
be told apart by any combination of rows, and those whose columns differ can.

A new row refines that partition: it cuts each class into the members inside it and those outside. The
:class:`Guard` keeps the classes and looks only at those a row touches, so a round that aggregates A costs
O(|A|), however long the history is.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from coterie.errors import ConfigError, InputError, Separation, SeparationRisk


@dataclass(eq=False, slots=True)
class _Class:
    """Clients with the same column of P, and the latest recorded round that contains them."""

    members: set[str]
    round: int


class Guard:
    """The classes of identical non-zero columns of the participation matrix, refined row by row."""

    def __init__(self) -> None:
        self._class_of: dict[str, _Class] = {}
        self._promised = 1

    @property
    def strong_privacy(self) -> int | None:
        """Strong T of the rows so far: the size of the smallest class; ``None`` before the first row."""
        return min((len(group.members) for group in self._class_of.values()), default=None)

    def check(self, aggregated: Collection[str], promised: int) -> None:
        """Raise :class:`SeparationRisk` unless strong T is at least ``promised`` after adding this row.

        A promise can be raised (if every class is large enough already) but never lowered: earlier clients
        took part because of it.
        """
        if promised < 1:
            raise ConfigError(f"the promised T must be at least 1, not {promised}")
        if promised < self._promised:
            raise ConfigError(
                f"T = {promised} is less than the {self._promised} promised in an earlier round: "
                "a promise can be raised but not lowered"
            )
        if separations := list(self._separations(aggregated, promised)):
            raise SeparationRisk(promised, separations)

    def record(self, round_number: int, aggregated: Collection[str], promised: int) -> None:
        """Add a row that was or is about to be revealed. It counts whether or not it passed :meth:`check`."""
        self._promised = max(self._promised, promised)
        touched, newcomers = self._split(aggregated)
        for known, inside in touched.items():
            if len(inside) == len(known.members):
                known.round = round_number
            else:
                known.members -= inside
                self._found(inside, round_number)
        if newcomers:
            self._found(newcomers, round_number)

    def _found(self, members: set[str], round_number: int) -> None:
        self._class_of.update(dict.fromkeys(members, _Class(members, round_number)))

    def _split(self, aggregated: Collection[str]) -> tuple[dict[_Class, set[str]], set[str]]:
        """Each class that the row touches with its members inside the row; and the clients new to P."""
        touched: dict[_Class, set[str]] = {}
        newcomers: set[str] = set()
        for client in aggregated:
            known = self._class_of.get(client)
            (newcomers if known is None else touched.setdefault(known, set())).add(client)
        return touched, newcomers

    def _separations(self, aggregated: Collection[str], promised: int) -> Iterator[Separation]:
        touched, newcomers = self._split(aggregated)
        for known, inside in touched.items():
            if len(inside) < promised:
                yield Separation(tuple(sorted(inside)), known.round)
            if 0 < len(known.members) - len(inside) < promised:
                yield Separation(tuple(sorted(known.members - inside)), known.round)
        if 0 < len(newcomers) < promised:
            latest = max((known.round for known in touched), default=None)
            yield Separation(tuple(sorted(newcomers)), latest)
        if promised > self._promised:  # a raised promise also covers the classes this row leaves alone
            for known in dict.fromkeys(self._class_of.values()):
                if known not in touched and len(known.members) < promised:
                    yield Separation(tuple(sorted(known.members)), known.round)


def client_names(clients: Collection[str]) -> tuple[str, ...]:
    """Put a set of clients into the one order in which it is stored, compared and hashed."""
    if isinstance(clients, str) or not all(isinstance(name, str) and name for name in clients):
        raise InputError("a set of clients is a collection of non-empty names")
    names = tuple(sorted({str(name) for name in clients}))  # numpy's strings become plain ones
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        raise InputError("a client's name is not valid Unicode and cannot be stored") from None
    return names
