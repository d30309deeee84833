"""The guard: it refuses to open a sum that would distinguish fewer than T clients.

So et al. 2023 (Multi-RoundSecAgg, eq. 5) require strong privacy T: everything that a server can compute from all the
sums it ever saw is a combination of sums over disjoint groups of at least T clients. This holds exactly if every class
of identical non-zero columns of the participation matrix has at least T members (:mod:`coterie.cohorts.classes`). The
:class:`Guard` processes only the classes that a row intersects.
"""

from collections.abc import Collection, Iterator

from coterie.cohorts.classes import Classes
from coterie.errors import ConfigError, InputError, Separation, SeparationRisk


class Guard:
    """The classes of a history and the T promised so far, updated row by row."""

    def __init__(self) -> None:
        self._classes = Classes[str]()
        self._latest: list[int] = []  # for each class, the latest recorded round that contains it
        self._promised = 1

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
        self._latest += [round_number] * len(self._classes.refine(aggregated))
        for known in self._classes.parts(aggregated):
            self._latest[known] = round_number

    def _separations(self, aggregated: Collection[str], promised: int) -> Iterator[Separation]:
        touched, newcomers = self._classes.cut(aggregated)
        for known, inside in touched.items():
            everyone = self._classes.members[known]
            if len(inside) < promised:
                yield Separation(tuple(sorted(inside)), self._latest[known])
            if 0 < len(everyone) - len(inside) < promised:
                yield Separation(tuple(sorted(everyone - inside)), self._latest[known])
        if 0 < len(newcomers) < promised:
            latest = max((self._latest[known] for known in touched), default=None)
            yield Separation(tuple(sorted(newcomers)), latest)
        if promised > self._promised:  # a raised promise also covers the classes that this row does not intersect
            for known, members in enumerate(self._classes.members):
                if known not in touched and len(members) < promised:
                    yield Separation(tuple(sorted(members)), self._latest[known])


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
