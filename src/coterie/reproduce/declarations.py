"""Declarations of experiments: each describes what a paper measured, as a TOML file.

A declaration, ``papers/NAME.toml``, contains the settings, the sizes, and the numbers that the paper printed. Its
settings and remarks are the fields of the kind's class, with their types and bounds; unknown names are refused.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import msgspec

from coterie.errors import ConfigError
from coterie.reproduce.experiment import Count, Experiment

KINDS = {
    "active-membership": "coterie.reproduce.active_membership:AttackExperiment",
    "confined-table": "coterie.reproduce.confined_table.experiment:ConfinedTable",
    "convergence": "coterie.reproduce.convergence.experiment:Convergence",
    "graph-costs": "coterie.reproduce.graph_costs.experiment:GraphCosts",
    "landscape": "coterie.reproduce.landscape:Landscape",
    "lost-rounds": "coterie.reproduce.lost_rounds:LostRounds",
    "membership": "coterie.reproduce.membership:MembershipTable",
    "multi-round-metrics": "coterie.reproduce.multi_round.experiment:MultiRoundMetrics",
    "picture-attack": "coterie.reproduce.pictures:PictureAttack",
    "reconstruction": "coterie.reproduce.reconstruction:Reconstruction",
    "recovery": "coterie.reproduce.recovery:Recovery",
    "reliability": "coterie.reproduce.reliability:Reliability",
    "training-table": "coterie.reproduce.training_table:TrainingTable",
}
"""The kinds of experiments, each with the module and name of its class."""
PAPERS: Traversable = resources.files("coterie.reproduce") / "papers"
"""The folder of declarations: a file for each experiment."""
QUICK, FULL = "quick", "full"
"""The smallest size, and the size of the paper."""


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A size of an experiment: the number of trials, and the settings that differ."""

    trials: Count
    note: str = ""
    """A note for the report: what is smaller than in the paper."""
    claims: bool = True
    """Whether claims are judged at this size; false if it measures only time and memory."""
    elsewhere: dict[str, str] = {}
    """Tables whose claims of the paper another report judges, at the paper's size: the name of that report."""
    settings: dict[str, Any] = {}


class Declaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An experiment as its file declares it.

    ``settings`` and ``remarks`` both belong to the kind. Settings decide what is measured; remarks are only reported,
    such as what the paper found.
    """

    title: str
    paper: str
    kind: str
    sizes: dict[str, Size]
    settings: dict[str, Any]
    remarks: dict[str, Any] = {}

    def size(self, name: str) -> Size:
        """Return the size of that name."""
        if name not in self.sizes:
            raise ConfigError(f"there is no size {name!r}; this experiment has {', '.join(self.sizes)}")
        return self.sizes[name]

    def settings_for(self, size: str) -> dict[str, Any]:
        """Return the settings at a size."""
        return _merged(self.settings, self.size(size).settings)

    def experiment(self, size: str) -> Experiment[Any]:
        """Return the experiment at a size, with checked settings."""
        if self.kind not in KINDS:
            raise ConfigError(f"unknown kind of experiment {self.kind!r}; known are {', '.join(KINDS)}")
        module, name = KINDS[self.kind].split(":")
        kind: type[Experiment[Any]] = getattr(importlib.import_module(module), name)
        chosen = self.size(size)
        remarks = self.remarks if chosen.claims else {**self.remarks, "claims": ()}
        elsewhere = {"elsewhere": chosen.elsewhere} if chosen.elsewhere else {}
        given = {**self.settings_for(size), **remarks, **elsewhere}
        try:
            experiment: Experiment[Any] = msgspec.convert(given, kind)
        except msgspec.ValidationError as error:
            raise ConfigError(f"the settings of this {self.kind} experiment are wrong: {_name(error, given)}") from None
        experiment.check()
        return experiment


def declared() -> dict[str, Traversable]:
    """The declared experiments: their names and files."""
    return {file.name.removesuffix(".toml"): file for file in PAPERS.iterdir() if file.name.endswith(".toml")}


def read_declaration(file: Traversable) -> Declaration:
    """Read one declaration."""
    try:
        return msgspec.toml.decode(file.read_bytes(), type=Declaration)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file.name} does not declare an experiment: {error}") from None


def _name(error: msgspec.ValidationError, given: Any) -> str:  # noqa: ANN401 - any TOML value
    """Return what an error says, after the name of the setting and with its value, if that is known."""
    expected, _, path = str(error).rpartition(" - at `$")
    if not expected:
        return str(error)
    name = path.rstrip("`").lstrip(".")
    for part in re.findall(r"\.{3}|[^.\[\]]+", name):
        if part == "...":  # any key of a table: msgspec does not say which
            return f"{name}: {expected}"
        given = given[int(part)] if isinstance(given, list) else given[part]
    shown = "" if isinstance(given, dict | list) else f", not {given!r}"
    return f"{name}: {expected}{shown}"


def _merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with changes: tables are merged, and everything else is replaced."""
    merged = dict(settings)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged
