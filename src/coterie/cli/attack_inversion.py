"""``coterie attack inversion``: the pictures behind a client's update, and behind its circle's."""

from typing import Annotated

import typer

from coterie.cli.attack_show import DataDir, Html, SeedOption, Trials, show
from coterie.cli.options import AsJson


def inversion(
    data: Annotated[str, typer.Option(metavar="NAME", help="Pictures: digits, mnist, cifar10 or faces.")] = "digits",
    model: Annotated[
        str, typer.Option(metavar="NAME", help="What is trained: softmax-regression, mlp, lenet ...")
    ] = "softmax-regression",
    clients: Annotated[int, typer.Option(help="How many clients there are.", min=2, max=10_000)] = 16,
    examples: Annotated[int, typer.Option(help="How many pictures each has; more are harder to invert.", min=1)] = 8,
    privacy: Annotated[
        list[int] | None, typer.Option("--privacy", "-T", help="A circle's size T; may be given again. [default: 2, 4]")
    ] = None,
    trained: Annotated[int, typer.Option(help="Rounds of training before the attack.", min=0, max=10_000)] = 0,
    steps: Annotated[int, typer.Option(help="The attacker's budget: steps of every inversion.", min=1)] = 600,
    step_size: Annotated[float, typer.Option(help="How far a pixel moves in a step, of its range.")] = 0.1,
    variation: Annotated[float, typer.Option(help="How smooth the attacker believes pictures to be.")] = 1e-4,
    trials: Trials = 6,
    seed: SeedOption = 0,
    data_dir: DataDir = None,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Draw a client's pictures from its update, which random selection gives away over rounds, and from its circle's.

    The same attack with the same budget for T = 1, 2 and 4, beside the guesses of somebody who saw no update. Circles
    are attacked in two ways: as if the mean were the client's, and for all pictures of the circle at once.
    """
    from coterie.attacks.inversion import Inversion

    attack = Inversion(
        data,
        model,
        clients,
        examples,
        tuple(privacy) if privacy else (2, 4),
        trained,
        steps,
        step_size,
        variation,
        trials,
        seed,
        str(data_dir) if data_dir else None,
    )
    show(attack, html, as_json)
