"""The records of a run: what is known after each round, and what all rounds together amount to."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import cast

import msgspec
import numpy as np

from coterie.auditing.auditor import Auditor
from coterie.cohorts.ledger import Outcome

CLOCKS = ("seconds", "train_seconds", "protect_seconds", "compute_seconds")
"""Fields measured with a clock; all others are the same whenever and wherever a run is repeated."""


class RoundRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One round: a line of ``metrics.jsonl``. Rounds count from 1, as in the ledger."""

    round: int
    outcome: Outcome
    reason: str = ""
    """Why there is no result, where there is none."""
    selected: int = 0
    aggregated: tuple[str, ...] = ()
    """Whose sum was revealed; if the round was aborted after that, without use."""
    dropped: tuple[str, ...] = ()
    """Selected clients that left before the round was over."""
    stranded: tuple[str, ...] = ()
    """Clients that stayed and were left out all the same, because one of their circle had left."""
    learning_rate: float = 0.0
    train_loss: float | None = None
    """Mean over the clients that trained, of their examples' loss while training."""
    test_loss: float | None = None
    accuracy: float | None = None
    strong_privacy: int | None = None
    """T of all rounds so far: the fewest clients that cannot be told apart (So et al. 2023)."""
    exposed: int = 0
    """Clients whose own update the server can compute from all rounds so far."""
    fairness_gap: float = 0.0
    """F so far: how much more often, per round, the most frequent client was aggregated than the least frequent."""
    cardinality: float = 0.0
    """C so far: how many clients were aggregated in a round, on average."""
    clipped: float = 0.0
    """Share of the entries of all updates that lay outside the clipping range."""
    upload_bytes: int = 0
    """What all clients together sent in this round."""
    download_bytes: int = 0
    """What all clients together received in this round, the model not counted."""
    epsilon: float | None = None
    """Differential privacy spent so far, where there is noise."""
    seconds: float = 0.0
    train_seconds: float = 0.0
    """Of these, how long the round waited for clients to train."""
    protect_seconds: float = 0.0
    """Of these, what secure aggregation took beyond that."""
    compute_seconds: float = 0.0
    """Processor time that all clients together spent on training; with several workers it can exceed ``seconds``."""

    @property
    def completed(self) -> bool:
        """Whether the model learnt something."""
        return self.outcome is Outcome.COMPLETED


@cache
def record_type(columns: tuple[str, ...]) -> type[RoundRecord]:
    """Return the record of an algorithm with columns of its own: numbers, or None where they are not known."""
    if not columns:
        return RoundRecord
    fields = [(column, float | None, None) for column in columns]
    made = msgspec.defstruct(
        "ExtendedRecord", fields, bases=(RoundRecord,), frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    return cast(type[RoundRecord], made)


def extend(record: RoundRecord, columns: tuple[str, ...], values: Mapping[str, float]) -> RoundRecord:
    """Return the record with an algorithm's own columns."""
    return record_type(columns)(**{**msgspec.structs.asdict(record), **values}) if columns else record


def own_columns(record: RoundRecord) -> tuple[str, ...]:
    """Return which columns a record has besides those of all algorithms."""
    return record.__struct_fields__[len(RoundRecord.__struct_fields__) :]


class Standing:
    """What the rounds so far have revealed: T, who is exposed, F, C, and how often everybody took part."""

    def __init__(self, clients: Sequence[str], *, hidden: bool = True) -> None:
        """Begin with nothing revealed; without ``hidden``, the server sees every update that is aggregated."""
        self._number = {name: number for number, name in enumerate(clients)}
        self._auditor = Auditor(clients)
        self._hidden = hidden
        self._rounds = 0
        self.revealed = 0
        """Rounds in which a sum was revealed."""
        self.frequencies = np.zeros(len(clients), np.int64)
        """How often each client was aggregated."""

    def add(self, number: int, aggregated: Iterable[str]) -> None:
        """Take in round ``number``, in which the sum over these clients was revealed; over nobody, if none was."""
        members = list(aggregated)
        self._rounds += 1
        self.revealed += bool(members)
        self.frequencies[[self._number[name] for name in members]] += 1
        if self._hidden:
            self._auditor.add_round(number, members)

    @property
    def strong_privacy(self) -> int | None:
        """T so far; None while nothing was revealed."""
        if self._hidden:
            return self._auditor.strong_privacy
        return 1 if self.frequencies.any() else None

    @property
    def exposed(self) -> int:
        """How many clients' own updates the server has or can compute."""
        return len(self._auditor.exposed) if self._hidden else int(np.count_nonzero(self.frequencies))

    @property
    def fairness_gap(self) -> float:
        """F so far."""
        return float(np.ptp(self.frequencies) / self._rounds) if self._rounds else 0.0

    @property
    def cardinality(self) -> float:
        """C so far."""
        return float(self.frequencies.sum() / self._rounds) if self._rounds else 0.0
