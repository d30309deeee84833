"""The costs of a round: time, bytes and clipping, as they are measured while it is played."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class RoundCosts:
    """What a round cost; the fields are those of :class:`~coterie.runs.records.record.RoundRecord`."""

    losses: Mapping[str, float] = field(default_factory=dict, repr=False)
    """The training loss of each client that trained."""
    clipped: float = 0.0
    upload_bytes: int = 0
    download_bytes: int = 0
    train_seconds: float = 0.0
    protect_seconds: float = 0.0
    compute_seconds: float = 0.0
