"""Options that several commands have in common."""

from typing import Annotated

import typer

TOPOLOGIES = ("complete", "erdos-renyi", "harary")
"""The names of all topologies; importing their table for a line of help would make every command start slowly."""

AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON and nothing else.")]
TopologyOption = Annotated[str, typer.Option(metavar="|".join(TOPOLOGIES), help="Who shares secrets with whom.")]
