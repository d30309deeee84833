"""``coterie attack``: watch a leak with your own eyes, then see whether it is closed."""

import typer

from coterie.cli import attack_active_membership

app = typer.Typer(
    help="Run attacks without their defence and with it: who attacks and how, what comes of it, a privacy card.",
    no_args_is_help=True,
)
app.command("active-membership")(attack_active_membership.active_membership)
