"""Settings as TOML. Reading reports all mistakes at once; writing can explain every key."""

import copy
import difflib
import json
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from coterie.errors import ConfigError, ErrorText, Remedy
from coterie.files import explain
from coterie.graphs.table import TOPOLOGIES
from coterie.runs.algorithms import ALGORITHMS
from coterie.runs.sections.base import NamedSection, choices_of
from coterie.runs.sections.common import CommonSettings
from coterie.runs.settings.config import RunConfig, contradictions
from coterie.runs.settings.names import find_settings
from coterie.secagg.protocols import SessionProtocol
from coterie.toml import LONGEST, parse_toml

_Parts: TypeAlias = tuple[str | Remedy, ...]
_SET = Remedy("set", mention=True)
_WIDTH = 100
_HEADER = """\
Settings of a Coterie run. Every key{of} is here, with its default: delete what you do not want to change.
Run it with: coterie run {file}
"""


def load_recorded(path: Path, overrides: Iterable[str] = ()) -> RunConfig:
    """Read the recorded settings of a run, perhaps of an earlier version, with their original meaning."""
    return load_config(path, overrides, recorded=True)


def load_config(path: Path | None = None, overrides: Iterable[str] = (), *, recorded: bool = False) -> RunConfig:
    """Read a configuration, by default the default one, and apply overrides written ``section.key=value``.

    All mistakes are reported in one :class:`ConfigError`, each on a line. With ``recorded``, settings keep the meaning
    they had in the version of the run.
    """
    tree: dict[str, Any] = {}
    text = ""
    if path is not None:
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(LONGEST + 1)
        except OSError as error:
            hint = "; coterie init writes a file with all settings" if isinstance(error, FileNotFoundError) else ""
            raise ConfigError(f"cannot read {path}: {explain(error)}{hint}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not TOML: it is not a text file in UTF-8") from None
        tree = _written_out(parse_toml(text, path))
    if recorded:
        _keep_meaning(tree)
    settled = dict(map(_parse_override, overrides))
    for key, value in settled.items():
        _put(tree, key, value)

    def place(key: str) -> _Parts:
        key = re.sub(r"(\.\d+)+$", "", key)  # the list, not its entry
        if any(key == given or key.startswith(f"{given}.") for given in settled):
            return _SET, " "
        line = _line_of(text, key) or _line_of(text, key.rpartition(".")[0])
        return (f"{path}:{line}: " if line else f"{path}: " if path else "",)

    return _validated(tree, place)


def make_config(settings: Mapping[str, Any]) -> RunConfig:
    """Return the default configuration with these changes, keyed like ``{"cohort.size": 12}``."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        _put(tree, *_full(key, value))
    return _validated(tree, lambda _key: ())


def parse_config(text: str) -> RunConfig:
    """Read the settings in a checkpoint: the output of :func:`to_toml`, perhaps of an earlier version."""
    tree = _written_out(parse_toml(text, "the text of the settings in the checkpoint"))
    _keep_meaning(tree)
    return _validated(tree, lambda _key: ())


def to_toml(config: CommonSettings) -> str:
    """Write every setting, without explanations."""
    return "\n".join(_tables(config, explain=False)) + "\n"


def commented_toml(file: str = "FILE", algorithm: str | None = None) -> str:
    """Write the default of every setting, each below its description.

    With an ``algorithm`` they are its defaults, and sections of other algorithms are left out.
    """
    of = f" for {algorithm}" if algorithm else ""
    header = [f"# {line}".rstrip() for line in _HEADER.format(file=file, of=of).splitlines()]
    config = make_config({"training.algorithm": algorithm}) if algorithm else RunConfig()
    others = {other.section for other in ALGORITHMS.values() if algorithm and other is not config.algorithm}
    return "\n".join([*header, "", *_tables(config, explain=True, without=others)]) + "\n"


def _validated(tree: dict[str, Any], place: Callable[[str], _Parts]) -> RunConfig:
    tree = _with_defaults(tree)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        found = [problem for details in error.errors() for problem in _explain(details)]
        wrong = {details["loc"][0] for details in error.errors() if details["loc"]}
        if wrong:  # pydantic stopped before it checked contradictions between sections
            found += contradictions(_sections(tree, wrong))
        lines = [ErrorText("\n  ", *place(key), f"{key}: {what}") for key, what in found]
        if len(lines) == 1:
            raise ConfigError(*lines[0].parts[1:]) from None
        raise ConfigError(f"{len(lines)} settings are wrong:", *lines) from None


def _with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults of the chosen algorithm."""
    training = given.get("training")
    name = training.get("algorithm") if isinstance(training, Mapping) else None
    algorithm = ALGORITHMS.get(name) if isinstance(name, str) else None
    tree = copy.deepcopy(dict(given))
    for key, value in algorithm.defaults.items() if algorithm else ():
        section, _, last = key.rpartition(".")
        table = tree.setdefault(section, {}) if section else tree
        if isinstance(table, dict):
            table.setdefault(last, value)
    return tree


def _sections(tree: Mapping[str, Any], wrong: Collection[object]) -> dict[str, Any]:
    """Return the sections without mistakes."""
    fields = {name: field.annotation for name, field in RunConfig.model_fields.items() if name not in wrong}
    kinds = {name: kind for name, kind in fields.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}
    return {name: kind.model_validate(tree.get(name, {})) for name, kind in kinds.items()}


