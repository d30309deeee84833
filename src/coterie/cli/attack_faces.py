"""``coterie attack faces``: the face behind a class of a model, and who can draw it."""

from typing import Annotated

import typer

from coterie.cli.attack_show import DataDir, Html, SeedOption, Trials, show
from coterie.cli.options import AsJson


def faces(
    data: Annotated[
        str, typer.Option(metavar="NAME", help="faces (AT&T's 40 people), or digits, ten kinds taken for people.")
    ] = "digits",
    rounds: Annotated[int, typer.Option(help="Rounds of training; the last is listened to.", min=1, max=10_000)] = 5,
    epochs: Annotated[int, typer.Option(help="How often a client goes through its pictures in a round.", min=1)] = 10,
    learning_rate: Annotated[float, typer.Option(help="Of the clients' descent.")] = 0.05,
    connection: Annotated[float, typer.Option(help="Probability of an edge in CCESA's graph.", min=0, max=1)] = 0.7,
    trials: Trials = 3,
    seed: SeedOption = 0,
    data_dir: DataDir = None,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Draw people out of a model that learnt to tell them apart: what a listener can, and whoever gets the model.

    Plain averaging, SA and CCESA, with masked vectors from real sessions; and the model that all of them open, because
    a masked vector is noise by construction. --data faces --rounds 50 --epochs 50 is the paper's setting.
    """
    from coterie.attacks.faces.measure import Faces

    folder = str(data_dir) if data_dir else None
    show(Faces(data, rounds, epochs, learning_rate, connection, trials, seed, folder), html, as_json)
