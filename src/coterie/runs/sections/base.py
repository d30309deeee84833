"""The base class of all sections of the settings, and the types of settings: numbers, or an entry of a table."""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any, Self, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from coterie.errors import ConfigError
from coterie.runs.sections.extensions import is_named

Contradiction: TypeAlias = tuple[str, str]
"""A setting, by its key, and what is wrong with it."""
Check: TypeAlias = Callable[..., Iterator[Contradiction]]
"""A check for contradictions between sections; its parameters have the names of the sections."""

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
# Numbers beyond these bounds (at most those of float32) would fail later with an unclear error.
Positive: TypeAlias = Annotated[float, Field(gt=0, le=1e38, allow_inf_nan=False)]
NotNegative: TypeAlias = Annotated[float, Field(ge=0, le=1e38, allow_inf_nan=False)]
BelowOne: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=10**9)]


class Section(BaseModel):
    """Settings that belong together; unknown keys are refused, and nothing changes once it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)

    def problems(self) -> Iterator[Contradiction]:
        """Yield contradictions between settings."""
        return iter(())

    @model_validator(mode="after")
    def _check(self) -> Self:
        if found := list(self.problems()):
            lines = "; ".join(f"{key}: {message}" if key else message for key, message in found)
            raise PydanticCustomError("contradiction", "{lines}", {"lines": lines, "problems": found})
        return self


class NamedSection(Section):
    """Settings whose first field is a name or a kind; ``model = "mlp"`` is short for ``model.name``."""

    @classmethod
    def leading(cls) -> str:
        """Return the key that the short form sets."""
        return next(iter(cls.model_fields))


Made = TypeVar("Made")


class OneOf:
    """An annotation of a setting: it must be one of these names, or a key of these tables when it is checked."""

    def __init__(self, *choices: str | Collection[str], named: bool | re.Pattern[str] = False) -> None:
        """Allow these and, with ``named``, also ``module:name`` for a function or class of the user.

        A pattern in place of ``True`` allows other forms of that name.
        """
        self._choices, self._named = choices, named

    def is_named(self, value: object) -> bool:
        """Return whether a value of the setting names a function or class of the user."""
        if not isinstance(value, str) or value in self.names:
            return False
        if isinstance(self._named, re.Pattern):
            return self._named.fullmatch(value) is not None
        return self._named and is_named(value)

    @property
    def names(self) -> tuple[str, ...]:
        """All choices at the moment."""
        given = ((choice,) if isinstance(choice, str) else choice for choice in self._choices)
        return tuple(str(name) for names in given for name in names)

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def _validate(self, value: Any) -> str:  # noqa: ANN401 - whatever was written
        if isinstance(value, str) and (value in self.names or self.is_named(value)):
            return str(value)
        *others, last = (*map(repr, self.names), *(["module:name"] if self._named else []))
        expected = f"{', '.join(others)} or {last}" if others else last
        # The same text and the same type of error as for names that pydantic checks itself.
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})


def choices_of(field: FieldInfo) -> list[OneOf]:
    """Return the choices of a setting, or of the entries of its list."""
    entries = [choice for kind in get_args(field.annotation) for choice in getattr(kind, "__metadata__", ())]
    return [choice for choice in (*field.metadata, *entries) if isinstance(choice, OneOf)]


def make_chosen(table: Mapping[str, Callable[..., Made]], name: str, section: BaseModel, **known: Any) -> Made:  # noqa: ANN401 - values of many types
    """Build the entry of a table that a section's ``kind`` names, from the section's settings and other values.

    Each entry gets the values that its parameters name. If it needs ``labels`` and they are None, :class:`ConfigError`
    is raised.
    """
    settings = section.model_dump()
    kind = settings.pop("kind")
    make = table[kind]
    taken = inspect.signature(make).parameters
    given = {parameter: value for parameter, value in {**settings, **known}.items() if parameter in taken}
    if "labels" in given and given["labels"] is None:
        raise ConfigError(f"{name}.kind: {kind} needs labels, and this data set has none")
    return make(**given)
