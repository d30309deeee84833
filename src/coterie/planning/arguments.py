"""Checks of the arguments of ``coterie.plan``, which passes its options to one of two planners."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature

from coterie.errors import ConfigError

DEPLOYMENT = "coterie.planning.deployment.plan_deployment plans a deployment, from its rounds and epsilon"
"""Where a whole deployment is planned; for error messages."""


def check_plan_options(options: Mapping[str, object], planner: Callable[..., object], what: str) -> None:
    """Refuse an option that the planner does not know, and name those that it knows."""
    known = [name for name, one in signature(planner).parameters.items() if one.kind is Parameter.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise ConfigError(f"a plan of {what} has no option {name}; it has {', '.join(known)}. {DEPLOYMENT}")
