"""Settings that name an entry of a table, such as a model or a policy."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from coterie.errors import ConfigError
from coterie.runs.sections.extensions import is_named

Made = TypeVar("Made")


class OneOf:
    """An annotation of a setting: it must be one of these names, or a key of these tables when it is checked."""

    def __init__(self, *choices: str | Collection[str], named: bool = False) -> None:
        """Allow these and, with ``named``, also ``module:name`` for a function or class of the user."""
        self._choices, self._named = choices, named

    @property
    def names(self) -> tuple[str, ...]:
        """All that may be chosen now."""
        given = ((choice,) if isinstance(choice, str) else choice for choice in self._choices)
        return tuple(str(name) for names in given for name in names)

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def _validate(self, value: Any) -> str:  # noqa: ANN401 - whatever was written
        if isinstance(value, str) and (value in self.names or (self._named and is_named(value))):
            return str(value)
        *others, last = (*map(repr, self.names), *(["module:name"] if self._named else []))
        expected = f"{', '.join(others)} or {last}" if others else last
        # The same words, and the same kind of mistake, as where pydantic knows the names itself.
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})


def make_chosen(table: Mapping[str, Callable[..., Made]], name: str, section: BaseModel, **known: Any) -> Made:  # noqa: ANN401
    """Make the entry of a table that a section's ``kind`` names, from the section's settings and other known values.

    Each entry gets the values that its parameters name. It is a :class:`ConfigError` if it needs ``labels`` and they
    are None.
    """
    settings = section.model_dump()
    kind = settings.pop("kind")
    make = table[kind]
    taken = inspect.signature(make).parameters
    given = {parameter: value for parameter, value in {**settings, **known}.items() if parameter in taken}
    if "labels" in given and given["labels"] is None:
        raise ConfigError(f"{name}.kind: {kind} needs labels, and this data set has none")
    return make(**given)
