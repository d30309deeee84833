"""Declared experiments: what a paper measured, run again by one command.

A declaration, ``experiments/NAME.toml``, says what is run, at which sizes, and what the paper printed. An experiment
falls into independent jobs, each of which is determined by its name and the seed. A finished job is written down at
once, so a run that was interrupted, for whatever reason, goes on where it stopped and loses only what was in progress;
and a report can be made from whatever is there.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from coterie import __version__
from coterie.errors import ConfigError

Record = dict[str, Any]
"""What one job found, as plain values for JSON."""

JOURNAL, REPORT, RESULTS = "jobs.jsonl", "README.md", "results.json"


class Job(NamedTuple):
    """One independent piece of an experiment: a case of one of its parts, tried once."""

    part: str
    case: str
    trial: int


@dataclass(frozen=True)
class Report:
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

    def run(self, job: Job, seed: int) -> Record:
        """Do one job. The result depends on the arguments and on nothing else."""
        ...

    def report(self, records: Mapping[Job, Record]) -> Report:
        """Report on the records there are, be they few."""
        ...


class Trials(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often everything is tried: for a first look, and in earnest."""

    quick: int
    full: int


class Declaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An experiment as its file declares it. ``settings`` belong to the kind."""

    title: str
    paper: str
    kind: str
    trials: Trials
    settings: dict[str, Any]

    @property
    def experiment(self) -> Experiment:
        """The experiment itself, with checked settings."""
        if self.kind not in _KINDS:
            raise ConfigError(f"unknown kind of experiment {self.kind!r}; known are {', '.join(_KINDS)}")
        module, name = _KINDS[self.kind].split(":")
        kind: type[Experiment] = getattr(importlib.import_module(module), name)
        try:
            return msgspec.convert(self.settings, kind)
        except msgspec.ValidationError as error:
            raise ConfigError(f"the settings of this {self.kind} experiment are wrong: {error}") from None


_KINDS = {"multi-round-metrics": "coterie.experiments.multi_round_metrics:MultiRoundMetrics"}


def declared() -> dict[str, Traversable]:
    """The declared experiments: their names and files, in the package or, in a checkout, beside ``src``."""
    folder = resources.files("coterie.experiments") / "declared"
    if not folder.is_dir():
        folder = Path(__file__).parents[3] / "experiments"
    files = folder.iterdir() if folder.is_dir() else ()
    return {file.name.removesuffix(".toml"): file for file in files if file.name.endswith(".toml")}


def read_declaration(file: Traversable) -> Declaration:
    """Read one declaration."""
    try:
        return msgspec.toml.decode(file.read_bytes(), type=Declaration)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file.name} does not declare an experiment: {error}") from None


@dataclass(frozen=True)
class Run:
    """An experiment with its size and seed, and the folder that its results go to."""

    name: str
    declaration: Declaration
    trials: int
    seed: int
    folder: Path

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ConfigError(f"there must be at least one trial, not {self.trials}")
        if self.seed < 0:
            raise ConfigError(f"a seed is 0 or more, not {self.seed}")

    @cached_property
    def experiment(self) -> Experiment:
        """What is run."""
        return self.declaration.experiment

    @cached_property
    def jobs(self) -> list[Job]:
        """All that is to be done."""
        return self.experiment.jobs(self.trials)

    @property
    def command(self) -> str:
        """The command line that does the same again."""
        return f"coterie reproduce {self.name} --trials {self.trials} --seed {self.seed}"

    def work(self, workers: int = 1) -> Generator[int]:
        """Do the jobs that are not in the journal yet; yield, at first and after each, how many are done."""
        journal = self._open_journal()
        waiting = [job for job in self.jobs if job not in journal]
        done = len(self.jobs) - len(waiting)
        yield done
        with (self.folder / JOURNAL).open("a", encoding="utf-8") as file:
            for job, record in _finish(self.experiment, waiting, self.seed, workers):
                file.write(json.dumps([*job, record]) + "\n")
                file.flush()
                done += 1
                yield done

    def write_report(self) -> Report:
        """Write the report on what the journal has: Markdown, JSON and pictures."""
        journal = self._open_journal()
        records = {job: journal[job] for job in self.jobs if job in journal}
        if not records:
            raise ConfigError("no job was finished, so there is nothing to report")
        report = self.experiment.report(records)
        for name, draw in report.figures.items():
            draw(self.folder / name)
        results = {
            "experiment": self.name,
            "title": self.declaration.title,
            "paper": self.declaration.paper,
            "command": self.command,
            "version": __version__,
            "seed": self.seed,
            "trials": self.trials,
            "jobs": len(self.jobs),
            "finished": len(records),
            "settings": self.declaration.settings,
            "headlines": list(report.headlines),
            "results": report.summary,
        }
        (self.folder / RESULTS).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (self.folder / REPORT).write_text(self._markdown(report, len(records)), encoding="utf-8")
        return report

    def _markdown(self, report: Report, finished: int) -> str:
        partly = "" if finished == len(self.jobs) else f" **Interrupted: {finished:,} of {len(self.jobs):,} jobs.**"
        findings = "\n".join(f"- {headline}" for headline in report.headlines)
        pictures = "\n\n".join(f"![{name.removesuffix('.png').replace('-', ' ')}]({name})" for name in report.figures)
        return (
            f"# {self.declaration.title}\n\n"
            f"`{self.command}`, Coterie {__version__}.{partly} Beside: {self.declaration.paper}.\n\n"
            f"{findings}\n\n{report.text.strip()}\n\n## Figures\n\n{pictures}\n"
        )

    def _open_journal(self) -> dict[Job, Record]:
        """Read the journal, or begin one. A last line that was cut off while it was written is removed."""
        settings = json.dumps(msgspec.to_builtins(self.declaration), sort_keys=True).encode()
        identity = {
            "experiment": self.name,
            "declaration": hashlib.sha256(settings).hexdigest(),
            "seed": self.seed,
            "version": __version__,
        }
        head = json.dumps(identity).encode()
        path = self.folder / JOURNAL
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes() if path.exists() else b""
            whole = data[: data.rfind(b"\n") + 1] or head + b"\n"
            if whole != data:
                path.write_bytes(whole)
        except OSError as error:
            raise ConfigError(f"cannot use the folder {self.folder}: {error.strerror}") from None
        first, *lines = whole.splitlines()
        if first != head:
            raise ConfigError(
                f"{path} holds the jobs of another run: another experiment, seed or version. "
                "Give another folder with --out, or remove that file."
            )
        return {Job(*entry[:3]): entry[3] for entry in map(json.loads, lines)}


def _finish(experiment: Experiment, jobs: Sequence[Job], seed: int, workers: int) -> Iterator[tuple[Job, Record]]:
    """Do the jobs, in order in this process or in any order in several; whatever the number, results are the same."""
    if workers < 2 or len(jobs) < 2:
        yield from ((job, experiment.run(job, seed)) for job in jobs)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _leave_interrupts_to_parent) as pool:
        futures = {pool.submit(experiment.run, job, seed): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
