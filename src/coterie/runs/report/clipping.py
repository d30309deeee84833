"""Clipping of updates: said in the round in which it happens, not only in the end."""

from collections.abc import Sequence

from coterie.runs.records.record import RoundRecord

MUCH_CLIPPED = 0.01
"""The share of clipped entries from which on it is worth a word."""
_WORSE = 0.1  # said again when the share is so much larger than when it was said last, or twice as large


class ClippingWatch:
    """Tells in which rounds many entries are clipped: once it starts, and when it gets much worse."""

    def __init__(self, clip: float, records: Sequence[RoundRecord] = ()) -> None:
        """Go on after these rounds."""
        self._clip, self._said = clip, 0.0
        for record in records:
            self.tell(record)

    def tell(self, record: RoundRecord) -> str | None:
        """Return what is to be said in this round, if anything."""
        share = record.clipped
        if share <= MUCH_CLIPPED or share < min(2 * self._said, self._said + _WORSE):
            return None
        self._said = share
        return (
            f"Round {record.round}: {share:.1%} of the entries of updates are clipped at ±{self._clip:g}, so the mean "
            "is not that of the updates. Raise aggregation.clip, or lower training.learning_rate."
        )
