"""Functions and classes of the user that settings name as ``module:name``: data, models, policies and topologies.

Modules are searched in the current folder first, as Python does for a script there. Nothing else is imported. Settings
record the name, so that a resumed run finds the same function.
"""

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError, CoterieError

_NAMED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_named(text: str) -> bool:
    """Return whether a text has the form ``module:name``."""
    return _NAMED.fullmatch(text) is not None


def takes(key: str, text: str, parameter: str) -> bool:
    """Return whether the function or class that the setting ``key`` names has a parameter of this name."""
    return parameter in inspect.signature(find_named(key, text)).parameters


def call_named(key: str, text: str, **known: Any) -> Any:  # noqa: ANN401 - what the user's function returns
    """Call the function or class that the setting ``key`` names, with those of the known values that it takes."""
    function = find_named(key, text)
    with _explained(key, text):
        taken = inspect.signature(function).parameters
        return function(**{name: value for name, value in known.items() if name in taken})


def find_named(key: str, text: str) -> Callable[..., Any]:
    """Return the function or class that the setting ``key`` names."""
    module_name, _, name = text.partition(":")
    with _current_folder_first(), _explained(key, f"importing {module_name}"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the module exists, and one of its imports is missing
            place = f"in {Path.cwd()} or among the installed packages"
            raise ConfigError(f"{key}: there is no module {error.name} {place}") from None
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"{key}: {module_name} has no function or class {name}")
    return found  # type: ignore[no-any-return]  # whatever the user wrote


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """Search modules in the current folder first; afterwards keep it as the last place, also for worker processes.

    If it stayed the first place, a file there could replace a library that is imported later.
    """
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


@contextmanager
def _explained(key: str, what: str) -> Iterator[None]:
    """Convert an exception of the user's code to a :class:`ConfigError` that says where it failed."""
    try:
        yield
    except CoterieError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}:{frame.lineno}"
        raise ConfigError(f"{key}: {what} failed: {type(error).__name__}: {error} ({place})") from error
