"""``coterie attack``: watch a leak with your own eyes, then see whether it is closed."""

import typer

from coterie.cli import attack_demo, attack_differencing, attack_faces, attack_imprint, attack_inversion

app = typer.Typer(
    help="Run attacks without their defence and with it: who attacks and how, what comes of it, a privacy card.",
    no_args_is_help=True,
)
app.command("demo")(attack_demo.demo)
app.command("differencing")(attack_differencing.differencing)
app.command("faces")(attack_faces.faces)
app.command("imprint")(attack_imprint.imprint)
app.command("inversion")(attack_inversion.inversion)
