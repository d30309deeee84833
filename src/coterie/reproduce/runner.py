"""Declared experiments: what a paper measured, run again by one command.

A declaration, ``papers/NAME.toml``, says what is run, at which sizes, and what the paper printed. An experiment
falls into independent jobs, each of which is determined by its name and the seed. A finished job is written down at
once, so a run that was interrupted, for whatever reason, goes on where it stopped; jobs that take long keep what they
have done in a folder, and lose only their last step. A report can be made from whatever is there.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from coterie.errors import ConfigError
from coterie.runs.locks import locked
from coterie.version import __version__

Record = dict[str, Any]
"""What one job found, as plain values for JSON."""

JOURNAL, REPORT, RESULTS = "jobs.jsonl", "README.md", "results.json"
QUICK, FULL = "quick", "full"
_POLL = 0.5  # seconds between two looks at how far the jobs have come


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

    def run(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Do one job; None if it was asked to stop before the end. The result depends on job and seed alone."""
        ...

    def progress(self, job: Job, folder: Path) -> float:
        """Tell how much of a job that is being done is done already, from 0 to 1."""
        ...

    def report(self, records: Mapping[Job, Record]) -> Report:
        """Report on the records there are, be they few."""
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
    "multi-round-metrics": "coterie.reproduce.multi_round.experiment:MultiRoundMetrics",
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


@dataclass(frozen=True)
class Run:
    """An experiment with its size and seed, and the folder that its results go to."""

    name: str
    declaration: Declaration
    folder: Path
    size: str = FULL
    trials: int = 0
    """How often everything is tried; 0: as declared for the size."""
    seed: int = 0
    data: Path | None = None

    def __post_init__(self) -> None:
        if self.trials < 0:
            raise ConfigError(f"there must be at least one trial, not {self.trials}")
        if self.seed < 0:
            raise ConfigError(f"a seed is 0 or more, not {self.seed}")
        self.declaration.size(self.size)

    @cached_property
    def experiment(self) -> Experiment:
        """What is run."""
        return self.declaration.experiment(self.size)

    @cached_property
    def jobs(self) -> list[Job]:
        """All that is to be done."""
        return self.experiment.jobs(self.trials or self.declaration.size(self.size).trials)

    @property
    def command(self) -> str:
        """The command line that does the same again."""
        size = "" if self.size == FULL else f" --size {self.size}"
        trials = self.trials or self.declaration.size(self.size).trials
        return f"coterie reproduce {self.name}{size} --trials {trials} --seed {self.seed}"

    def work(self, workers: int = 1, watch: Callable[[float], None] = lambda _done: None) -> None:
        """Do the jobs that are not in the journal yet; tell ``watch`` now and then how many are done.

        However many workers there are, the results are the same. After an interrupt, what was finished is in the
        journal.
        """
        journal = self._open_journal()
        waiting = [job for job in self.jobs if job not in journal]
        with locked(self.folder), (self.folder / JOURNAL).open("a", encoding="utf-8") as file:

            def finished(job: Job, record: Record) -> None:
                file.write(json.dumps([*job, record]) + "\n")
                file.flush()
                waiting.remove(job)

            def look(running: Iterable[Job]) -> None:
                begun = sum(self.experiment.progress(job, self.folder) for job in running)
                watch(len(self.jobs) - len(waiting) + begun)

            look(())
            if workers < 2 or len(waiting) < 2:
                self._work_here(tuple(waiting), finished, look)
            else:
                self._work_in_pool(tuple(waiting), workers, finished, look)

    def _work_here(
        self, jobs: Sequence[Job], finished: Callable[[Job, Record], None], look: Callable[[Iterable[Job]], None]
    ) -> None:
        for job in jobs:

            def stop(job: Job = job) -> bool:
                look((job,))
                return False

            record = self.experiment.run(job, self.seed, JobContext(self.folder, self.data, stop))
            if record is not None:
                finished(job, record)
            look(())

    def _work_in_pool(
        self,
        jobs: Sequence[Job],
        workers: int,
        finished: Callable[[Job, Record], None],
        look: Callable[[Iterable[Job]], None],
    ) -> None:
        context = get_context("spawn")
        stop = context.Event()
        with ProcessPoolExecutor(workers, context, _prepare_worker, (stop,)) as pool:
            running = {pool.submit(_run, self.experiment, job, self.seed, self.folder, self.data): job for job in jobs}
            try:
                while running:
                    done, _ = wait(running, _POLL, FIRST_COMPLETED)
                    for future in done:
                        job, record = running.pop(future), future.result()
                        if record is not None:
                            finished(job, record)
                    look(job for future, job in running.items() if future.running())
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)

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
            "size": self.size,
            "seed": self.seed,
            "trials": self.trials or self.declaration.size(self.size).trials,
            "jobs": len(self.jobs),
            "finished": len(records),
            "settings": self.declaration.settled(self.size),
            "headlines": list(report.headlines),
            "results": report.summary,
        }
        (self.folder / RESULTS).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (self.folder / REPORT).write_text(self._markdown(report, len(records)), encoding="utf-8")
        return report

    def _markdown(self, report: Report, finished: int) -> str:
        partly = "" if finished == len(self.jobs) else f" **Interrupted: {finished:,} of {len(self.jobs):,} jobs.**"
        note = self.declaration.size(self.size).note
        size = f" Size: {self.size}{f' ({note})' if note else ''}."
        findings = "\n".join(f"- {headline}" for headline in report.headlines)
        pictures = "\n\n".join(f"![{name.removesuffix('.png').replace('-', ' ')}]({name})" for name in report.figures)
        return (
            f"# {self.declaration.title}\n\n"
            f"`{self.command}`, Coterie {__version__}.{size}{partly} Beside: {self.declaration.paper}.\n\n"
            f"{findings}\n\n{report.text.strip()}\n\n## Figures\n\n{pictures}\n"
        )

    def _open_journal(self) -> dict[Job, Record]:
        """Read the journal, or begin one. A last line that was cut off while it was written is removed."""
        settings = json.dumps(self.declaration.settled(self.size), sort_keys=True).encode()
        identity = {
            "experiment": self.name,
            "settings": hashlib.sha256(settings).hexdigest(),
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
                f"{path} holds the jobs of another run: another experiment, size, seed or version. "
                "Give another folder with --out, or remove that file."
            )
        return {Job(*entry[:3]): entry[3] for entry in map(json.loads, lines)}


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table, the first column to the left and the others, numbers, to the right."""
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with changes: tables are merged, and everything else is replaced."""
    merged = dict(settings)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


_stop: Event  # in a worker process: set when the run is interrupted


def _prepare_worker(stop: Event) -> None:
    global _stop  # a pool can pass an event to its workers in no other way
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and tells


def _run(experiment: Experiment, job: Job, seed: int, folder: Path, data: Path | None) -> Record | None:
    return experiment.run(job, seed, JobContext(folder, data, _stop.is_set))