def _explain(details: ErrorDetails) -> Iterator[tuple[str, str]]:
    key = ".".join(str(part) for part in details["loc"])
    match details["type"]:
        case "contradiction":
            for inner, message in details["ctx"]["problems"]:
                yield f"{key}.{inner}".strip("."), message
        case "extra_forbidden":
            known = _keys_around(details["loc"])
            close = difflib.get_close_matches(str(details["loc"][-1]), known, 1)
            close = close or find_settings(key)
            hint = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(known)}"
            yield key, f"there is no such setting; {hint}"
        case "literal_error":
            expected = str(details["ctx"]["expected"])
            close = difflib.get_close_matches(str(details["input"]), re.findall("'([^']*)'", expected), 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            yield key, f"should be {expected}, not {_value(details['input'])}{hint}"
        case "model_type":
            yield key, f"is a section and has keys of its own, such as {key}.{_keys_around((*details['loc'], ''))[0]}"
        case "tuple_type":
            yield key, f'should be a list, such as ["a", "b"], not {_value(details["input"])}'
        case _:
            said = details["msg"].removeprefix("Input should be ").replace("a valid integer", "a whole number")
            said = said.replace("a valid string", "a text").replace("greater than or equal to", "at least")
            said = said.replace("less than or equal to", "at most").replace("a valid ", "a ")
            yield key, f"should be {said}, not {_value(details['input'])}"


def _keys_around(location: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = RunConfig
    for part in location[:-1]:
        inner = model.model_fields[str(part)].annotation
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else model
    return list(model.model_fields)


def _parse_override(text: str) -> tuple[str, Any]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not re.fullmatch(r"[A-Za-z_]+(\.[A-Za-z_]+)*", key):
        raise ConfigError(_SET, f" takes section.key=value, not {text!r}")
    try:
        return _full(key, parse_toml(f"value = {value}", key)["value"])
    except ValueError:
        if re.fullmatch(r"[\w./~:-]*", value):  # a single word needs no quotation marks
            return _full(key, value)
        raise ConfigError(_SET, f" {key}: {value!r} is not a TOML value") from None


def _full(key: str, value: object) -> tuple[str, Any]:
    """Expand a short form: ``data = "mnist"`` sets only ``data.name`` of the section."""
    model: Any = RunConfig
    for part in key.split("."):
        field = model.model_fields.get(part) if isinstance(model, type) and issubclass(model, BaseModel) else None
        model = field.annotation if field else None
    named = isinstance(model, type) and issubclass(model, NamedSection) and isinstance(value, str)
    return (f"{key}.{model.leading()}" if named else key), value


def _written_out(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Expand all short forms in a file."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        where = f"{path}{key}"
        inner = _written_out(value, f"{where}.") if isinstance(value, dict) else value
        full, _ = _full(where, value)
        found[key] = inner if full == where else {full.rpartition(".")[2]: inner}
    return found


def _keep_meaning(tree: dict[str, Any]) -> None:
    """Add the settings that a run of an earlier version lacks, with the behaviour of that version.

    A run records every setting of its version. If one of these is missing, the version had only the papers' protocol,
    and ``aggregation.collusion`` and ``aggregation.dropout`` were shares of a session. The dropout matters only on
    sparse graphs.
    """
    aggregation = tree.setdefault("aggregation", {})
    if not isinstance(aggregation, dict):
        return
    aggregation.setdefault("protocol", str(SessionProtocol.PAPERS))
    share = aggregation.get("collusion")
    if isinstance(share, int | float) and share >= 0:
        aggregation.setdefault("collusion_of", "session")
    kind = TOPOLOGIES.get(str(aggregation.get("topology")))
    if "topology" in aggregation and not (kind and kind.complete):
        aggregation.setdefault("dropout_of", "session")


def _put(tree: dict[str, Any], key: str, value: object) -> None:
    *sections, last = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{key}: {section} was set to {tree!r}; give either {section} or {key}, not both")
    tree[last] = value


def _line_of(text: str, key: str) -> int | None:
    """Return the line that sets ``section.key``, if it is written in the usual way."""
    section, _, last = key.rpartition(".")
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            current = heading[1]
            if current == key:
                return number
        elif current == section and re.match(rf"\s*{re.escape(last)}\s*=", line):
            return number
    return None


def _tables(config: BaseModel, *, explain: bool, path: str = "", without: Collection[str] = ()) -> Iterator[str]:
    """Yield the lines of a section: its own keys first, as TOML requires, then the sections inside it."""
    inner = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if name in without:
            continue
        if isinstance(value, BaseModel):
            inner.append((f"{path}.{name}".strip("."), value))
            continue
        if explain:
            yield from _comment(field)
        yield f"{name} = {_value(value)}"
    for where, section in inner:
        yield ""
        if explain:
            yield f"# {(type(section).__doc__ or '').splitlines()[0]}"
        yield f"[{where}]"
        yield from _tables(section, explain=explain, path=where)


def list_choices(field: FieldInfo) -> list[str]:
    """List the values that a setting may have, if they can be listed."""
    tables = [name for choice in choices_of(field) for name in choice.names]
    return tables or [choice for choice in get_args(field.annotation) if isinstance(choice, str)]


def _comment(field: FieldInfo) -> Iterator[str]:
    choices = list_choices(field)
    words = f"{field.description}" + (f" ({' | '.join(choices)})" if choices else "")
    for line in textwrap.wrap(words, _WIDTH - 2, break_on_hyphens=False):
        yield f"# {line}"


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            return f"{{{', '.join(f'{_quoted(key)} = {_value(inner)}' for key, inner in value.items())}}}"
        case _:
            return str(value)


def _quoted(text: str) -> str:
    """Quote a string for TOML: as in JSON, and DEL is escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
