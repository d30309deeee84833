"""Checks of the arguments of ``coterie.aggregate``, before a session is begun."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from coterie.arithmetic.quantize import Layout
from coterie.cohorts.guard import unstorable_name
from coterie.crypto.signing import Identity
from coterie.errors import ConfigError, InputError
from coterie.settings import check_number

_LEAST = {"minimum": 2, "threshold": 1, "colluders": 0, "workers": 1, "seed": 0}
"""The least values of arguments that are whole numbers."""


def check_aggregate_arguments(
    names: Sequence[object], by_client: Mapping[str, object], numbers: Mapping[str, object], dropout: object
) -> None:
    """Refuse arguments of a wrong kind; the session checks whether its clients can agree on them."""
    for name in names:
        if not (isinstance(name, str) and name):
            raise InputError(f"the name of a client is a text that is not empty, such as 'ann', not {name!r}")
    if (odd := unstorable_name(list(map(str, names)))) is not None:
        raise InputError(f"the client's name {odd!r} is not valid Unicode and cannot be sent")
    for label, given in by_client.items():
        if given is None:
            continue
        if not isinstance(given, Mapping):
            raise ConfigError(f"{label} is a dictionary with a value for each client, not {type(given).__name__}")
        if given.keys() != set(names):
            raise ConfigError(f"{label} must be given for exactly the clients with inputs")
        for client, value in given.items():
            if label == "identities" and not isinstance(value, Identity):
                raise ConfigError(f"identities[{client!r}] must be of type {Identity.__qualname__}, not {value!r:.60}")
            if label == "circles":
                check_number(f"circles[{client!r}]", value, whole=True, least=-(2**63), most=2**63 - 1)
            if label == "weights" and (isinstance(value, bool) or not isinstance(value, Integral) or value < 1):
                raise InputError(f"weights[{client!r}] must be a whole number of at least 1, not {value!r:.60}")
    most = {"minimum": max(2, len(names)), "threshold": max(2, len(names)), "colluders": max(0, len(names) - 2)}
    for label, value in numbers.items():
        if value is not None:
            check_number(label, value, whole=True, least=_LEAST[label], most=most.get(label))
    check_number("dropout", dropout, least=0, most=1)
    if dropout == 1:
        raise ConfigError("dropout must be below 1: if every client drops out, there is no sum")


def layout_of(name: str, arrays: Sequence[Any]) -> Layout:
    """Return the layout of a client's arrays; an error names the client."""
    try:
        return Layout.of(arrays)
    except InputError as error:
        raise InputError(f"the input of {name!r}: {error}") from None
