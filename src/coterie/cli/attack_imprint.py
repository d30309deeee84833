"""``coterie attack imprint``: examples out of any sum, by a model that the server crafted."""

from typing import Annotated

import typer

from coterie.cli.attack_show import DataDir, Html, SeedOption, Trials, show
from coterie.cli.options import AsJson


def imprint(
    data: Annotated[str, typer.Option(metavar="NAME", help="Pictures: digits, mnist, cifar10 or faces.")] = "digits",
    cohort: Annotated[
        list[int] | None, typer.Option(help="Clients in a sum; may be given again. [default: 8, 32]")
    ] = None,
    bins: Annotated[
        list[int] | None, typer.Option(help="Bins of the crafted layer; may be given again. [default: 64, 256, 1024]")
    ] = None,
    examples: Annotated[int, typer.Option(help="How many examples each client has.", min=1)] = 8,
    privacy: Annotated[int, typer.Option(help="T, the size of circles, which does not help.", min=2)] = 4,
    noise: Annotated[
        list[float] | None,
        typer.Option(help="Noise in a sum, in lengths of an update; may be given again. [default: 0.000001 to 1]"),
    ] = None,
    trials: Trials = 3,
    seed: SeedOption = 0,
    data_dir: DataDir = None,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """See where circles do not help: a model crafted by the server leaves examples in any sum, whatever the cohort.

    And what does help: a model's architecture that clients pin, and noise.
    """
    from coterie.attacks.imprint import Imprint

    attack = Imprint(
        data,
        tuple(cohort or (8, 32)),
        tuple(bins or (64, 256, 1024)),
        examples,
        privacy,
        tuple(noise or (1e-6, 1e-5, 1e-4, 0.01, 1.0)),
        trials,
        seed,
        str(data_dir) if data_dir else None,
    )
    show(attack, html, as_json)
