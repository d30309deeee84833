"""The outcome of a round in a ledger. It is separate from the ledger, whose database takes long to import."""

from enum import StrEnum


class Outcome(StrEnum):
    """The state of a round, derived from its entries."""

    REVEALED = "revealed"
    """Announced but not ended: it is running, or its server crashed. It counts as seen."""
    COMPLETED = "completed"
    SKIPPED = "skipped"
    """No clients were selected."""
    ABORTED_BEFORE_REVEAL = "aborted before reveal"
    """It ended before any share left a client. It is not a row of the participation matrix."""
    ABORTED_AFTER_REVEAL = "aborted after reveal"
    """It ended without a result, but shares may have left clients: it counts as seen."""
