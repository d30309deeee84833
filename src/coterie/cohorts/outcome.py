"""The outcome of a round, as a ledger tells it; apart from the ledger, whose database takes long to import."""

from enum import StrEnum


class Outcome(StrEnum):
    """How a round stands, read from its entries."""

    REVEALED = "revealed"
    """Announced, with no end recorded: it is running, or its server crashed. It counts as seen."""
    COMPLETED = "completed"
    SKIPPED = "skipped"
    """Nobody was selected."""
    ABORTED_BEFORE_REVEAL = "aborted before reveal"
    """It ended before any share left a client: it is no row of the participation matrix."""
    ABORTED_AFTER_REVEAL = "aborted after reveal"
    """No result, but shares may have left: it counts as seen."""
