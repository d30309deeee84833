"""Options that several commands have in common."""

from typing import Annotated

import typer

# More than any session has, or any machine; what is beyond is a slip of the keyboard, and is told so.
MOST_CLIENTS, MOST_LENGTH, MOST_WORKERS, MOST_TRIALS = 65_536, 1 << 28, 1_024, 1_000_000
MOST_SEED = 2**63 - 1

AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON and nothing else.")]
TopologyOption = Annotated[
    str, typer.Option(metavar="NAME", help="Who shares secrets with whom; a wrong name lists all.")
]
