"""``coterie explore``: a local page that shows a leak, plans a deployment and audits a log."""

from pathlib import Path
from typing import Annotated

import typer


def explore(
    port: Annotated[int, typer.Option(help="Port of the page; 0 for any free one.", min=0, max=65535)] = 8765,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser of this machine.")
    ] = True,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Write the parts that need no server to this folder, as one HTML file, and exit.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Open a local page: watch sums leak, plan a deployment, audit a log, see what the server saw.

    The page is served on 127.0.0.1 by this process. It loads nothing from elsewhere.
    What you drop onto it does not leave this machine. Ctrl-C stops it.

    [dim]Examples[/]
    coterie explore
    coterie explore --port 0 --no-open
    coterie explore --export site
    """
    from coterie.explorer.export import export_page
    from coterie.explorer.server import ExplorerServer

    if export is not None:
        typer.echo(f"Written: {export_page(export)}")
        return
    with ExplorerServer(port) as server:
        typer.echo(f"Coterie explorer: {server.url}")
        typer.echo("Only this machine can reach it. Stop it with Ctrl-C.")
        if open_browser:
            import webbrowser

            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("\nStopped.")
