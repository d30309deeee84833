"""``coterie attack property``: which client has a kind of data, although updates change."""

from typing import Annotated

import typer

from coterie.cli.attack_show import DataDir, Html, SeedOption, Trials, show
from coterie.cli.common import train_extra
from coterie.cli.options import MOST_CLIENTS, MOST_TRIALS, AsJson


def property_inference(
    clients: Annotated[int, typer.Option(help="N: how many clients there are.", min=3, max=MOST_CLIENTS)] = 40,
    cohort: Annotated[int, typer.Option(help="K: clients in a round.", min=2, max=MOST_CLIENTS)] = 8,
    holders: Annotated[int, typer.Option(help="How many of them have the property.", min=1)] = 8,
    privacy: Annotated[
        list[int] | None,
        typer.Option(metavar="T", help="Members of a circle; may be repeated.", min=2, show_default="2, 4"),
    ] = None,
    dropouts: Annotated[
        float,
        typer.Option(
            help="Probability that a client is lost inside a round; above 0, circles are also tried without the rule "
            "that a broken circle is left out.",
            min=0,
            max=0.99,
        ),
    ] = 0.1,
    rounds: Annotated[int, typer.Option(help="How many rounds the server watches.", min=1, max=MOST_TRIALS)] = 80,
    trials: Trials = 3,
    share: Annotated[
        float,
        typer.Option(help="How many of the pictures of a client with the property are upside down.", min=0, max=1),
    ] = 0.5,
    data: Annotated[str, typer.Option(metavar="NAME", help="The data set: digits comes along.")] = "digits",
    model: Annotated[str, typer.Option(metavar="NAME", help="The model; a wrong name lists all.")] = "mlp",
    data_dir: DataDir = None,
    examples: Annotated[int, typer.Option(help="Examples of a client.", min=2)] = 16,
    seed: SeedOption = 0,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Find out which clients have a kind of data: here, pictures that are upside down.

    Updates change from round to round, and differencing needs many rounds then. What a client's data are like stays: a
    linear detector, trained on data of the attacker's own, is applied to every sum, and its scores are taken apart by
    who was in which round.

    [dim]Example[/]
    coterie attack property --dropouts 0.05 --html page.html
    """
    with train_extra():
        from coterie.attacks.property.measure import PropertyInference

        attack = PropertyInference(
            clients=clients,
            cohort=cohort,
            holders=holders,
            privacy=tuple(privacy or (2, 4)),
            dropouts=dropouts,
            rounds=rounds,
            trials=trials,
            share=share,
            data=data,
            model=model,
            data_dir=None if data_dir is None else str(data_dir),
            examples=examples,
            seed=seed,
        )
    show(attack, html, as_json)
