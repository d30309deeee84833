"""Examples whose columns belong to different members of a group: ``{group: ({member: columns, ...}, targets)}``.

Every group has the same members, each with the same columns in every group. Within a group all members have the same
rows in the same order. The columns of the members stand side by side in the inputs of a data set, in the order of the
first group.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arithmetic import FloatArray
from coterie.errors import InputError
from coterie.training.data.example_readers import Examples


def in_columns(examples: Examples) -> bool:
    """Return whether examples are columns by member, with their targets or (by mistake) without."""
    return isinstance(examples, Mapping) or (
        isinstance(examples, tuple) and len(examples) == 2 and isinstance(examples[0], Mapping)
    )


def join_columns(groups: Mapping[str, Examples], name: str) -> tuple[dict[str, Examples], dict[str, int]]:
    """Return each group's examples as a pair of arrays, and the number of columns of each member."""
    read = {group: _read(examples, f"{name}, {group}") for group, examples in groups.items()}
    first = next(iter(read))
    members = {member: array.shape[-1] for member, array in read[first][0].items()}
    joined: dict[str, Examples] = {}
    for group, (columns, targets) in read.items():
        if columns.keys() != members.keys():
            raise InputError(
                f"{name}: the members of {group!r} are {', '.join(columns)}, and those of {first!r} are "
                f"{', '.join(members)}: every group needs the same members"
            )
        for member, width in members.items():
            found = columns[member].shape[-1]
            if found != width:
                raise InputError(
                    f"{name}: {member!r} has {found} columns in {group!r} and {width} in {first!r}: a member has the "
                    "same columns in every group"
                )
        joined[group] = np.concatenate([columns[member] for member in members], axis=-1), targets
    return joined, members


def check_columns(name: str, columns: Mapping[str, FloatArray], targets: npt.NDArray[Any]) -> None:
    """Raise :class:`InputError` unless all members have the same rows, and targets for them."""
    if len(columns) < 2:
        raise InputError(f"{name}: columns of two members or more are needed, not of {len(columns)}")
    for member, array in columns.items():
        if array.ndim < 2 or not array.shape[-1]:
            raise InputError(f"{name}: {member!r} must give examples x columns, not an array of shape {array.shape}")
    (first, model), *others = columns.items()
    for member, array in others:
        if array.shape[:-1] != model.shape[:-1]:
            raise InputError(
                f"{name}: {member!r} has {_rows(array)} and {first!r} has {_rows(model)}: members have different "
                "columns of the same rows, in the same order"
            )
    if len(targets) != len(model):
        raise InputError(f"{name}: the members have {len(model)} rows, and there are {len(targets)} labels or targets")


def _read(examples: Examples, name: str) -> tuple[dict[str, FloatArray], npt.NDArray[Any]]:
    if isinstance(examples, Mapping) or not in_columns(examples) or examples[1] is None:
        raise InputError(
            f"{name}: labels are missing, or columns by member; give ({{member: columns, ...}}, labels) for each group"
        )
    columns, targets = examples
    try:
        arrays = {str(member): np.asarray(array, np.float32) for member, array in columns.items()}
        wanted = np.asarray(targets)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: not arrays of numbers: {error}") from error
    check_columns(name, arrays, wanted)
    return arrays, wanted


def _rows(array: FloatArray) -> str:
    return " x ".join(map(str, array.shape[:-1])) + " rows"
