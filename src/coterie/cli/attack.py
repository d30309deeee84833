"""``coterie attack``: watch a leak with your own eyes, then see whether it is closed."""

import typer

from coterie.cli import attack_membership, attack_one_sum

app = typer.Typer(
    help="Run attacks without their defence and with it: who attacks and how, what comes of it, a privacy card.",
    no_args_is_help=True,
)
app.command("membership")(attack_membership.membership)
app.command("one-sum")(attack_one_sum.one_sum)
