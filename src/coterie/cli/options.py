"""Options that several commands have in common."""

from typing import Annotated

import click
import typer


class _Topology(click.ParamType):  # type: ignore[type-arg]  # generic in the latest releases of click only
    """A name from the table of topologies, which is imported only where one is chosen or where they are listed."""

    name = "topology"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what is not in the table."""
        return self._choice().convert(value, param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """List the table in the help."""
        return self._choice().get_metavar(param, ctx)

    def _choice(self) -> "click.Choice[str]":
        from coterie.graphs.table import searches

        return click.Choice(tuple(searches()))


AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON and nothing else.")]
TopologyOption = Annotated[str, typer.Option(help="Who shares secrets with whom.", click_type=_Topology())]
