"""``coterie attack membership``: whether an example was trained on."""

from typing import Annotated

import typer

from coterie.cli.attack_show import DataDir, Html, SeedOption, Trials, show
from coterie.cli.options import MOST_CLIENTS, AsJson


def membership(
    data: Annotated[
        str, typer.Option(help="A data set with labels; all but digits are read from --data-dir.")
    ] = "digits",
    model: Annotated[str, typer.Option(help="What clients train; the larger, the more it remembers.")] = "mlp",
    examples: Annotated[
        int, typer.Option(help="Examples of each client; the fewer, the better the attack.", min=2, max=100_000)
    ] = 30,
    cohorts: Annotated[
        str, typer.Option(help="Sums over so many clients, commas between; uploads are seen among the last.")
    ] = "4,10",
    rounds: Annotated[int, typer.Option(help="Rounds of federated averaging.", min=1, max=10_000)] = 3,
    epochs: Annotated[int, typer.Option(help="Local epochs in a round; more of them overfit.", min=1, max=10_000)] = 10,
    learning_rate: Annotated[float, typer.Option(help="Of local training.")] = 0.2,
    references: Annotated[
        int, typer.Option(help="Reference models of the attacker, an even number.", min=4, max=10_000)
    ] = 16,
    victims: Annotated[int, typer.Option(help="Federations attacked in every trial.", min=1, max=10_000)] = 8,
    connection: Annotated[float, typer.Option(help="p of the Erdős-Rényi graph of CCESA.")] = 0.9,
    noise: Annotated[
        float, typer.Option(help="Noise multiplier of one more federation, to see what noise buys; 0: none.")
    ] = 1.0,
    norm: Annotated[float, typer.Option(help="The norm that updates are clipped to where there is noise.")] = 2.0,
    trials: Trials = 4,
    seed: SeedOption = 0,
    data_dir: DataDir = None,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Tell who was trained on from a client's model, its masked upload, and the sum.

    A loss threshold, shadow models, LiRA and RMIA ask of every candidate whether the client had it. The same attacks,
    with as many reference models, look at a client's model in plain federated averaging, at its masked upload under
    SA and CCESA (real sessions), and at the global model, which is all that secure aggregation lets anybody see.
    """
    from coterie.cli.common import train_extra

    with train_extra():
        from coterie.attacks.membership.measure import PassiveMembership

    show(
        PassiveMembership(
            data=data,
            model=model,
            examples=examples,
            cohorts=_sizes(cohorts),
            rounds=rounds,
            epochs=epochs,
            learning_rate=learning_rate,
            references=references,
            victims=victims,
            connection=connection,
            noise=noise,
            norm=norm,
            trials=trials,
            seed=seed,
            data_dir=None if data_dir is None else str(data_dir),
        ),
        html,
        as_json,
    )


def _sizes(written: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in written.split(","))
    except ValueError:
        raise typer.BadParameter("write sizes with commas between them, such as 4,10") from None
    if not all(2 <= size <= MOST_CLIENTS for size in sizes):
        raise typer.BadParameter(f"a sum is over 2 to {MOST_CLIENTS} clients")
    return sizes
