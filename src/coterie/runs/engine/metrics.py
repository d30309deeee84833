"""The metrics of a run: the functions that ``training.metrics`` names, from the table or from the user."""

from collections.abc import Callable, Mapping
from typing import Any

from coterie.errors import ConfigError
from coterie.runs.algorithms import algorithm_of
from coterie.runs.records.record import RoundRecord
from coterie.runs.sections.common import OWN, CommonSettings
from coterie.runs.sections.extensions import find_named
from coterie.training.metrics import METRICS, USER_METRIC, Compute, Metric, metric_form

UserMetric = Callable[..., Any] | Metric | Mapping[str, "Callable[..., Any] | Metric"]
"""The argument of ``coterie.train(metric=...)``: a function, a :class:`Metric`, or several of them by name."""


def user_metrics(metric: UserMetric | None) -> tuple[dict[str, Compute], tuple[str, ...]]:
    """Return the functions by name, and the entries of ``training.metrics`` that stand for them."""
    given = metric if isinstance(metric, Mapping) else {} if metric is None else {_name(metric): metric}
    functions: dict[str, Compute] = {}
    settings = []
    for name, one in given.items():
        if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
            raise ConfigError(f"metric: the name {name!r} must be letters, digits and _, such as f1_score")
        compute, larger = (one.compute, one.larger is not False) if isinstance(one, Metric) else (one, True)
        if not callable(compute):
            raise ConfigError(
                f"metric: {name!r} must be a function from outputs and targets to a number, not {one!r:.60}"
            )
        functions[name] = compute
        settings.append(f"{OWN}:{name}" if larger else f"{OWN}:{name}:smaller")
    return functions, tuple(settings)


def find_metrics(config: CommonSettings, own: Mapping[str, Compute], *, labelled: bool) -> dict[str, Compute]:
    """Return the functions that the settings name, by their columns; ``own`` are the functions of a Python program."""
    found: dict[str, Compute] = {}
    taken = {*RoundRecord.__struct_fields__, *algorithm_of(config).columns}
    for setting in config.training.metrics:
        column = metric_form(setting).column
        if column in taken:
            raise ConfigError(f"training.metrics: {setting}: records have a column {column} already; rename the metric")
        taken.add(column)
        found[column] = _find(setting, own, labelled)
    return found


def _find(setting: str, own: Mapping[str, Compute], labelled: bool) -> Compute:
    if (row := METRICS.get(setting)) is not None:
        if row.labels not in (None, labelled):
            kinds = ("labels", "numbers") if row.labels else ("numbers", "labels")
            raise ConfigError(
                f"training.metrics: {setting} is for {kinds[0]}, and the targets of this data are {kinds[1]}"
            )
        return row.compute
    user = USER_METRIC.fullmatch(setting)
    if user is None:
        raise ConfigError(f"training.metrics: there is no metric {setting!r}")
    module, _, name = user["function"].partition(":")
    if module != OWN:
        return find_named("training.metrics", user["function"])
    if name not in own:
        raise ConfigError(
            f"training.metrics: the metric {name} comes from a Python program, by coterie.train(metric=...); the same "
            "call with resume=True continues the run"
        )
    return own[name]


def _name(metric: Callable[..., Any] | Metric) -> str:
    """Return the name of a function; ``metric`` if it has no name."""
    function = metric.compute if isinstance(metric, Metric) else metric
    name = str(getattr(function, "__name__", ""))
    return name if name.isidentifier() else "metric"
