"""The runner of declared experiments.

A finished job is appended to a journal at once, so an interrupted run continues where it stopped. Training runs
keep their state in a folder, and lose at most one round. A report can be made from any number of finished jobs.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, TextIO

import msgspec

from coterie.errors import ConfigError, Remedy
from coterie.files import explain, write_output
from coterie.host import cores
from coterie.locks import locked
from coterie.reports import markdown
from coterie.reports.findings import Findings
from coterie.reproduce.declarations import FULL, Declaration
from coterie.reproduce.experiment import Experiment, Job, JobContext, Record
from coterie.version import __version__

JOURNAL, REPORT, RESULTS = "jobs.jsonl", "README.md", "results.json"
_POLL = 0.5  # seconds between two updates of the progress


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of ``results.json``: the identity of the run, and every number of its report."""

    experiment: str
    title: str
    paper: str
    command: str
    version: str
    size: str
    seed: int
    trials: int
    jobs: int
    finished: int
    settings: dict[str, Any]
    headlines: list[str]
    results: Record

    @classmethod
    def read(cls, file: Path) -> Results:
        """Read a file of results."""
        try:
            return msgspec.json.decode(file.read_bytes(), type=cls)
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {explain(error)}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {file}: {error}") from None


@dataclass(frozen=True)
class Run:
    """An experiment with its size and seed, and the folder that its results go to."""

    name: str
    declaration: Declaration
    folder: Path
    size: str = FULL
    trials: int = 0
    """The number of trials; 0: as declared for the size."""
    seed: int = 0
    data: Path | None = None

    def __post_init__(self) -> None:
        if self.trials < 0:
            raise ConfigError(f"there must be at least one trial, not {self.trials}")
        if self.seed < 0:
            raise ConfigError(f"a seed is 0 or more, not {self.seed}")
        self.declaration.size(self.size)

    @cached_property
    def experiment(self) -> Experiment[Any]:
        """The experiment at this size."""
        return self.declaration.experiment(self.size)

    @cached_property
    def jobs(self) -> list[Job]:
        """All jobs."""
        return self.experiment.jobs(self._trials)

    @property
    def command(self) -> str:
        """The command line that repeats this run."""
        size = "" if self.size == FULL else f" --size {self.size}"
        return f"coterie reproduce {self.name}{size} --trials {self._trials} --seed {self.seed}"

    @property
    def _trials(self) -> int:
        return self.trials or self.declaration.size(self.size).trials

    def work(self, workers: int = 1, watch: Callable[[float], None] = lambda _done: None) -> None:
        """Do the jobs that are not in the journal yet; call ``watch`` now and then with the number of finished jobs.

        The results do not depend on the number of workers. After an interrupt, finished jobs are in the journal: with
        several workers, also those that were running and could not be stopped.
        """
        with self._open_journal() as (journal, file):
            waiting = [job for job in self.jobs if job not in journal]

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

            record = self.experiment.measure(job, self.seed, JobContext(self.folder, self.data, stop))
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
            with _threads(max(1, cores() // workers)):  # workers start with the first job, and read the limit then
                running = {
                    pool.submit(_run, self.experiment, job, self.seed, self.folder, self.data): job for job in jobs
                }
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
                for future, job in running.items():  # some jobs cannot be stopped: what they measured is kept
                    if not future.cancelled() and not future.exception() and (record := future.result()) is not None:
                        finished(job, record)

    def write_report(self) -> Findings:
        """Write the report on the jobs in the journal: Markdown, JSON and figures."""
        journal = self._read_journal()
        records = {job: journal[job] for job in self.jobs if job in journal}
        if not records:
            raise ConfigError("no job was finished, so there is nothing to report")
        return self._write(self.experiment.findings(records), len(records), __version__)

    def rewrite_report(self) -> Findings:
        """Write the report again from ``results.json``, with the texts of this version; run nothing."""
        stored = Results.read(self.folder / RESULTS)
        ours = (self.name, self.size, self.seed, self._trials, self.declaration.settings_for(self.size))
        if ours != (stored.experiment, stored.size, stored.seed, stored.trials, stored.settings):
            raise ConfigError(
                f"{self.folder / RESULTS} is of another run: {stored.command}, or the settings have changed since"
            )
        return self._write(self.experiment.report_again(stored.results), stored.finished, stored.version)

    def _write(self, report: Findings, finished: int, version: str) -> Findings:
        for drawing in report.drawings:
            drawing.draw(self.folder / drawing.file)
        results = Results(
            experiment=self.name,
            title=self.declaration.title,
            paper=self.declaration.paper,
            command=self.command,
            version=version,
            size=self.size,
            seed=self.seed,
            trials=self._trials,
            jobs=len(self.jobs),
            finished=finished,
            settings=self.declaration.settings_for(self.size),
            headlines=list(report.headlines),
            results=dict(report.numbers),
        )
        text = json.dumps(msgspec.to_builtins(results), indent=1)
        write_output(self.folder / RESULTS, f"{text}\n".encode())
        write_output(self.folder / REPORT, self._markdown(report, finished, version).encode())
        return report

    def _markdown(self, report: Findings, finished: int, version: str) -> str:
        partly = "" if finished == len(self.jobs) else f" **Interrupted: {finished:,} of {len(self.jobs):,} jobs.**"
        note = self.declaration.size(self.size).note
        size = f" Size: {self.size}{f' ({note})' if note else ''}."
        return (
            f"# {self.declaration.title}\n\n"
            f"`{self.command}`, Coterie {version}.{size}{partly} Compared with: {self.declaration.paper}.\n\n"
            f"{markdown.write_findings(report)}"
        )

    @contextmanager
    def _open_journal(self) -> Iterator[tuple[dict[Job, Record], TextIO]]:
        """Lock the folder, and open the journal or create one.

        An incomplete last line is removed. The lock guarantees that no other process is still writing it.
        """
        path = self.folder / JOURNAL
        with ExitStack() as stack:
            with self._usable():
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.folder))
                journal, data = self._read_journal(), self._journal_bytes()
                whole = _whole_lines(data) or self._head + b"\n"
                if whole != data:
                    path.write_bytes(whole)
                file = stack.enter_context(path.open("a", encoding="utf-8"))
            yield journal, file

    def _read_journal(self) -> dict[Job, Record]:
        """Read the jobs of this run from the journal; an incomplete last line is left out."""
        path = self.folder / JOURNAL
        data = self._journal_bytes()
        first, *lines = _whole_lines(data).splitlines() or [self._head]
        if first != self._head:
            raise ConfigError(
                f"{path} is of another run: another experiment, size, seed or version. Use another folder (",
                Remedy("out", mention=True),
                "), or remove that file.",
            )
        return {Job(*entry[:3]): entry[3] for entry in map(json.loads, lines)}

    @property
    def _head(self) -> bytes:
        """The first line of the journal, which identifies the run."""
        settings = json.dumps(self.declaration.settings_for(self.size), sort_keys=True).encode()
        identity = {
            "experiment": self.name,
            "settings": hashlib.sha256(settings).hexdigest(),
            "seed": self.seed,
            "version": __version__,
        }
        return json.dumps(identity).encode()

    def _journal_bytes(self) -> bytes:
        path = self.folder / JOURNAL
        with self._usable():
            return path.read_bytes() if path.exists() else b""

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(f"cannot use the folder {self.folder}: {error.strerror}") from None


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1]


@contextmanager
def _threads(each: int) -> Iterator[None]:
    """Limit the threads of processes that start within the block, unless the user set a limit."""
    names = [name for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name not in os.environ]
    os.environ.update(dict.fromkeys(names, str(each)))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


_stop: Event  # in a worker process: set when the run is interrupted


def _prepare_worker(stop: Event) -> None:
    global _stop  # a pool can pass an event to its workers in no other way
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and sets the event


def _run(experiment: Experiment[Any], job: Job, seed: int, folder: Path, data: Path | None) -> Record | None:
    if _stop.is_set():  # the job was waiting in the pool when the run was interrupted
        return None
    return experiment.measure(job, seed, JobContext(folder, data, _stop.is_set))
