"""``coterie attack demo``: the two-minute story, on the digits that come along."""

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.attack_show import Html, SeedOption, Trials, show
from coterie.cli.options import AsJson

FOLDER, PAGE = Path("coterie-attack-demo"), "attack.html"


def demo(
    rounds: Annotated[int, typer.Option(help="How many secure rounds the server watches.", min=2, max=10_000)] = 40,
    trials: Trials = 3,
    steps: Annotated[int, typer.Option(help="The server's effort: steps of every inversion.", min=1)] = 600,
    seed: SeedOption = 0,
    html: Html = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the page, instead of --html.",
            show_default=f"{FOLDER}, nothing with --json",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """See why one secure round is not enough: digits recovered from sums, if cohorts are drawn at random.

    Then the same attack on circles of 2 and of 4, which multi-round cohorts keep together. Everything comes along: no
    data set is needed, and it takes a minute or two. The page is for showing around.
    """
    from coterie.attacks.demo.measure import Story
    from coterie.errors import ConfigError

    if html is not None and out is not None:
        raise typer.BadParameter("the page goes either to --html or into --out")
    if html is None and (out is not None or not as_json):
        folder = out or FOLDER
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None
        html = folder / PAGE
    show(Story(rounds, trials, steps, seed), html, as_json)
