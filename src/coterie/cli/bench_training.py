"""``coterie bench training``: what secure aggregation adds to rounds of training, and how other systems compare."""

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from coterie.bench.settings import TrainingSettings
from coterie.cli.common import AsJson, new_console, print_json, progress_bars, train_extra
from coterie.cli.derive import with_options
from coterie.host import cores
from coterie.reports.words import count, duration, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.bench.rivals.compare import RivalCosts
    from coterie.bench.training import Scenario, TrainingCosts


@with_options
def training(settings: TrainingSettings, as_json: AsJson = False) -> None:
    """Time rounds of training, and print the costs."""
    with train_extra():
        from coterie.bench.arithmetic_limit import matrix_product_ratio
        from coterie.bench.rivals.compare import SYSTEMS, measure_rivals
        from coterie.bench.training import SCENARIOS
    from coterie.errors import ConfigError

    scenario, rounds, names = SCENARIOS[settings.model], settings.rounds, list(map(str, settings.against))
    workers = cores() if settings.workers is None else settings.workers
    try:
        # In the current folder: a temporary directory may be in memory, where a ledger is unrealistically fast.
        scratch = TemporaryDirectory(prefix=".coterie-bench-", dir=".")
    except OSError as error:
        raise ConfigError(f"cannot write to the current directory: {error.strerror}") from None
    with scratch, progress_bars(as_json) as progress:
        sides = ["secure", "plain", *(SYSTEMS[name].title for name in names)]
        task = progress.add_task(f"{settings.model}: {', '.join(sides)}", total=rounds + 1)
        costs, rivals = measure_rivals(
            scenario, rounds, workers, Path(scratch.name), names, lambda played: progress.update(task, completed=played)
        )
    arithmetic = matrix_product_ratio(scenario)
    if as_json:
        print_json(_record(scenario, costs, rivals, arithmetic))
    else:
        _show(scenario, costs, rivals, arithmetic)


def _record(
    scenario: "Scenario", costs: "TrainingCosts", rivals: "Mapping[str, RivalCosts]", arithmetic: float
) -> dict[str, Any]:
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
        "memory_seconds": costs.memory_seconds,
        "memory_share": costs.memory_share,
        "headroom": costs.headroom,
        "matrix_product_ratio": arithmetic,
        **{
            kind: {
                "rounds_per_minute": rounds_per_minute(side),
                "median": asdict(typical(side)),
                "rounds": [asdict(cost) for cost in side],
            }
            for kind, side in sides.items()
        },
        "rivals": {
            name: {
                "release": rival.system.release,
                "rounds_per_minute": rival.rounds_per_minute,
                "seconds": rival.seconds,
                "model_deviation": rival.error,
                "slowdown": {kind: rival.slowdown(side) for kind, side in sides.items()},
            }
            for name, rival in rivals.items()
        },
    }


def _show(scenario: "Scenario", costs: "TrainingCosts", rivals: "Mapping[str, RivalCosts]", arithmetic: float) -> None:
    from rich.table import Table

    from coterie.bench.training import rounds_per_minute, typical

    table = Table("", title="Medians over the rounds", title_justify="left", title_style="dim")
    others = [f"{rival.system.title} {rival.system.release}" for rival in rivals.values()]
    for heading in ("plain", "secure", *others):
        table.add_column(heading, justify="right")
    sides = [typical(side) for side in (costs.plain, costs.secure)]
    table.add_row("waiting for training", *(duration(side.train_seconds) for side in sides))
    table.add_row("protecting, beyond that", "", duration(sides[1].protect_seconds))
    lengths = [*(side.seconds for side in sides), *(60 / rival.rounds_per_minute for rival in rivals.values())]
    table.add_row("a round", *map(duration, lengths), end_section=True)
    speeds = [rounds_per_minute(side) for side in (costs.plain, costs.secure)]
    speeds += [rival.rounds_per_minute for rival in rivals.values()]
    table.add_row("rounds per minute", *(f"{speed:,.1f}" for speed in speeds), end_section=True)
    table.add_row("all clients upload", *(size(side.upload_bytes) for side in sides))
    table.add_row("and download, besides the model", *(size(side.download_bytes) for side in sides))

    console = new_console()
    console.print(
        f"[bold]{scenario.model}, {costs.parameters:,} parameters[/bold]: {scenario.cohort} of {scenario.clients} "
        f"clients train in a round, each on {scenario.samples} random examples in batches of {scenario.batch_size}; "
        f"{count(costs.workers, 'worker process', 'worker processes') if costs.workers else 'no worker processes'}."
    )
    console.print(table)
    console.print(
        f"[bold]A secure round takes {costs.overhead:.3f}x the time of a plain one[/bold] (median over "
        f"{count(len(costs.secure), 'pair')} of rounds, played in turns). Both learn the same, up to rounding."
    )
    console.print(
        f"[bold]The clients' memories are {costs.memory_share:.1%} of a secure round[/bold], "
        f"{duration(costs.memory_seconds)}: the sessions they entered, and the sums they helped to reveal."
    )
    for title, rival in zip(others, rivals.values(), strict=True):
        console.print(
            f"[bold]A round of {title} takes {rival.slowdown(costs.plain):.2f}x the time of our plain one, "
            f"{rival.slowdown(costs.secure):.2f}x that of our secure one[/bold] (medians over rounds in turns). "
            f"It aggregates plainly. Its first model equals ours up to {rival.error:.1g}."
        )
    console.print(
        f"[bold]A system in which torch computes the same gradients is at most {costs.headroom:.2f}x as fast as our "
        f"plain rounds[/bold], with workers that do nothing else. Torch takes {arithmetic:.1f}x as long for them as "
        "for as many operations in a matrix product."
    )
    console.print("Wall-clock time, without evaluation, checkpoints and starting up.", style="dim")
