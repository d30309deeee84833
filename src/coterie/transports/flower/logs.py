"""Coterie's log lines among those of Flower: a ServerApp's and a ClientApp's log show both."""

import copy
import logging

from coterie.deployment.logs import LOGGER

_FLOWER = logging.getLogger("flwr")
_PREFIX = "Coterie: "


class _Redirection(logging.Filter):
    """Hands records to Flower's logger instead of the logger that it filters."""

    def filter(self, record: logging.LogRecord) -> bool:
        record = copy.copy(record)
        record.msg = _PREFIX + str(record.msg)
        _FLOWER.handle(record)
        return False


def join_flower_log() -> None:
    """Send what Coterie logs to Flower's handlers, and to no other."""
    if not any(isinstance(found, _Redirection) for found in LOGGER.filters):
        LOGGER.addFilter(_Redirection())
        LOGGER.setLevel(logging.DEBUG)  # Flower's handlers have levels of their own
