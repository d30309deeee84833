"""TOML from any source, read in one place, so that bad TOML is the same error everywhere.

``tomllib`` raises :class:`ValueError` for most mistakes, and :class:`RecursionError` for brackets that are nested too
deeply. A key with many dots is read without recursion, but no program that walks through the tables could follow it.
"""

import tomllib
from typing import Any

from coterie.errors import ConfigError

LONGEST = 1 << 16
"""Characters. Settings have some thousand, and the time to read a long key grows with its square."""
_DEEPEST = 100  # tables and lists inside each other; settings have four


def parse_toml(text: str, source: object) -> dict[str, Any]:
    """Read a TOML text; if it cannot be read, the error begins with its ``source``."""
    if len(text) > LONGEST:
        raise ConfigError(f"{source} has more than {LONGEST:,} characters")
    try:
        tree = tomllib.loads(text)
    except ValueError as error:  # also raised for numbers with thousands of digits
        raise ConfigError(f"{source} is not TOML: {error}") from None
    except RecursionError:
        raise _too_deep(source) from None
    layer: list[Any] = [tree]
    for _ in range(_DEEPEST):
        layer = [inner for outer in layer for inner in _inside(outer)]
        if not layer:
            return tree
    raise _too_deep(source)


def _inside(value: object) -> list[Any]:
    """Return the tables and lists in a value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [one for one in inner if isinstance(one, dict | list)]


def _too_deep(source: object) -> ConfigError:
    return ConfigError(f"{source} is nested too deeply: more than {_DEEPEST} tables and lists are inside each other")
