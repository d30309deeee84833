"""The cost of an audit, from a file to the verdict: at sizes with a target, and how it grows.

Logs are generated, written to files and audited, each in a process of its own. *Random* rounds select clients at
random, so that clients become exposed once there are enough rounds. *Whole circles* never expose anybody: strong T is
the size of a circle, and nearly all the time goes into reading. *Broken circles* lose each member with 1%, so that
clients are exposed one after the other. *Pairs* contain a chosen number of exposed clients.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import import_module
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

from coterie.bench.machine import run_alone
from coterie.bench.targets import Target
from coterie.errors import ConfigError, RoundAborted
from coterie.host import install_command, peak_rss_bytes

CIRCLE = 10
_LOST = 0.01  # of the members of broken circles
_LIMIT = 4_000_000_000  # bytes of a log, unpacked: these logs are known
_ROUNDS_IN_GROUP = 1_000  # in a row group of a Parquet file


class LogKind(StrEnum):
    """How the clients of a round are selected."""

    RANDOM = "random"
    CIRCLES = "whole circles"
    BROKEN = "broken circles"
    PAIRS = "pairs"


@dataclass(frozen=True)
class AuditCase:
    """A log to audit, and the target for it."""

    clients: int
    rounds: int
    cohort: int
    kind: LogKind = LogKind.RANDOM
    exposures: int = 0
    """The number of exposed clients, for pairs."""
    target_seconds: float | None = None
    target_bytes: int | None = None


@dataclass(frozen=True)
class AuditCost:
    """The time and memory of an audit in its process, and its findings."""

    case: AuditCase
    log_bytes: int
    read_seconds: float
    audit_seconds: float
    processor_seconds: float
    """Processor time of reading and auditing."""
    peak_rss_bytes: int
    strong_privacy: int | None
    exposed: int

    @property
    def size(self) -> str:
        """Clients, rounds and cohort as text."""
        return f"{self.case.clients:,} x {self.case.rounds:,} x {self.case.cohort:,}"

    @property
    def seconds(self) -> float:
        """Wall-clock time from the file to the findings."""
        return self.read_seconds + self.audit_seconds

    @property
    def reading_ratio(self) -> float:
        """How many times as long reading and auditing take as reading alone."""
        return self.seconds / self.read_seconds

    @property
    def targets(self) -> list[Target]:
        """The targets of the case, beside the measured values."""
        case, found = self.case, []
        if case.target_seconds:
            found.append(Target(f"time of {self.size}, in s", self.seconds, case.target_seconds))
        if case.target_bytes:
            found.append(Target(f"memory of {self.size}, in GB", self.peak_rss_bytes / 1e9, case.target_bytes / 1e9))
        return found


TARGETS = (
    AuditCase(1_000, 2_000, 100, target_seconds=3.0),
    AuditCase(100_000, 1_000, 1_000, target_seconds=10.0),
    AuditCase(1_000_000, 2_000, 1_000, target_seconds=40.0, target_bytes=3_000_000_000),
)
BASE = AuditCase(20_000, 400, 400)
QUICK_TARGETS = (AuditCase(60, 90, 10, target_seconds=3.0), AuditCase(400, 50, 40, target_seconds=10.0))
QUICK_BASE = AuditCase(200, 24, 20)


def target_cases(*, quick: bool) -> list[AuditCase]:
    """Return the cases with a target, whole circles of the same sizes, and broken circles of the smallest size."""
    cases = QUICK_TARGETS if quick else TARGETS
    whole = [replace(case, kind=LogKind.CIRCLES, target_seconds=None, target_bytes=None) for case in cases]
    return [*cases, *whole, replace(whole[0], kind=LogKind.BROKEN)]


def growth_cases(*, quick: bool) -> dict[str, list[AuditCase]]:
    """Return series of cases in which one quantity is doubled twice, by its name."""
    base, factors = (QUICK_BASE if quick else BASE), (1, 2, 4)
    fewest = base.rounds // 16
    return {
        "clients": [replace(base, clients=factor * base.clients) for factor in factors],
        "rounds": [replace(base, rounds=factor * base.rounds) for factor in factors],
        "cohort": [replace(base, cohort=factor * base.cohort) for factor in factors],
        "exposures": [replace(base, kind=LogKind.PAIRS, exposures=factor * fewest) for factor in factors],
    }


def measure_case(case: AuditCase, log_format: str = "csv", seed: int = 0) -> AuditCost:
    """Write the log of a case, audit it in a process of its own, and check the findings."""
    with TemporaryDirectory(prefix="coterie-bench-") as folder:
        path = Path(folder, f"log.{log_format}")
        _WRITERS[log_format](path, generate(case, seed))
        cost = run_alone(_audit, case, path)
    if case.kind is LogKind.CIRCLES and (cost.strong_privacy or 0) < CIRCLE:
        raise RoundAborted(f"the audit found strong T = {cost.strong_privacy} for circles of {CIRCLE}")
    if case.kind is LogKind.PAIRS and cost.exposed != case.exposures:
        raise RoundAborted(f"the audit found {cost.exposed} exposed clients of {case.exposures}")
    return cost


def generate(case: AuditCase, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield the clients of each round."""
    rng = np.random.default_rng(seed)
    whole = case.clients // CIRCLE
    for number in range(case.rounds):
        if case.kind is LogKind.RANDOM:
            yield np.sort(rng.choice(case.clients, case.cohort, replace=False))
        elif number < 2 * case.exposures:  # a circle, and then the same without one member
            members = CIRCLE * (number // 2) + np.arange(CIRCLE)
            yield members[number % 2 :]
        else:
            circles = np.sort(rng.choice(whole, case.cohort // CIRCLE, replace=False))
            members = (CIRCLE * circles[:, None] + np.arange(CIRCLE)).ravel()
            yield members[rng.random(len(members)) >= _LOST] if case.kind is LogKind.BROKEN else members


def _audit(case: AuditCase, path: Path) -> AuditCost:
    """Audit a log. It runs in a new process, so imports come before the time is taken."""
    from coterie.auditing.auditor import audit
    from coterie.auditing.logs import read_log

    began, spent = perf_counter(), process_time()
    log = read_log(path, limit=_LIMIT)
    read = perf_counter()
    report = audit(log, weak_budget_seconds=0.0)
    ended = perf_counter()
    return AuditCost(
        case=case,
        log_bytes=path.stat().st_size,
        read_seconds=read - began,
        audit_seconds=ended - read,
        processor_seconds=process_time() - spent,
        peak_rss_bytes=peak_rss_bytes(),
        strong_privacy=report.strong_privacy,
        exposed=len(report.exposed),
    )


def _write_csv(path: Path, rounds: Iterator[NDArray[np.int64]]) -> None:
    with path.open("w") as file:
        file.write("round,client\n")
        for number, row in enumerate(rounds, 1):
            file.write("".join([f"{number},c{client}\n" for client in row.tolist()]))


def _write_jsonl(path: Path, rounds: Iterator[NDArray[np.int64]]) -> None:
    with path.open("w") as file:
        for number, row in enumerate(rounds, 1):
            file.write(json.dumps({"round": number, "clients": [f"c{client}" for client in row.tolist()]}) + "\n")


def _write_parquet(path: Path, rounds: Iterator[NDArray[np.int64]]) -> None:
    """Write a row for each round and client; a row group has about as many rows as pyarrow would give it."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise ConfigError(f"Parquet files need pyarrow: {install_command('parquet')}") from None
    schema = arrow.schema([("round", arrow.int64()), ("client", arrow.string())])
    numbered = enumerate(rounds, 1)
    with parquet.ParquetWriter(path, schema) as writer:
        while some := list(islice(numbered, _ROUNDS_IN_GROUP)):
            members = [f"c{client}" for _, row in some for client in row.tolist()]
            labels = np.repeat([number for number, _ in some], [len(row) for _, row in some])
            writer.write_table(arrow.table({"round": labels, "client": members}, schema))


_WRITERS = {"csv": _write_csv, "jsonl": _write_jsonl, "parquet": _write_parquet}
