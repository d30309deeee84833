"""Inputs of several named arrays, as tokenizers give them: ``{"input_ids": ..., "attention_mask": ...}``.

A data set has one array of inputs, so named arrays stand side by side in it: every example is one row, and
:class:`InputFields` says where each name is. Floats beside whole numbers are stored by their bits, so nothing is
rounded. :class:`KeywordModel` takes the rows apart again and calls the user's model with keyword arguments.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError

PADDING = (
    "pad them to one shape before training: a tokenizer does it with padding=True or padding='max_length', torch with "
    "torch.nn.utils.rnn.pad_sequence"
)
"""What to do about inputs of different shapes."""


@dataclass(frozen=True)
class InputField:
    """One of the named arrays: its name, the shape of an example's part, and the type of its numbers."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def width(self) -> int:
        """The number of columns of the packed rows that it takes."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class InputFields:
    """All named arrays, in the order of their names."""

    fields: tuple[InputField, ...]

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "InputFields":
        """Return the fields of these arrays, which have one row for each example."""
        return cls(tuple(InputField(name, array.shape[1:], str(array.dtype)) for name, array in sorted(arrays.items())))

    @property
    def whole(self) -> bool:
        """Whether packed rows are whole numbers; they are floats if all arrays are."""
        return any(field.dtype != "float32" for field in self.fields)

    def pack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the rows of these arrays, side by side."""
        rows = []
        for field in self.fields:
            array = np.ascontiguousarray(arrays[field.name]).reshape(len(arrays[field.name]), field.width)
            if self.whole:
                array = (array.view(np.int32) if field.dtype == "float32" else array).astype(np.int64)
            rows.append(array)
        return np.concatenate(rows, axis=1)

    def unpack(self, x: Any) -> dict[str, Any]:  # noqa: ANN401 - a tensor of packed rows
        """Return the named tensors of packed rows."""
        import torch

        ends = accumulate((field.width for field in self.fields), initial=0)
        found = {}
        for field, (start, end) in zip(self.fields, pairwise(ends), strict=True):
            part = x[:, start:end]
            if self.whole and field.dtype == "float32":
                part = part.to(torch.int32).view(torch.float32)
            elif field.dtype == "bool":
                part = part.to(torch.bool)
            found[field.name] = part.reshape(len(x), *field.shape)
        return found


def read_fields(inputs: Mapping[str, Any], name: str) -> dict[str, npt.NDArray[Any]]:
    """Return named arrays as float32, int64 or bool; :class:`InputError` unless all have the same number of rows."""
    if not inputs:
        raise InputError(f"{name}: the inputs are an empty dictionary")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for key, given in inputs.items():
        try:
            array = np.asarray(given)
        except ValueError:
            raise InputError(f"{name}: the inputs {key!r} have different lengths; {PADDING}") from None
        if array.dtype.kind not in "biuf" or array.ndim == 0:
            raise InputError(
                f"{name}: the inputs {key!r} must be an array of numbers with one row for each example, not "
                f"{array.dtype} of shape {array.shape}"
            )
        kinds = {"b": np.bool_, "i": np.int64}
        arrays[str(key)] = array.astype(kinds.get(array.dtype.kind, np.float32))
    (first, model), *others = arrays.items()
    for key, array in others:
        if len(array) != len(model):
            raise InputError(f"{name}: the inputs {key!r} have {len(array)} rows and {first!r} has {len(model)}")
    for key, array in arrays.items():
        if array.dtype == np.float32 and not np.isfinite(array).all():
            raise InputError(f"{name}: the inputs {key!r} must be finite numbers")
    return arrays
