"""``coterie bench training``: what secure aggregation adds to rounds of training."""

import os
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coterie.bench.training import Scenario, TrainingCosts


class Network(StrEnum):
    """What is trained."""

    LENET = "lenet"
    MNIST_CNN = "mnist-cnn"


def training(
    model: Annotated[
        Network, typer.Option(help="LeNet on inputs like CIFAR-10's, or the CNN of McMahan et al. on MNIST's.")
    ] = Network.LENET,
    rounds: Annotated[int, typer.Option(help="Rounds to time, each with and without protection.")] = 10,
    workers: Annotated[
        int | None, typer.Option(help="Processes that train; with 0, this one does.", show_default="one for each core")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON and nothing else.")] = False,
) -> None:
    """Compare rounds under secure aggregation with plain ones, in turns, in one run.

    120 clients of whom 12 train in a round, on random examples. Evaluation is left out. Both sides must arrive at the
    same model, up to rounding, before any number is shown.
    """
    from coterie.cli.bench import _print_json, _progress
    from coterie.cli.run import _train_extra

    with _train_extra():
        from coterie.bench.training import SCENARIOS, measure_training
    from coterie.errors import ConfigError

    scenario = SCENARIOS[model.value]
    count = os.cpu_count() or 1 if workers is None else workers
    try:
        # Where a run would keep its files: directories for temporary ones may be in memory, and the ledger too fast.
        scratch = TemporaryDirectory(prefix=".coterie-bench-", dir=".")
    except OSError as error:
        raise ConfigError(f"cannot write to the current directory: {error.strerror}") from None
    with scratch, _progress(as_json) as progress:
        task = progress.add_task(f"{model.value}, secure and plain", total=rounds + 1)
        costs = measure_training(
            scenario, rounds, count, Path(scratch.name), lambda pairs: progress.update(task, completed=pairs)
        )
    if as_json:
        _print_json(_record(scenario, costs))
    else:
        _show(scenario, costs)


def _record(scenario: "Scenario", costs: "TrainingCosts") -> dict[str, Any]:
    from coterie.bench.training import rounds_per_minute, typical

    sides = {"secure": costs.secure, "plain": costs.plain}
    return {
        "parameters": {
            **asdict(scenario),
            "examples": "random",
            "model_parameters": costs.parameters,
            "workers": costs.workers,
            "rounds": len(costs.secure),
        },
        "overhead": costs.overhead,
        **{
            kind: {
                "rounds_per_minute": rounds_per_minute(side),
                "median": asdict(typical(side)),
                "rounds": [asdict(cost) for cost in side],
            }
            for kind, side in sides.items()
        },
    }


def _show(scenario: "Scenario", costs: "TrainingCosts") -> None:
    from rich.table import Table

    from coterie.bench.training import rounds_per_minute, typical
    from coterie.cli.bench import _console, _size, _time

    table = Table("", title="Medians over the rounds", title_justify="left", title_style="dim")
    for heading in ("plain", "secure"):
        table.add_column(heading, justify="right")
    sides = [typical(side) for side in (costs.plain, costs.secure)]
    table.add_row("waiting for training", *(_time(1e3 * side.train_seconds) for side in sides))
    table.add_row("protecting, beyond that", "", _time(1e3 * sides[1].protect_seconds))
    table.add_row("a round", *(_time(1e3 * side.seconds) for side in sides), end_section=True)
    speeds = (rounds_per_minute(side) for side in (costs.plain, costs.secure))
    table.add_row("rounds per minute", *(f"{speed:,.1f}" for speed in speeds), end_section=True)
    table.add_row("all clients upload", *(_size(side.upload_bytes) for side in sides))
    table.add_row("and download, besides the model", *(_size(side.download_bytes) for side in sides))

    console = _console()
    console.print(
        f"[bold]{scenario.model}, {costs.parameters:,} parameters[/bold]: {scenario.cohort} of {scenario.clients} "
        f"clients train in a round, each on {scenario.samples} random examples in batches of {scenario.batch_size}; "
        f"{_workers(costs.workers)}."
    )
    console.print(table)
    pairs = len(costs.secure)
    console.print(
        f"[bold]A secure round takes {costs.overhead:.3f}x the time of a plain one[/bold] (median over {pairs} "
        f"pair{'s' * (pairs > 1)} of rounds, played in turns). Both learn the same, up to rounding."
    )
    console.print("Wall-clock time, without evaluation and checkpoints.", style="dim")


def _workers(count: int) -> str:
    return f"{count} worker process{'es' * (count > 1)}" if count else "no worker processes"
