"""``coterie attack differencing``: sums of many rounds, taken apart into single updates."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.attack_show import DataDir, Html, SeedOption, Trials, show
from coterie.cli.common import train_extra
from coterie.cli.options import MOST_CLIENTS, MOST_TRIALS, AsJson


class WindowSteps(StrEnum):
    """How clients train while the server watches."""

    SMALL = "small"
    ORDINARY = "ordinary"


def differencing(
    clients: Annotated[int, typer.Option(help="N: how many clients there are.", min=2, max=MOST_CLIENTS)] = 40,
    cohort: Annotated[int, typer.Option(help="K: clients in a round.", min=2, max=MOST_CLIENTS)] = 8,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="How cohorts are chosen; may be repeated, and a wrong name lists all.",
            show_default="random, multi-round",
        ),
    ] = None,
    privacy: Annotated[
        list[int] | None,
        typer.Option(metavar="T", help="Members of a circle; may be repeated.", min=1, show_default="2, 4"),
    ] = None,
    rounds: Annotated[int, typer.Option(help="How many rounds the server watches.", min=1, max=MOST_TRIALS)] = 60,
    trials: Trials = 3,
    steps: Annotated[
        WindowSteps,
        typer.Option(
            help="In these rounds: small steps, as late in training, so that updates hardly change; or ordinary ones."
        ),
    ] = WindowSteps.SMALL,
    dropouts: Annotated[
        float,
        typer.Option(
            help="Probability that a client is lost inside a round; circles are then also tried without the rule that "
            "a broken circle is left out.",
            min=0,
            max=0.99,
        ),
    ] = 0.0,
    data: Annotated[str, typer.Option(metavar="NAME", help="The data set: digits comes along.")] = "digits",
    model: Annotated[str, typer.Option(metavar="NAME", help="The model; a wrong name lists all.")] = "mlp",
    data_dir: DataDir = None,
    examples: Annotated[int, typer.Option(help="Examples of a client; 0 is all there are.", min=0)] = 0,
    by_label: Annotated[
        bool, typer.Option("--by-label/--at-random", help="Whether clients have few labels each, or any.")
    ] = True,
    before: Annotated[int, typer.Option(help="Rounds of training before the server watches.", min=1)] = 100,
    learning_rate: Annotated[float, typer.Option(help="Of the clients, before and with ordinary steps.")] = 0.1,
    batch_size: Annotated[int, typer.Option(help="Examples in a step.", min=1)] = 20,
    seed: SeedOption = 0,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Attack a run that kept its sums (tracking.sums) instead of simulating one.",
            show_default=False,
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="LOG",
            help="Attack saved sums instead, with this log of who was in them: any that coterie audit reads.",
            show_default=False,
        ),
    ] = None,
    sums: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz",
            help="With --ledger: the mean update of each round, an array named like the round; or a folder of .npy.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz",
            help="With --run or --ledger: write all clients' estimates: arrays clients, updates (in rows), and "
            "determined, true where the sums leave no choice.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        float, typer.Option(metavar="MB", min=0, help="With --sums: refuse sums that take more than this, unpacked.")
    ] = 2000,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Take the sums of many rounds apart into single clients' updates, by least squares.

    Secure aggregation hides updates in one round's sum. The server sees a sum every round, and who is in it: as soon as
    there are about as many rounds as clients, random cohorts give every update away, if updates hardly change. Cohorts
    made of fixed circles never do.

    [dim]Examples[/]
    coterie attack differencing --html page.html
    coterie attack differencing --steps ordinary --rounds 300
    coterie attack differencing --dropouts 0.05
    coterie run --set tracking.sums=true --out runs/mine; coterie attack differencing --run runs/mine
    """
    if (sums is None) != (ledger is None) or (run is not None and ledger is not None):
        raise typer.BadParameter("give either --run, or --ledger and --sums together, or none of them")
    if out is not None and run is None and ledger is None:
        raise typer.BadParameter("--out is for updates taken out of saved sums: it needs --run, or --ledger and --sums")
    with train_extra():
        if run is not None or ledger is not None:
            from coterie.attacks.saved_sums.measure import RecordedDifferencing, kept_by
            from coterie.cohorts.log_size import MEGABYTE

            source = kept_by(run) if run is not None else (str(ledger), str(sums))
            written = None if out is None else str(out)
            show(RecordedDifferencing(*source, out=written, limit=int(limit * MEGABYTE)), html, as_json)
            return
        from coterie.attacks.differencing.measure import Differencing

        attack = Differencing(
            clients=clients,
            cohort=cohort,
            policies=tuple(policy or ("random", "multi-round")),
            privacy=tuple(privacy or (2, 4)),
            rounds=rounds,
            trials=trials,
            steps=steps.value,
            dropouts=dropouts,
            data=data,
            model=model,
            data_dir=None if data_dir is None else str(data_dir),
            examples=examples,
            by_label=by_label,
            before=before,
            learning_rate=learning_rate,
            batch_size=batch_size,
            seed=seed,
        )
    show(attack, html, as_json)
