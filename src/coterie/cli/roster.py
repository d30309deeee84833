"""``coterie roster``: show the circles that a server on Flower keeps, and retire those of nodes that left."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.common import AsJson, new_console, print_json
from coterie.cli.derive import PlainCommand, PlainGroup

if TYPE_CHECKING:
    from rich.console import Console

    from coterie.cohorts.roster import Roster
    from coterie.deployment.roster_folder import RosterFolder

app = typer.Typer(
    cls=PlainGroup,
    help="Show the roster of a server on Flower, and retire the circles of nodes that left.",
    no_args_is_help=True,
)
Home = Annotated[
    Path | None,
    typer.Option(
        help="The server's COTERIE_HOME.",
        envvar="COTERIE_HOME",
        show_default="~/.coterie",
        file_okay=False,
        exists=True,
    ),
]


@app.command(cls=PlainCommand, epilog="Example: coterie roster show --home /srv/coterie")
def show(home: Home = None, as_json: AsJson = False) -> None:
    """Show the circles, the nodes that wait for one, how contributions are made, and the digest to pin nodes to.

    Nodes are enrolled by the first run they are connected to; a run with no rounds enrols them and trains nothing. This
    command only reads the stored roster.
    """
    rosters, roster = _read(home)
    if as_json:
        print_json(_record(roster))
        return
    _show(roster, len(rosters.versions), whole=True)


@app.command(cls=PlainCommand, epilog="Example: coterie roster retire 17320508075688772935")
def retire(
    names: Annotated[list[str], typer.Argument(help="Nodes that left, by name.", show_default=False)],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Retire the circles of nodes that left, permanently.

    If the other members of such a circle continued without the node, the difference of two sums would be the node's own
    update. So they cannot take part any more. Put only reliable nodes into a population, and choose T with this in
    mind. A node that is away for a while needs no retirement: its circle is skipped until it is back.
    """
    rosters, roster = _read(home)
    later = roster.leave(names)
    if changed := (later.retired, later.queue) != (roster.retired, roster.queue):
        rosters.add(later)
        roster = later
    if as_json:
        print_json(_record(roster))
    elif changed:
        _show(roster, len(rosters.versions))
    else:
        said = f"Nothing to retire: {', '.join(names)}: in no circle that is in use, and not waiting for one."
        new_console().print(said, markup=False, soft_wrap=True)


def _read(home: Path | None) -> "tuple[RosterFolder, Roster]":
    from coterie.deployment.roster_folder import RosterFolder
    from coterie.errors import ConfigError

    folder = (home or Path.home() / ".coterie") / "server" / "rosters"
    rosters = RosterFolder(folder)
    if rosters.latest is None:
        raise ConfigError(f"there is no roster in {folder}: it is founded by the first run under a PrivateStrategy")
    return rosters, rosters.latest


def _recipe(roster: "Roster") -> dict[str, str]:
    """Return how contributions are made, in words; empty for a roster of an older version."""
    from coterie.deployment.recipe import RosterRecipe

    return RosterRecipe.from_bytes(roster.recipe).settings() if roster.recipe else {}


def _record(roster: "Roster") -> dict[str, Any]:
    return {
        "version": roster.version,
        "digest": roster.digest.hex(),
        "privacy": roster.privacy,
        "circles": [
            {"members": [roster.names[at] for at in circle], "retired": number in roster.retired}
            for number, circle in enumerate(roster.circles)
        ],
        "waiting": [roster.names[at] for at in roster.queue],
        "recipe": _recipe(roster),
    }


def _show(roster: "Roster", versions: int, *, whole: bool = False) -> None:
    console = new_console()
    console.print(
        f"[bold]Roster version {roster.version}[/bold] of {versions}: {len(roster.clients)} nodes, T = {roster.privacy}"
    )
    for line in roster.lines():
        console.print(f"  {line}", markup=False, soft_wrap=True)
    if whole:
        _show_recipe(roster, console)
    console.print(f"digest  {roster.digest.hex()}", soft_wrap=True)
    console.print("[dim]Nodes are pinned to it by coterie-roster in their --node-config.[/dim]")


def _show_recipe(roster: "Roster", console: "Console") -> None:
    from coterie.reports.words import printable

    if recipe := _recipe(roster):
        console.print("How contributions are made (this cannot be changed):")
        for name, value in recipe.items():
            console.print(f"  {name:<16} {printable(value, len(value) * 10)}", markup=False, soft_wrap=True)
    else:
        console.print("It does not say how contributions are made: an older version founded it, and nodes refuse it.")
