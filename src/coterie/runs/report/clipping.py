"""A warning about clipped updates, given in the round in which they occur."""

from collections.abc import Sequence

from coterie.runs.records.record import RoundRecord

MUCH_CLIPPED = 0.01
"""The share of clipped entries above which a run warns."""
_WORSE = 0.1  # warn again when the share has grown by so much since the last warning, or has doubled


class ClippingWatch:
    """Warns when many entries are clipped for the first time, and whenever it gets much worse."""

    def __init__(self, clip: float, records: Sequence[RoundRecord] = ()) -> None:
        """Continue after these rounds."""
        self._clip, self._reported = clip, 0.0
        for record in records:
            self.check(record)

    def check(self, record: RoundRecord) -> str | None:
        """Return the warning of this round, if there is one."""
        share = record.clipped
        if share <= MUCH_CLIPPED or share < min(2 * self._reported, self._reported + _WORSE):
            return None
        self._reported = share
        return (
            f"Round {record.round}: {share:.1%} of the entries of updates are clipped at ±{self._clip:g}, so the mean "
            "is not that of the updates. Raise aggregation.clip, or lower training.learning_rate."
        )
