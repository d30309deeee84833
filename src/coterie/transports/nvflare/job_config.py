"""The client's configuration of a job as a site received it, and the entries that a site refuses.

Members of a session compare the text of the configuration and the files of the app. This protects only if the text has
the same meaning on every site, and if everything that it names is compared too. So a site refuses references that
NVFlare resolves locally, and paths that lead out of the app's folder into other folders of NVFlare. What NVFlare builds
of the configuration is judged in :mod:`.components`.
"""

import copy
import os
import re
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from nvflare.apis.fl_constant import SystemVarName
from nvflare.fuel.utils.json_scanner import JsonScanner
from nvflare.fuel.utils.wfconf import resolve_var_refs

from coterie.deployment.home import ENVIRONMENT, home
from coterie.deployment.logs import LOGGER, quote
from coterie.errors import ConfigError
from coterie.transports.nvflare.components import is_log_sender
from coterie.transports.nvflare.files import CONFIG, digest_files, is_of_others, read_config
from coterie.transports.nvflare.messages import flatten
from coterie.transports.nvflare.request import SiteApp

_SYSTEM = frozenset(value for name, value in vars(SystemVarName).items() if name.isupper())
_KEPT_ON_SITE = "${secret:"  # begins a reference to the environment or to a file of the site
_STREAMED = (
    "NVFlare sends the error log of this site to the server, and errors of an app may quote data: set "
    "allow_log_streaming to false in local/resources.json"
)
_OF_PROCESS = re.compile(r"/+(proc|dev/(fd|stdin|stdout|stderr))(/|$)")
_NOT_OF_PATHS, _SIGNS = re.compile(r"[^\w./~+@%-]+"), re.compile(r"[^\w./~-]+")
_FLAG = re.compile(r"^-[^/]*")


def read_app(folder: Path, config: Path) -> SiteApp:
    """Read the app of a job from its folder; ``config`` is the one of its configuration."""
    _check_home(folder)
    described = read_config(config / CONFIG)
    _leave_out_streamer(described)
    _check_references(described)
    _check_paths(described, folder.resolve())
    _check_modules(folder.resolve())
    return SiteApp(described, digest_files(folder, config / CONFIG))


def _check_home(folder: Path) -> None:
    """Refuse all jobs while this site's memory is in NVFlare's workspace.

    NVFlare deploys a job to the folder with the job's name there, and deletes that folder first.
    """
    if home().resolve().is_relative_to(folder.resolve().parent.parent):
        raise ConfigError(
            f"{ENVIRONMENT} is in NVFlare's workspace, where the server can delete it by a job of that name: move it "
            "to another place"
        )


def _check_modules(folder: Path) -> None:
    """Refuse a job if Python imported code from NVFlare's workspace outside of the app's folder.

    Python finds modules of other jobs by dotted names where the client was started in its workspace. What the operator
    installed there is accepted.
    """
    for name, module in sorted(sys.modules.items()):
        named = module.__dict__.get("__file__") if isinstance(module, ModuleType) else None
        if not isinstance(named, str) or not os.path.isabs(named):  # some modules of libraries have made-up names
            continue
        if is_of_others(os.path.realpath(named), folder):
            raise ConfigError(
                f"the job uses the module {quote(name)}, which is in NVFlare's workspace and not in the app's folder: "
                "members of a session do not compare it. Add it to the job, or install it"
            )


def _leave_out_streamer(described: dict[str, Any]) -> None:
    """Remove the sender of the error log, which NVFlare adds on sites that allow it. It is not part of the app.

    Only exactly the entry that NVFlare adds is removed, because removed entries are not compared.
    """
    components = described.setdefault("components", [])
    if isinstance(components, list) and components and is_log_sender(components[-1]):
        components.pop()
        LOGGER.warning(_STREAMED)


def _check_references(described: dict[str, Any]) -> None:
    """Refuse a configuration that NVFlare would change before use.

    NVFlare replaces references to values of the site, to its environment and to other entries of the configuration,
    repeatedly. Its own resolver finds the entries that it would replace. Whether it replaces a reference into a value,
    such as ``{SITE_NAME[5]}``, depends on that value, so texts with such references are refused by the name in them.
    """
    known = _SYSTEM | described.keys()
    for _, text in _texts(described):
        named = any(name.startswith("$") or name in known for name in _variables(text))
        if named or _KEPT_ON_SITE in text:
            raise _replacement_error(text)
    plain = {key: value for key, value in described.items() if not key.startswith("@")}  # templates, used by reference
    resolved = copy.deepcopy(plain)
    try:
        resolve_var_refs(JsonScanner(resolved), {**copy.deepcopy(described), **dict.fromkeys(_SYSTEM, "of this site")})
    except Exception:  # NVFlare raises many kinds of errors, here as in the job itself
        raise ConfigError(f"{CONFIG} has references that NVFlare cannot resolve") from None
    if resolved != plain:
        raise _replacement_error(min(set(flatten(plain)) - set(flatten(resolved)))[1].decode())


