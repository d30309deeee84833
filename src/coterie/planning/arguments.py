"""Checks of the arguments of ``coterie.plan``, which passes its options to one of two planners."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any

from coterie.errors import ConfigError
from coterie.settings import MOST_SEED, check_number

DEPLOYMENT = "coterie.planning.deployment.plan_deployment plans a deployment, from its rounds and epsilon"
"""Where a whole deployment is planned; for error messages."""
_MOST_CLIENTS = 10**9
_NUMBERS: dict[str, tuple[bool, float | None, float | None]] = {
    "clients": (True, 1, _MOST_CLIENTS),
    "cohort": (True, 1, _MOST_CLIENTS),
    "privacy": (True, 1, _MOST_CLIENTS),
    "roster": (True, 1, _MOST_CLIENTS),
    "length": (True, 1, None),
    "precision": (True, 1, None),
    "seed": (True, 0, MOST_SEED),
    **dict.fromkeys(("collusion", "lost", "privacy_bits", "reliability_bits"), (False, None, None)),
}
"""The numeric arguments of a plan: whether each is an integer, and its bounds. The planner checks shares itself."""


def checked_argument(name: str, value: Any) -> Any:  # noqa: ANN401 - an argument of any type
    """Return an argument of a plan after checking it, if it is a number; integers of numpy as Python's."""
    if name not in _NUMBERS or value is None:
        return value
    whole, least, most = _NUMBERS[name]
    check_number(name, value, whole=whole, least=least, most=most)
    return int(value) if whole else value


def check_plan_options(options: Mapping[str, object], planner: Callable[..., object], what: str) -> None:
    """Refuse an option that the planner does not know, and name those that it knows."""
    known = [name for name, one in signature(planner).parameters.items() if one.kind is Parameter.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise ConfigError(f"a plan of {what} has no option {name}; it has {', '.join(known)}. {DEPLOYMENT}")
