"""``coterie attack demo``: the two-minute story, on the digits that come along."""

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.attack_show import SeedOption, Trials, show
from coterie.cli.options import AsJson

PAGE = "attack.html"


def demo(
    rounds: Annotated[int, typer.Option(help="How many secure rounds the server watches.", min=2, max=10_000)] = 40,
    trials: Trials = 3,
    steps: Annotated[int, typer.Option(help="The server's effort: steps of every inversion.", min=1)] = 600,
    seed: SeedOption = 0,
    out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("coterie-attack-demo"),
    as_json: AsJson = False,
) -> None:
    """See why one secure round is not enough: digits recovered from sums, if cohorts are drawn at random.

    Then the same attack on circles of 2 and of 4, which multi-round cohorts keep together. Everything comes along: no
    data set is needed, and it takes a minute or two. The page is for showing around.
    """
    from coterie.attacks.demo import Story
    from coterie.errors import ConfigError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {out}: {error.strerror}") from None
    show(Story(rounds, trials, steps, seed), out / PAGE, as_json)
