"""``coterie attack disaggregation``: who was in which sum, found from the sums themselves."""

from typing import Annotated

import typer

from coterie.cli.attack_differencing import WindowSteps
from coterie.cli.attack_show import DataDir, Html, SeedOption, Trials, show
from coterie.cli.common import train_extra
from coterie.cli.options import MOST_TRIALS, AsJson


def disaggregation(
    clients: Annotated[int, typer.Option(help="N: how many clients there are.", min=2, max=200)] = 10,
    cohort: Annotated[int, typer.Option(help="K: clients in a round.", min=2, max=200)] = 4,
    privacy: Annotated[int, typer.Option(metavar="T", help="Members of a circle.", min=2)] = 2,
    rounds: Annotated[
        int, typer.Option(help="Rounds that are watched; fewer than N tell too little.", min=2, max=MOST_TRIALS)
    ] = 40,
    period: Annotated[
        int, typer.Option(help="Of so many rounds, the attacker knows how often each client took part.", min=1)
    ] = 8,
    trials: Trials = 2,
    steps: Annotated[
        WindowSteps, typer.Option(help="In these rounds: small steps, so that updates hardly change; or ordinary ones.")
    ] = WindowSteps.SMALL,
    data: Annotated[str, typer.Option(metavar="NAME", help="The data set: digits comes along.")] = "digits",
    model: Annotated[str, typer.Option(metavar="NAME", help="The model; a wrong name lists all.")] = "mlp",
    data_dir: DataDir = None,
    before: Annotated[int, typer.Option(help="Rounds of training before sums are watched.", min=1)] = 60,
    seed: SeedOption = 0,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Find out who was in which sum, where the log is hidden, and take the sums apart with it.

    Hiding who takes part does not hide it: the sums of many rounds span a space in which clients' columns of the log
    are the vectors of zeros and ones. How often each client took part, which telemetry tells, is enough to find them.

    [dim]Example[/]
    coterie attack disaggregation --clients 12 --rounds 60 --html page.html
    """
    with train_extra():
        from coterie.attacks.disaggregation import Disaggregation

        attack = Disaggregation(
            clients=clients,
            cohort=cohort,
            privacy=privacy,
            rounds=rounds,
            period=period,
            trials=trials,
            steps=steps.value,
            data=data,
            model=model,
            data_dir=None if data_dir is None else str(data_dir),
            before=before,
            seed=seed,
        )
    show(attack, html, as_json)
