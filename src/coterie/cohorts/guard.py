"""The guard: it refuses to open a sum that would distinguish fewer than T clients.

So et al. 2023 (Multi-RoundSecAgg, eq. 5) require strong privacy T: everything that a server can compute from all the
sums it ever saw is a combination of sums over disjoint groups of at least T clients. This holds exactly if every class
of identical non-zero columns of the participation matrix has at least T members (:mod:`coterie.cohorts.classes`). The
:class:`Guard` processes only the classes that a row intersects.
"""

from collections.abc import Collection, Iterator

import numpy as np

from coterie.cohorts.classes import Classes, Cut, Row, grow
from coterie.cohorts.client_table import ClientTable
from coterie.cohorts.packed_numbers import Numbers
from coterie.errors import ConfigError, InputError, Separation, SeparationRisk


class Guard:
    """The classes of a history and the T promised so far, updated row by row."""

    def __init__(self, clients: ClientTable | None = None) -> None:
        self.clients = ClientTable() if clients is None else clients
        """The clients of all rows, by number."""
        self.promised = 1
        """The highest T promised so far."""
        self._classes = Classes()
        self._latest = np.zeros(16, dtype=np.int64)  # for each class, the latest recorded round that contains it

    def restore(self, class_of: Numbers, latest: Numbers, promised: int) -> None:
        """Continue a history that is known by the class of each client and the latest round of each class."""
        classes = Classes.restore(class_of)
        if (len(class_of), len(latest)) != (len(self.clients), len(classes)) or promised < 1:
            raise InputError("these are not the classes of these clients")
        self._classes, self._latest, self.promised = classes, latest, promised

    @property
    def class_of(self) -> Numbers:
        """The class of each client."""
        return self._classes.of(np.arange(len(self.clients)))

    @property
    def latest(self) -> Numbers:
        """The latest recorded round that contains each class."""
        return self._latest[: len(self._classes)]

    @property
    def strong_privacy(self) -> int | None:
        """Strong T of the rows so far; ``None`` before the first row."""
        return self._classes.smallest

    def check(self, aggregated: Collection[str], promised: int) -> None:
        """Raise :class:`SeparationRisk` unless strong T is at least ``promised`` after adding this row.

        The promised T can be raised (if every class is large enough already) but never lowered: earlier clients took
        part because of it.
        """
        if promised < 1:
            raise ConfigError(f"the promised T must be at least 1, not {promised}")
        if promised < self.promised:
            raise ConfigError(
                f"T = {promised} is less than the {self.promised} promised in an earlier round: "
                "a promise can be raised but not lowered"
            )
        row, newcomers = self.clients.find(aggregated)
        if separations := list(self._separations(row, newcomers, promised)):
            raise SeparationRisk(promised, separations)

    def record(self, round_number: int, row: Row, promised: int) -> None:
        """Add a row that was or is about to be revealed. It counts whether or not it passed :meth:`check`.

        ``row`` has the numbers of its clients in :attr:`clients`.
        """
        self.promised = max(self.promised, promised)
        self._classes.refine(row)
        self._latest = grow(self._latest, len(self._classes), 0)
        self._latest[self._classes.of(row)] = round_number

    def _separations(self, row: Numbers, newcomers: Collection[str], promised: int) -> Iterator[Separation]:
        cut = self._classes.cut(row)
        small = (cut.inside < promised) | ((cut.outside > 0) & (cut.outside < promised))
        for at in np.flatnonzero(small)[np.argsort(cut.first[small])].tolist():
            yield from self._parts(row, cut, at, promised)
        if 0 < len(newcomers) < promised:
            latest = int(self._latest[cut.classes].max()) if len(cut.classes) else None
            yield Separation(tuple(sorted(newcomers)), latest)
        if promised > self.promised:  # a raised promise also covers the classes that this row does not intersect
            for known in np.setdiff1d(np.flatnonzero(self._classes.sizes < promised), cut.classes).tolist():
                yield self._separation(self._classes.members_of(known), known)

    def _parts(self, row: Numbers, cut: Cut, at: int, promised: int) -> Iterator[Separation]:
        """Yield the parts of a class inside and outside the row that are too small."""
        known, inside = int(cut.classes[at]), row[cut.position == at]
        if cut.inside[at] < promised:
            yield self._separation(inside, known)
        if 0 < cut.outside[at] < promised:
            yield self._separation(np.setdiff1d(self._classes.members_of(known), inside), known)

    def _separation(self, members: Numbers, known: int) -> Separation:
        return Separation(self.clients.names_of(members), int(self._latest[known]))


def client_names(clients: Collection[str]) -> tuple[str, ...]:
    """Return the names of a set of clients in the order in which it is stored, compared and hashed."""
    if isinstance(clients, str) or not all(isinstance(name, str) and name for name in clients):
        raise InputError("a set of clients is a collection of non-empty names")
    names = tuple(sorted({str(name) for name in clients}))  # converts numpy strings to str
    if (odd := unstorable_name(names)) is not None:
        raise InputError(f"the client's name {odd!r} is not valid Unicode and cannot be stored")
    return names


def unstorable_name(names: Collection[str]) -> str | None:
    """Return the first name that has no UTF-8, such as one with half of a surrogate pair; None if all have."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError as error:
        end = 0
        for name in names:
            end += len(name)
            if error.start < end:
                return name
    return None
