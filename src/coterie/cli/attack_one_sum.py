"""``coterie attack one-sum``: what a single secure sum says about one of its clients."""

from typing import Annotated

import typer

from coterie.cli.attack_show import DataDir, Html, SeedOption, Trials, show
from coterie.cli.options import AsJson


def one_sum(
    data: Annotated[
        str, typer.Option(help="A data set with labels; all but digits are read from --data-dir.")
    ] = "digits",
    model: Annotated[
        str, typer.Option(help="What clients train; the attack inverts a square matrix of its size.")
    ] = "softmax-regression",
    cohorts: Annotated[str, typer.Option(help="Sums over so many clients, commas between.")] = "4,12,100",
    examples: Annotated[
        int, typer.Option(help="Examples of each client; with fewer, each counts for more.", min=2, max=100_000)
    ] = 20,
    epochs: Annotated[int, typer.Option(help="Local epochs.", min=1, max=10_000)] = 5,
    learning_rate: Annotated[float, typer.Option(help="Of local training.")] = 0.1,
    population: Annotated[
        int, typer.Option(help="Clients that sums are drawn from; as many are simulated.", min=4, max=1_000_000)
    ] = 1500,
    tries: Annotated[
        int, typer.Option(help="Sums under each hypothesis; more of them can show more.", min=4, max=10_000_000)
    ] = 10_000,
    noise: Annotated[str, typer.Option(help="Noise multipliers to compare with, commas between.")] = "0.5,1,2,4",
    delta: Annotated[float, typer.Option(help="The delta of (epsilon, delta).")] = 1e-5,
    trials: Trials = 3,
    seed: SeedOption = 0,
    data_dir: DataDir = None,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Audit a single secure sum as if it were a private mechanism.

    The server knows two updates of which a client sent one, and how other clients' updates are distributed. How well it
    tells from one sum which of them is in it bounds epsilon from below; what noise would guarantee stands beside.
    """
    from coterie.cli.common import train_extra

    with train_extra():
        from coterie.attacks.one_sum.measure import OneSum

    show(
        OneSum(
            data=data,
            model=model,
            cohorts=tuple(map(int, _numbers(cohorts))),
            examples=examples,
            epochs=epochs,
            learning_rate=learning_rate,
            population=population,
            tries=tries,
            noise=_numbers(noise),
            delta=delta,
            trials=trials,
            seed=seed,
            data_dir=None if data_dir is None else str(data_dir),
        ),
        html,
        as_json,
    )


def _numbers(written: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in written.split(",") if part)
    except ValueError:
        raise typer.BadParameter("write numbers with commas between them, such as 4,12,100") from None
