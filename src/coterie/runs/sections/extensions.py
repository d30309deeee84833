"""Functions and classes of the user that settings name as ``module:name``: data, models, policies and topologies.

Settings record the name, so that a resumed run finds the same function. Modules are files of the current folder, or of
packages in it, and no other module can be named: whoever writes settings for others would otherwise choose any program
of the machine, such as ``subprocess:getoutput``. The modules can import what they like.
"""

import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, all_suffixes
from pathlib import Path
from types import ModuleType
from typing import Any

from coterie.errors import ConfigError, CoterieError
from coterie.reports.words import printable

_NAMED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_named(text: str) -> bool:
    """Return whether a text has the form ``module:name``."""
    return _NAMED.fullmatch(text) is not None


def takes(key: str, text: str, parameter: str) -> bool:
    """Return whether the function or class that the setting ``key`` names has a parameter of this name."""
    return parameter in _parameters(key, text)


def call_named(key: str, text: str, /, **arguments: Any) -> Any:  # noqa: ANN401 - what the user's function returns
    """Call the function or class that the setting ``key`` names, with these arguments."""
    function = find_named(key, text)
    with _explained(key, text):
        return function(**arguments)


def call_offering(key: str, text: str, /, **known: Any) -> Any:  # noqa: ANN401 - what the user's function returns
    """Call the function or class that the setting ``key`` names, with those of the known values that it takes."""
    taken = _parameters(key, text)
    return call_named(key, text, **{name: value for name, value in known.items() if name in taken})


def _parameters(key: str, text: str) -> Collection[str]:
    function = find_named(key, text)
    with _explained(key, text):
        return inspect.signature(function).parameters


def find_named(key: str, text: str) -> Callable[..., Any]:
    """Return the function or class that the setting ``key`` names.

    Settings may come from somebody else, so only files of the current folder are imported. What such a file imports
    itself has a name there too: with ``from subprocess import getoutput`` in ``mine.py``, settings can name
    ``mine:getoutput``. That is the choice of whoever wrote the file.
    """
    module_name, _, name = text.partition(":")
    with _current_folder_first(), _explained(key, f"importing {module_name}"):
        module = _import_from(Path.cwd(), key, module_name)
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"{key}: {module_name} has no function or class {name}")
    return found  # type: ignore[no-any-return]  # whatever the user wrote


def check_origin(key: str, text: str, run: Path) -> None:
    """Refuse a name whose file is in the folder of a run; nothing is imported.

    A run writes no code into its folder. If there is some, whoever made the folder put it there.
    """
    parts = text.partition(":")[0].split(".")
    places = [Path.cwd().joinpath(*parts[:number]) for number in range(len(parts))]
    last = places[-1] / parts[-1]
    files = [*places[-1].glob(f"{parts[-1]}.*"), *last.glob("__init__.*")]
    if any(place.resolve().is_relative_to(run.resolve()) for place in [*places, *files]):
        raise ConfigError(
            f"{key}: {text} is in the folder of the run, {run}, and no code is run from there. If you trust it, move "
            "it out of that folder, and give the command in the folder where it is then"
        )


def check_no_code(run: Path) -> None:
    """Refuse the folder of a run with a file that Python could import; call it if settings name modules.

    Then the current folder is searched for modules. So whatever the user's file or a library imports, a folder of its
    name would be taken for it.
    """
    for folder, _, files in os.walk(run):
        for name in sorted(files):
            if name.lower().endswith(tuple(all_suffixes())):
                raise ConfigError(
                    f"{Path(folder, printable(name))} is a program in the folder of the run, and no code is run from "
                    "there. If you trust it, move it out of that folder"
                )


def _import_from(folder: Path, key: str, module_name: str) -> ModuleType:
    """Import a module, and before it the packages around it, if each is at its place in a folder."""
    place, names = folder, module_name.split(".")
    for number, last in enumerate(names, 1):
        full, place = ".".join(names[:number]), place / last
        try:
            spec = importlib.util.find_spec(full)
        except ModuleNotFoundError:  # what should be a package is a module
            spec = None
        except ValueError:  # a module that was not imported from a file, such as a script
            raise _not_there(key, full, folder) from None
        if spec is None:
            raise ConfigError(f"{key}: there is no module {full} in {folder}")
        if not _is_at(spec, place, folder, package=number < len(names)):
            raise _not_there(key, full, folder)
        importlib.import_module(full)
    return sys.modules[module_name]


def _is_at(spec: ModuleSpec, place: Path, folder: Path, *, package: bool) -> bool:
    """Return whether a module is at its place: the path below a folder that its name says, without an ending.

    The folder alone would say too little, because it may contain libraries, in a virtual environment. Links are
    followed, and must not lead out of the folder. A ``package`` without ``__init__.py`` has no file, and runs nothing.
    """
    if spec.origin is None:
        return package and place.resolve() in [Path(one).resolve() for one in spec.submodule_search_locations or ()]
    file = Path(spec.origin)
    beside = file.parent.resolve() in (place.parent.resolve(), place.resolve())
    return spec.has_location and beside and file.resolve().is_relative_to(folder.resolve())


def _not_there(key: str, module_name: str, folder: Path) -> ConfigError:
    return ConfigError(
        f"{key}: the module {module_name} is not a file of the current folder, {folder}. Functions of installed "
        f"libraries are not called by name; write a file of yours that imports what you need, and name that"
    )


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
