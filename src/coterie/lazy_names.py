"""Names of a package that are imported when they are first used, so that importing the package stays light."""

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_getattr(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package; ``homes`` has the module of each name."""

    def find(name: str) -> object:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
