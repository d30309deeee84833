"""Options that several commands have in common."""

from enum import StrEnum
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON and nothing else.")]


class Shape(StrEnum):
    """Who shares secrets with whom."""

    HARARY = "harary"
    COMPLETE = "complete"
    ERDOS_RENYI = "erdos-renyi"
