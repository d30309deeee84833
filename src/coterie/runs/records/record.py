"""The records of a run: the results of each round, its costs, and why a run ended early."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import cast

import msgspec

from coterie.cohorts.outcome import Outcome
from coterie.rounds.outcome import Tally


@dataclass(frozen=True, eq=False)
class RoundCosts:
    """The costs of a round; its other fields are those of :class:`RoundRecord`."""

    losses: Mapping[str, float] = field(default_factory=dict, repr=False)
    """The training loss of each client that trained."""
    clipped: Mapping[str, int] = field(default_factory=dict, repr=False)
    """How many entries of the update of each client lay outside the clipping range."""
    entries: int = 0
    """How many entries an update has."""
    upload_bytes: int = 0
    download_bytes: int = 0
    train_seconds: float = 0.0
    protect_seconds: float = 0.0
    computed: Mapping[str, float] = field(default_factory=dict, repr=False)
    """The processor time of each client that trained."""

    def compute_seconds_of(self, clients: Collection[str]) -> float:
        """Return the processor time of these clients."""
        return sum(self.computed[name] for name in sorted(clients) if name in self.computed)

    def clipped_of(self, clients: Collection[str]) -> float:
        """Return the share of the entries of these clients' updates that lay outside the clipping range."""
        counts = [self.clipped[name] for name in clients if name in self.clipped]
        return sum(counts) / max(1, len(counts) * self.entries)


PUBLIC = frozenset(
    {
        *("round", "outcome", "reason", "available", "selected", "aggregated", "dropped", "stranded", "left_later"),
        *("learning_rate", "strong_privacy", "exposed", "fairness_gap", "cardinality"),
        *("upload_bytes", "download_bytes", "epsilon", "example_epsilon"),
        *("seconds", "train_seconds", "protect_seconds"),  # a server sees when messages arrive
    }
)
"""Fields that the server sees anyway, or that follow from what it sees; all others depend on the clients' data."""
SCORES = frozenset({"test_loss", "accuracy", "error"})
"""Fields that are as public as the models they measure."""
CLOCKS = ("seconds", "train_seconds", "protect_seconds", "compute_seconds")
"""Fields measured with a clock; all others are the same whenever and wherever a run is repeated."""


class RoundRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One round: a line of ``metrics.jsonl``. Rounds count from 1, as in the ledger."""

    round: int
    outcome: Outcome
    reason: str = ""
    """Why there is no result; empty if there is one."""
    available: int | None = None
    """The number of clients that were available when the round began; all others were absent."""
    selected: int = 0
    """The number of available clients that were selected; :attr:`tally` says what happened to them."""
    aggregated: tuple[str, ...] = ()
    """The clients whose sum was revealed; it was not used if the round was aborted afterwards."""
    dropped: tuple[str, ...] = ()
    """Selected clients that dropped out before their contribution counted; in older records, all dropouts."""
    stranded: tuple[str, ...] = ()
    """Clients that contributed and were excluded because one of their circle had dropped out."""
    left_later: tuple[str, ...] = ()
    """Clients in the sum, or excluded, that dropped out after contributing: they count as if they had stayed."""
    learning_rate: float = 0.0
    train_loss: float | None = None
    """Mean training loss of the clients in the sum; without sums, of all clients that trained."""
    test_loss: float | None = None
    accuracy: float | None = None
    """Share of the test examples that models classify correctly; None where targets are numbers, not labels."""
    error: float | None = None
    """Mean absolute error on the test examples in the unit of their targets, if the unit is known."""
    strong_privacy: int | None = None
    """T of all rounds so far: the size of the smallest group that the sums do not separate (So et al. 2023)."""
    exposed: int = 0
    """Clients whose own update the server can compute from all rounds so far."""
    fairness_gap: float = 0.0
    """F so far: how much more often, per round, the most frequent client was aggregated than the least frequent."""
    cardinality: float = 0.0
    """C so far: how many clients were aggregated in a round, on average."""
    clipped: float = 0.0
    """Share of the entries of the updates in the sum that lay outside the clipping range."""
    upload_bytes: int = 0
    """What all clients together sent in this round."""
    download_bytes: int = 0
    """What all clients together received in this round, the model not counted."""
    epsilon: float | None = None
    """Differential privacy spent so far, if there is noise."""
    example_epsilon: float | None = None
    """The epsilon for replacing one example of a client, if the noise is in the sums."""
    seconds: float = 0.0
    train_seconds: float = 0.0
    """The part of these in which the round waited for clients to train."""
    protect_seconds: float = 0.0
    """The part of these that secure aggregation took in addition."""
    compute_seconds: float = 0.0
    """Processor time that the clients in the sum spent on training; with several workers it can exceed ``seconds``."""

    @property
    def completed(self) -> bool:
        """Whether the round has a result."""
        return self.outcome is Outcome.COMPLETED

    @property
    def tally(self) -> Tally:
        """What happened to the selected clients, in numbers that add up."""
        aggregated = self.aggregated if self.completed else ()
        return Tally.of(self.selected, aggregated=aggregated, stranded=self.stranded, dropped=self.dropped)


@cache
def record_type(columns: tuple[str, ...]) -> type[RoundRecord]:
    """Return the record type of a run with further columns: numbers, or None if they are not known."""
    if not columns:
        return RoundRecord
    fields = [(column, float | None, None) for column in columns]
    made = msgspec.defstruct(
        "ExtendedRecord", fields, bases=(RoundRecord,), frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    return cast(type[RoundRecord], made)


def extend(record: RoundRecord, columns: tuple[str, ...], values: Mapping[str, float | None]) -> RoundRecord:
    """Return the record with the columns of an algorithm and of metrics."""
    return record_type(columns)(**{**msgspec.structs.asdict(record), **values}) if columns else record


def beside_noise(record: RoundRecord, public: Collection[str]) -> RoundRecord:
    """Return the fields of a record that may be kept if the sums have noise: only those declared public.

    Noise in the sums would be useless if another number showed the same training without noise. So every record of a
    run with noise keeps only the fields of :data:`PUBLIC`, and those algorithm columns and :data:`SCORES` that are in
    ``public``. All other fields get their defaults, including fields that are added in the future.
    """
    unknown = [
        (field.name, field.default)
        for field in msgspec.structs.fields(record)
        if field.name not in PUBLIC and field.name not in public
    ]
    return msgspec.structs.replace(record, **dict(unknown))


def own_columns(record: RoundRecord) -> tuple[str, ...]:
    """Return the columns that the algorithm and the metrics added to a record."""
    return record.__struct_fields__[len(RoundRecord.__struct_fields__) :]


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an observer returns to end a run after the round that was just recorded.

    The run's folder keeps it, and a resumed run respects it.
    """

    reason: str
    """The reason, as a sentence without its full stop. It is shown on the console, in the summary and on the page."""
    section: str = ""
    """The section of the settings that the decision depends on. A resumed run continues if that section was changed."""
