"""The base class of all sections of the settings, and the kinds of numbers in them."""

from collections.abc import Callable, Iterator
from typing import Annotated, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

Contradiction: TypeAlias = tuple[str, str]
"""A setting, by its key, and what is wrong with it."""
Check: TypeAlias = Callable[..., Iterator[Contradiction]]
"""Looks for contradictions between the sections that its parameters are named after."""

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
# What is beyond these bounds, that of float32 among them, would fail later, where nobody can tell why.
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
    """Settings of something with a name or a kind, the first of them; ``model = "mlp"`` is short for ``model.name``."""

    @classmethod
    def leading(cls) -> str:
        """Return the key that the short form sets."""
        return next(iter(cls.model_fields))
