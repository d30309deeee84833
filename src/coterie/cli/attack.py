"""``coterie attack``: watch a leak with your own eyes, then see whether it is closed."""

import typer

from coterie.cli import (
    attack_active_membership,
    attack_demo,
    attack_differencing,
    attack_disaggregation,
    attack_faces,
    attack_imprint,
    attack_inversion,
    attack_malicious_server,
    attack_membership,
    attack_one_sum,
    attack_property,
)

app = typer.Typer(
    help="Run attacks without their defence and with it: who attacks and how, what comes of it, a privacy card.",
    no_args_is_help=True,
)
app.command("demo")(attack_demo.demo)
app.command("active-membership")(attack_active_membership.active_membership)
app.command("differencing")(attack_differencing.differencing)
app.command("disaggregation")(attack_disaggregation.disaggregation)
app.command("faces")(attack_faces.faces)
app.command("imprint")(attack_imprint.imprint)
app.command("inversion")(attack_inversion.inversion)
app.command("malicious-server")(attack_malicious_server.malicious_server)
app.command("membership")(attack_membership.membership)
app.command("one-sum")(attack_one_sum.one_sum)
app.command("property")(attack_property.property_inference)
