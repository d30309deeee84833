"""``coterie attack malicious-server``: a server that lies, against the product's own clients."""

from enum import StrEnum
from typing import Annotated

import typer

from coterie.cli.attack_show import DataDir, Html, SeedOption, Trials, show


class TermsMode(StrEnum):
    """Whom the clients take the server for."""

    ACTIVE = "active"
    HONEST = "honest"


def malicious_server(
    lie: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Tell this lie only; may be repeated.")] = None,
    mode: Annotated[
        TermsMode, typer.Option(help="Terms against a server that lies, or against an honest one that is curious.")
    ] = TermsMode.ACTIVE,
    circles: Annotated[int, typer.Option(metavar="T", help="Clients in a circle; 1 is no circles.", min=1)] = 3,
    clients: Annotated[int, typer.Option(help="Clients in a session.", min=4, max=100)] = 12,
    colluders: Annotated[
        int | None, typer.Option(help="Clients on the server's side; a third, rounded down, unless told.", min=0)
    ] = None,
    trials: Trials = 3,
    tries: Annotated[
        int, typer.Option(help="How often each lie in a session is told again, varied at random.", min=0, max=100_000)
    ] = 4,
    data: Annotated[str, typer.Option(help="The pictures that are the clients' inputs.")] = "digits",
    data_dir: DataDir = None,
    seed: SeedOption = 0,
    html: Html = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Lie to real clients of secure aggregation, each lie without the rule against it and with it.

    The server asks for both kinds of share, tells two stories, strands and splits circles, hands out keys of its own,
    surrounds a client with puppets, gives clients different models. What it then computes is drawn as a picture: the
    client's input without the rule, noise or nothing with it. Under honest-but-curious terms (--mode honest) some lies
    work in spite of all rules; the card says which.
    """
    from coterie.attacks.malicious_server.measure import LIES, MaliciousServer
    from coterie.secagg.terms import default_colluders

    attack = MaliciousServer(
        lies=tuple(lie or LIES),
        active=mode is TermsMode.ACTIVE,
        privacy=circles,
        clients=clients,
        colluders=default_colluders(clients) if colluders is None else colluders,
        trials=trials,
        tries=tries,
        data=data,
        data_dir=str(data_dir) if data_dir else None,
        seed=seed,
    )
    show(attack, html, as_json)
