"""Options that several commands have in common."""

from enum import StrEnum


class Shape(StrEnum):
    """Who shares secrets with whom."""

    HARARY = "harary"
    COMPLETE = "complete"
    ERDOS_RENYI = "erdos-renyi"
