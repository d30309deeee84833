"""Options that several commands have in common."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON and nothing else.")]
