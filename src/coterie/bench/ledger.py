"""The cost of a ledger: appending, opening, verifying and auditing a long history of many clients.

Rounds are over whole circles, as a server records them: one entry before the sum is opened, and one after. A server
opens its ledger before its first round after a restart: it reads the last checkpoint and the entries after it.
Verifying, which an audit includes, reads everything. Both are measured in processes of their own.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time

import numpy as np

from coterie.bench.machine import run_alone
from coterie.bench.settings import LedgerSettings
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.ledger_entry import EntryKind
from coterie.cohorts.ledger_store import LedgerStore
from coterie.errors import ConfigError, RoundAborted
from coterie.host import peak_rss_bytes

_LIMIT = 16_000_000_000  # bytes of entries that an audit may read: this ledger is known


@dataclass(frozen=True)
class Work:
    """The time and memory of one process."""

    seconds: float
    processor_seconds: float
    peak_rss_bytes: int


@dataclass(frozen=True)
class LedgerCost:
    """The cost of a ledger at one size."""

    clients: int
    """The number of clients that took part."""
    rounds: int
    cohort: int
    entries: int
    entry_bytes: int
    """Bytes of all entries that are not checkpoints."""
    checkpoints: int
    checkpoint_bytes: int
    replayed: int
    """The entries after the last checkpoint, which are read when the ledger is opened."""
    append_seconds: tuple[float, ...]
    """Wall-clock time of a round's two entries, for each round, until they are on disk."""
    append_processor_seconds: float
    """Processor time of a round: drawing its circles, and appending its two entries."""
    opening: Work
    verifying: Work
    auditing: Work

    @property
    def bytes_per_participation(self) -> float:
        """Bytes of entries, without checkpoints, for a client in a round."""
        return self.entry_bytes / (self.rounds * self.cohort)

    @property
    def slowdown(self) -> float:
        """How many times as long an append takes in the last tenth of the rounds as in the first, by medians."""
        tenth = max(1, len(self.append_seconds) // 10)
        return statistics.median(self.append_seconds[-tenth:]) / statistics.median(self.append_seconds[:tenth])


def measure_ledger(settings: LedgerSettings, location: str, watch: Callable[[], object] = lambda: None) -> LedgerCost:
    """Record rounds in a new ledger at ``location``, a path or a URL, and then open, verify and audit it."""
    circle, per_round = settings.circle, settings.cohort // settings.circle
    if not 0 < per_round <= settings.clients // circle:
        raise ConfigError(
            f"a cohort of {settings.cohort:,} must have at least one circle of {circle:,} and at most all clients"
        )
    rng = np.random.default_rng(settings.seed)
    names = [f"client-{number:07}" for number in range(settings.clients)]
    seconds, spent = [], process_time()
    with Ledger.open(location) as ledger:
        if ledger.head().sequence:
            raise ConfigError("there is a ledger with entries at this place: give a database without one")
        for number in range(1, settings.rounds + 1):
            circles = rng.choice(settings.clients // circle, per_round, replace=False)
            members = [
                names[client] for first in circles.tolist() for client in range(first * circle, (first + 1) * circle)
            ]
            began = perf_counter()
            ledger.reveal(number, members, promised=circle)
            ledger.complete(number)
            seconds.append(perf_counter() - began)
            watch()
        appended = (process_time() - spent) / settings.rounds
    opening, found = run_alone(_open, location)
    if found != settings.rounds:
        raise RoundAborted(f"the ledger's last round is {found} after it was opened again, and not {settings.rounds}")
    clients, entries, entry_bytes, checkpoints, checkpoint_bytes, replayed = _sizes(location)
    return LedgerCost(
        clients=clients,
        rounds=settings.rounds,
        cohort=per_round * circle,
        entries=entries,
        entry_bytes=entry_bytes,
        checkpoints=checkpoints,
        checkpoint_bytes=checkpoint_bytes,
        replayed=replayed,
        append_seconds=tuple(seconds),
        append_processor_seconds=appended,
        opening=opening,
        verifying=run_alone(_verify, location),
        auditing=run_alone(_audit, location),
    )


def _sizes(location: str) -> tuple[int, int, int, int, int, int]:
    """Return clients, entries, bytes of entries, checkpoints, their bytes, and the entries after the last of them."""
    from coterie.cohorts.ledger_entry import StoredEntry, encode

    store = LedgerStore.open(location, create=False, timeout=30)
    entries = entry_bytes = checkpoints = checkpoint_bytes = last = clients = 0
    with store.reading() as connection:
        for head, entry in store.walk(connection):
            entries = head.sequence
            if not isinstance(entry, StoredEntry):
                continue
            clients += len(entry.newcomers)
            if entry.kind is EntryKind.CHECKPOINT:
                checkpoints, checkpoint_bytes, last = checkpoints + 1, checkpoint_bytes + len(encode(entry)), entries
            else:
                entry_bytes += len(encode(entry))
    store.close()
    return clients, entries, entry_bytes, checkpoints, checkpoint_bytes, entries - last


def _measure(work: Callable[[], int]) -> tuple[Work, int]:
    began, spent = perf_counter(), process_time()
    found = work()
    return Work(perf_counter() - began, process_time() - spent, peak_rss_bytes()), found


def _open(location: str) -> tuple[Work, int]:
    def work() -> int:
        with Ledger.open(location, create=False) as ledger:
            return ledger.latest()

    return _measure(work)


def _verify(location: str) -> Work:
    def work() -> int:
        with Ledger.inspect(location) as ledger:
            return ledger.verify().sequence

    return _measure(work)[0]


def _audit(location: str) -> Work:
    from coterie.auditing.auditor import audit
    from coterie.auditing.logs import read_log

    def work() -> int:
        report = audit(read_log(location, "ledger", limit=_LIMIT), weak_budget_seconds=0.0)
        return report.strong_privacy or 0

    return _measure(work)[0]
