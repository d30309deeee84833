"""A mapping whose values are made at their first use, because a round needs few of many simulated clients."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Generic, TypeVar

V = TypeVar("V")


class LazyMap(Mapping[str, V], Generic[V]):
    """Makes the value of a name at its first use, and keeps it until :meth:`keep` drops it."""

    def __init__(self, names: Collection[str], make: Callable[[str], V]) -> None:
        self._names = dict.fromkeys(names)
        self._make = make
        self._made: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def made(self) -> int:
        """The number of values that exist at the moment."""
        return len(self._made)

    def keep(self, names: Collection[str]) -> None:
        """Drop the values of all other names; they are made again at their next use."""
        self._made = {name: self._made[name] for name in names if name in self._made}