def _replacement_error(text: str) -> ConfigError:
    return ConfigError(
        f"{CONFIG} has {quote(text)}, which NVFlare replaces on each site: the app would differ, and members of a "
        "session could not see that. Write values instead of references"
    )


def _variables(template: str) -> Iterator[str]:
    """Yield the names of the variables in a text that Python may format, also those inside of formats."""
    try:
        fields = [(name, more) for _, name, more, _ in string.Formatter().parse(template) if name is not None]
    except ValueError:  # it is not a template, and is not replaced
        return
    for name, more in fields:
        yield re.split(r"[.\[]", name, maxsplit=1)[0]
        yield from _variables(more or "")


def _check_paths(described: dict[str, Any], folder: Path) -> None:
    """Refuse paths that lead into NVFlare's workspace outside of the app's folder.

    The server may place other files there on each site, for example by another job. A script has to be in the app.
    """
    for key, text in _texts(described):
        if key.endswith("script_path"):
            _check_script(text, folder / "custom")
        to_workspace = re.finditer(re.escape(str(folder.parent.parent)), text)  # its path may have any characters
        pieces = {text, *_NOT_OF_PATHS.split(text), *(text[match.start() :] for match in to_workspace)}
        places = {_FLAG.sub("", piece) for piece in pieces | {*_SIGNS.split(text)}}
        ends = {piece[piece.index("/") :] for piece in pieces if "/" in piece}
        for piece in sorted(pieces | places | ends):
            if (piece in pieces | places and _is_of_process(piece, folder)) or _leaves(piece, folder):
                raise ConfigError(
                    f"{CONFIG} names {quote(piece)}, which is or may be in NVFlare's workspace and not in the app's "
                    "folder: members of a session do not compare it. Add it to the job, or keep it elsewhere"
                )


def _check_script(text: str, custom: Path) -> None:
    """Refuse a script outside of the app, or one of several that NVFlare may find by this path.

    NVFlare takes the first file whose path ends with it, and the order of folders is not the same on every disk.
    """
    if os.path.isabs(text) or ".." in Path(text).parts:
        raise ConfigError(f"{CONFIG} has the script {quote(text)}: its path must be relative to the app's folder")
    found = [path for path in custom.rglob("*") if str(path).endswith(os.sep + text)]
    if len(found) > 1 and custom / Path(text).name not in found:  # a file at the top is found first
        raise ConfigError(f"{CONFIG} has the script {quote(text)}, and the app has several: write a longer path")


def _leaves(piece: str, folder: Path) -> bool:
    """Return whether a word of the configuration is a path into NVFlare's workspace outside of an app's folder.

    A relative path without ``..`` counts only if it begins with a file that exists, because most words are not paths.
    The server chooses the rest of its characters. It writes to folders of jobs, and not to those of the operator.
    """
    path, inside = Path(os.path.expanduser(piece)), (folder, folder / "custom")
    if piece in ("", ".") or "\0" in piece or path.parts[:1] in (("local",), ("startup",)):
        return False
    certain = path.is_absolute() or ".." in path.parts
    workspace = folder.parent.parent  # of the site, which contains JOB/APP
    for base in (*inside, Path.cwd()):
        found = (base / path).resolve()
        begins = certain or os.path.exists(base / path.parts[0])
        if begins and found.is_relative_to(workspace) and not found.is_relative_to(folder):
            return True
    return False


def _is_of_process(piece: str, folder: Path) -> bool:
    """Return whether a word of the configuration is a path to files that are other ones for each process.

    These are below ``/proc`` and ``/dev/fd``. Such a path may get there by ``..``, after links too.
    """
    path = os.path.expanduser(piece)
    if "\0" in path or not (os.path.isabs(path) or ".." in path.split("/")):
        return False
    for base in (folder, folder / "custom", Path.cwd()):
        parts = os.path.join(base, path).split("/")
        ends = [end for end, part in enumerate(parts) if part in ("proc", "dev")]
        forms = [os.path.join(os.path.realpath("/".join(parts[:end]) or "/"), *parts[end:]) for end in ends]
        if any(_OF_PROCESS.match(form) or _OF_PROCESS.match(os.path.normpath(form)) for form in forms):
            return True
    return False


def _texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts of a JSON document, also its keys, with the key that each is below."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, child in value.items():
            yield key, name
            yield from _texts(child, name)
    elif isinstance(value, list):
        for child in value:
            yield from _texts(child, key)
