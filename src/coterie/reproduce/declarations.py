"""Declarations of experiments: what a paper measured, in a file, and what a kind of experiment must be able to do.

A declaration, ``papers/NAME.toml``, says what is run, at which sizes, and what the paper printed. An experiment
falls into independent jobs, each of which is determined by its name and the seed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from coterie.errors import ConfigError

Record = dict[str, Any]
"""What one job found, as plain values for JSON."""

QUICK, FULL = "quick", "full"
"""The size of a first look, and that of the paper."""


class Job(NamedTuple):
    """One independent piece of an experiment: a case of one of its parts, tried once."""

    part: str
    case: str
    trial: int


@dataclass(frozen=True)
class JobContext:
    """Where a job is done."""

    folder: Path
    """The results' folder, for what a long job keeps between two sittings."""
    data: Path | None
    """Where data sets are; None: where the environment says."""
    stop: Callable[[], bool]
    """Asked by long jobs between two steps: whether to come back unfinished."""


@dataclass(frozen=True)
class Findings:
    """What an experiment shows for its records.

    ``headlines`` are its findings in a few sentences, ``text`` is Markdown with the tables, ``summary`` holds every
    number of them, and ``figures`` are functions that draw the picture of that name.
    """

    headlines: Sequence[str]
    text: str
    summary: Record
    figures: Mapping[str, Callable[[Path], None]]


class Experiment(Protocol):
    """What a kind of experiment can do; it must be picklable, because jobs run in worker processes."""

    def jobs(self, trials: int) -> list[Job]:
        """List the jobs of so many trials, all cases of a trial together, so that a part of the list is balanced."""
        ...

    def run(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Do one job; None if it was asked to stop before the end. The result depends on job and seed alone."""
        ...

    def progress(self, job: Job, folder: Path) -> float:
        """Tell how much of a job that is being done is done already, from 0 to 1."""
        ...

    def report(self, records: Mapping[Job, Record]) -> Findings:
        """Report on the records there are, be they few."""
        ...

    def retell(self, summary: Record) -> Findings:
        """Report again from the summary of an earlier report; ConfigError where it does not hold enough for that."""
        ...


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much of an experiment is run: how often everything is tried, and which settings differ."""

    trials: int
    note: str = ""
    """What is smaller than in the paper, for the report."""
    settings: dict[str, Any] = {}


class Declaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An experiment as its file declares it.

    ``settings`` belong to the kind and decide what is found; ``remarks`` belong to it too, but are only reported, such
    as what the paper found.
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

    def settled(self, size: str) -> dict[str, Any]:
        """Return the settings at a size."""
        return _merged(self.settings, self.size(size).settings)

    def experiment(self, size: str) -> Experiment:
        """Return the experiment itself at a size, with checked settings."""
        if self.kind not in _KINDS:
            raise ConfigError(f"unknown kind of experiment {self.kind!r}; known are {', '.join(_KINDS)}")
        module, name = _KINDS[self.kind].split(":")
        kind: type[Experiment] = getattr(importlib.import_module(module), name)
        try:
            return msgspec.convert({**self.settled(size), **self.remarks}, kind)
        except msgspec.ValidationError as error:
            raise ConfigError(f"the settings of this {self.kind} experiment are wrong: {error}") from None


_KINDS = {
    "active-membership": "coterie.reproduce.active_membership.experiment:AttackExperiment",
    "confined-table": "coterie.reproduce.confined_table.experiment:ConfinedTable",
    "landscape": "coterie.reproduce.landscape.experiment:Landscape",
    "membership": "coterie.reproduce.membership.experiment:MembershipTable",
    "multi-round-metrics": "coterie.reproduce.multi_round.experiment:MultiRoundMetrics",
    "picture-attack": "coterie.reproduce.pictures.experiment:PictureAttack",
    "reconstruction": "coterie.reproduce.reconstruction.experiment:Reconstruction",
    "reliability": "coterie.reproduce.reliability.experiment:Reliability",
    "training-table": "coterie.reproduce.training_table.experiment:TrainingTable",
}


def declared() -> dict[str, Traversable]:
    """The declared experiments: their names and files."""
    folder = resources.files("coterie.reproduce") / "papers"
    return {file.name.removesuffix(".toml"): file for file in folder.iterdir() if file.name.endswith(".toml")}


def read_declaration(file: Traversable) -> Declaration:
    """Read one declaration."""
    try:
        return msgspec.toml.decode(file.read_bytes(), type=Declaration)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file.name} does not declare an experiment: {error}") from None


def _merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with changes: tables are merged, and everything else is replaced."""
    merged = dict(settings)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged
