"""``coterie attack active-membership``: participants that climb the loss of records to learn who trains on them."""

from typing import Annotated

import typer

from coterie.cli.attack_show import DataDir, Html, SeedOption, Trials, show
from coterie.cli.options import AsJson


def active_membership(
    data: Annotated[
        str, typer.Option(metavar="NAME", help="digits, location30, mnist, cifar10-features, energy, pjm, or another.")
    ] = "digits",
    data_dir: DataDir = None,
    participants: Annotated[int, typer.Option(help="Honest participants.", min=2, max=10_000)] = 8,
    malicious: Annotated[int, typer.Option(help="Malicious ones, who collude.", min=1, max=10_000)] = 2,
    examples: Annotated[
        int | None, typer.Option(help="Examples of everybody, and targets of each attacker.", min=2)
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(help="What attackers multiply their gradient by; tuned on FedAvg if not given, 0 only watches."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Attack once the attackers' models get this share of targets right, or explain it of their variance."
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of the attack.", min=1)] = None,
    step: Annotated[float | None, typer.Option(help="Step along the mean gradient, of all methods.")] = None,
    spread: Annotated[float, typer.Option("--lambda", help="Deviation of every model's start.")] = 0.1,
    check: Annotated[
        str, typer.Option(metavar="RULE", help="The loss check: increase, or history as in the paper's code.")
    ] = "increase",
    train_on_targets: Annotated[
        bool,
        typer.Option(
            "--train-on-targets", help="Train on the targets before attacking, as the paper does; spoils the measure."
        ),
    ] = False,
    trials: Trials = 5,
    seed: SeedOption = 0,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Let malicious participants climb the loss of records, and see whose loss the honest ones bring down again.

    FedAvg, Ditto and confined descent, without its loss check and with it, are attacked in the same way: the same
    strength, tuned on FedAvg, the same records, rounds and steps. Shown are how often attackers are right about who is
    a member, by the rule of the paper and at every threshold, what the attack leaves of honest participants' models,
    and how much of the poison the loss check refuses.
    """
    from coterie.attacks.active_membership import ActiveMembership

    attack = ActiveMembership.on(
        data,
        data_dir=None if data_dir is None else str(data_dir),
        participants=participants,
        malicious=malicious,
        examples=examples,
        strength=strength,
        threshold=threshold,
        rounds=rounds,
        step=step,
        spread=spread,
        check=check,
        train_on_targets=train_on_targets,
        trials=trials,
        seed=seed,
    )
    show(attack, html, as_json)
