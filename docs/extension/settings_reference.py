"""Settings as Markdown tables, read from the classes that declare them."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from itertools import pairwise

from pydantic import BaseModel

from coterie.attacks.table import ATTACKS
from coterie.deployment.settings import PrivateSettings
from coterie.rounds.floor import Floor
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import list_choices
from coterie.settings import Setting, declared

HEAD = "| setting | default | meaning |\n|---|---|---|"


def describe_run() -> str:
    """Describe every setting of ``coterie run``, one table for each section."""
    return "\n\n".join(_sections(RunConfig, ""))


def describe_server() -> str:
    """Describe the settings of a private strategy."""
    return _table(map(_row, declared(PrivateSettings))).replace("](#", "](../flower.md#")  # as the guide has them


def describe_attacks() -> str:
    """Describe the settings of every attack."""
    found = []
    for name, row in ATTACKS.items():
        settings = row.load_settings()
        about = inspect.getdoc(settings) or ""
        found.append(f"### {name}\n\n{about}\n\n{_table(map(_row, declared(settings)))}")
    return "\n\n".join(found)


def describe_floor() -> str:
    """Describe what a client can insist on, from the fields and the text below each."""
    meanings = dict(_field_texts(Floor))
    return _table(
        f"| `{field.name}` | {show(field.default)} | {flat(meanings[field.name])} |"
        for field in dataclasses.fields(Floor)
    )


def show(value: object) -> str:
    """Write a default as it is typed in TOML, or in Python where TOML has no word for it."""
    match value:
        case bool():
            return f"`{str(value).lower()}`"
        case None:
            return "none"
        case str():
            return f'`"{value}"`'
        case tuple():
            return f"`[{', '.join(show(item).strip('`') for item in value)}]`"
        case _:
            return f"`{value}`"


def flat(text: str) -> str:
    """Return text for a cell of a table: one line, without roles of reStructuredText."""
    text = re.sub(r":\w+(?::\w+)?:`~?(?:[\w.]*\.)?([\w]+)`", r"`\1`", text).replace("``", "`")
    return re.sub(r"\s+", " ", text.replace("|", "\\|")).strip()


def _sections(model: type[BaseModel], path: str) -> Iterator[str]:
    """Yield a table for the settings of a section, then those of the sections inside it."""
    rows, inner = [], []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            inner.append((f"{path}.{name}".strip("."), field.annotation))
            continue
        meaning = flat(field.description or "")
        if choices := list_choices(field):
            meaning += f" ({', '.join(f'`{choice}`' for choice in choices)})"
        rows.append(f"| `{name}` | {show(field.default)} | {meaning} |")
    if rows:
        heading = (
            f"### `[{path}]`\n\n{flat((inspect.getdoc(model) or '').splitlines()[0])}" if path else "### At the top"
        )
        yield f"{heading}\n\n{_table(rows)}"
    for where, section in inner:
        yield from _sections(section, where)


def _row(setting: Setting) -> str:
    default = setting.option.default or show(setting.default)
    bounds = _bounds(setting)
    return f"| `{setting.name}` | {flat(default)} | {flat(setting.option.help)}{bounds} |"


def _bounds(setting: Setting) -> str:
    least, most = setting.option.least, setting.option.most
    if least is not None and most is not None:
        return f" From {least:,} to {most:,}."
    if least is not None:
        return f" At least {least:,}."
    return f" At most {most:,}." if most is not None else ""


def _table(rows: Iterable[str]) -> str:
    return "\n".join([HEAD, *rows])


def _field_texts(settings: type[object]) -> Iterator[tuple[str, str]]:
    """Yield each field of a class with the string that follows it in the source."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    body = getattr(tree, "body", [])
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            yield field.target.id, str(ast.literal_eval(text.value))
