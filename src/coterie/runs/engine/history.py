"""The history of a run that is resumed: its checkpoint, ledger, records, memories and secret must belong together.

A round that was interrupted after its sum was opened is repeated. This reveals nothing new only if the same clients
contribute the same inputs with the same noise, so no file that determines them may be lost or replaced. The checks
compare the files of one folder with each other. They detect files that were lost, mixed up or edited, but not a folder
in which all files were forged consistently.
"""

from collections.abc import Collection, Sequence
from typing import TypeAlias

from coterie.cohorts.ledger import Ledger
from coterie.cohorts.memory import MemoryFile
from coterie.errors import InputError
from coterie.runs.records.record import RoundRecord
from coterie.runs.storage.folder import Progress, RunFolder

Exposed: TypeAlias = tuple[int | None, int]
"""T so far, and the number of exposed clients."""
_REMEDY = "Put it back as the run left it, or begin a new run"


def check_history(folder: RunFolder, progress: Progress | None, records: Sequence[RoundRecord], ledger: Ledger) -> None:
    """Refuse a ledger that does not belong to the checkpoint or to the records, or whose clients' memories are gone."""
    recorded = ledger.verify(progress.head if progress else None)
    if not recorded.sequence:  # no round was played, or the algorithm's own rounds record no sums
        return
    if progress is None or progress.head is None:
        raise InputError(
            f"{folder.ledger_file} has rounds of a run whose {folder.checkpoint_file.name} is missing: the settings "
            "that they were played under are not known. Put it back, or begin a new run"
        )
    if not folder.memory_file.exists():
        raise _lost_memory(folder, "is missing")
    outcomes, rows = ledger.outcomes(), dict(ledger.rows())
    for record in records:
        said = record.outcome, tuple(sorted(record.aggregated))
        if said != (outcomes.get(record.round), rows.get(record.round, ())):
            raise InputError(
                f"{folder.metrics_file} contradicts the ledger in round {record.round}: the outcome or the aggregated "
                f"clients are others. {_REMEDY}"
            )


def check_exposure(folder: RunFolder, records: Sequence[RoundRecord], found: Sequence[Exposed]) -> None:
    """Refuse records of another T, or of another number of exposed clients, than follow from the sums they record."""
    for record, exposed in zip(records, found, strict=True):
        if (record.strong_privacy, record.exposed) != exposed:
            raise InputError(
                f"{folder.metrics_file} contradicts itself in round {record.round}: T or the number of exposed clients "
                f"does not follow from the sums up to there. {_REMEDY}"
            )


def check_memories(
    folder: RunFolder, ledger: Ledger, memories: MemoryFile, clients: Collection[str], records: Sequence[RoundRecord]
) -> None:
    """Refuse memories that lack the clients of a run with a history, or sums that its records contain."""
    if not ledger.head().sequence:
        return
    if not memories.clients().issuperset(clients):
        raise _lost_memory(folder, "does not know the clients of the run")
    sums = {record.round: record.aggregated for record in records if record.completed}
    if forgotten := memories.forgotten(sums):
        raise _lost_memory(folder, f"does not know round {forgotten[0]}")


def check_secret(folder: RunFolder, progress: Progress | None) -> str:
    """Return the digest of the clients' secret. Refuse it if the checkpoint has the digest of another secret."""
    digest = folder.secret_digest()
    if progress is not None and progress.secret and digest != progress.secret:
        raise InputError(
            f"{folder.secret_file} is not the secret of this run: a round played again could have other noise. "
            f"{_REMEDY}"
        )
    return digest


def _lost_memory(folder: RunFolder, why: str) -> InputError:
    return InputError(
        f"{folder.memory_file} {why}: clients have forgotten how their inputs were made, and a round played again "
        f"could have other noise. {_REMEDY}"
    )
