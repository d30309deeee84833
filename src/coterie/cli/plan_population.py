"""``coterie plan --population``: what multi-round privacy costs, shown."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console
    from rich.table import Table

    from coterie.planning.population import Choice, PopulationPlan

_COMPOSITIONS = {"any": "", "random": "random circles", "similar": "similar availability"}


def show_population(
    population: int,
    cohort: int,
    dropout: "Sequence[float]",
    privacy: int | None,
    survival: float,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Plan the rounds, draw the trade-off if asked to, and print the plan for people or for machines."""
    from rich.console import Console

    from coterie.errors import ConfigError
    from coterie.planning.population import draw_trade_off, plan_population

    shown = plan_population(population, cohort, dropout, privacy=privacy, survival=survival, seed=seed)
    if plot:
        every = shown if privacy is None else plan_population(population, cohort, dropout, seed=seed)
        try:
            draw_trade_off(every, plot)
        except OSError as error:
            raise ConfigError(f"cannot write {plot}: {error.strerror}") from None
    if as_json:
        typer.echo(json.dumps(shown.as_dict(), indent=2))
        return
    console = Console(highlight=False)
    levels = ", ".join(f"{level:.3g}" for level in dropout)
    evenly = ", evenly" if len(dropout) > 1 else ""
    console.print(f"\n[bold]{population:,} clients[/], cohorts of {cohort:,}, dropout {levels}{evenly}\n")
    if privacy is None:
        _show_choices(shown, console)
    else:
        _show_one(shown, console)
    if plot:
        console.print(f"The trade-off is drawn in [bold]{plot}[/].")


def _show_choices(plan: "PopulationPlan", console: "Console") -> None:
    from coterie.planning.population import RULE

    similar = plan.composed("similar")
    for choices in filter(None, (plan.main, similar)):
        console.print(_table(choices, plan))
    if best := plan.recommended:
        of_those = " Only some T are shown." if plan.selective else ""
        console.print(f"[bold green]→ T = {best.privacy}[/]: {RULE}.{of_those} See --privacy {best.privacy}.")
    else:
        console.print(
            f"[yellow]No T is recommended.[/] The rule is {RULE}. "
            "More clients, a smaller cohort or better availability leave more complete circles; a K that whole circles "
            "fill wastes less of it."
        )
    if similar:
        console.print(
            "Circles of similar availability are complete more often (C), but unreliable ones fall behind (F); and "
            "whoever controls several clients can steer them into one circle by how available they seem. The "
            "recommendation is for random circles."
        )
    console.print()
    console.print(*_legend(plan), sep="\n", style="dim")
    if best:
        console.print("\nSettings for [bold]coterie run[/]:\n", style="dim")
        settings = {"clients.count": plan.population, "cohort.size": plan.cohort, "cohort.privacy": best.privacy}
        lines = ['cohort.policy = "multi-round"', *(f"{key} = {value}" for key, value in settings.items())]
        console.print(*lines, sep="\n", markup=False)


def _table(choices: "Sequence[Choice]", plan: "PopulationPlan") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = _COMPOSITIONS[choices[0].composition].capitalize()
    table = Table(title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=0)
    for heading in ("T", "circles", "family", "C", "C/K", "skipped", "F", *(f"{mode}*" for mode in choices[0].gaps)):
        table.add_column(heading, justify="right", no_wrap=True)
    for choice in choices:
        row = choice.expected
        table.add_row(
            f"{row.privacy:,}",
            f" {row.chosen:,} of {row.circles:,}",
            f" {_humanise(row.family)}",
            f" {_number(row.cardinality)}{'†' if row.cohort_needed > plan.cohort else ''}",
            f" {row.convergence:.3f}",
            _percent(row.skipped),
            f" {row.fairness_gap:.3f}",
            *(f" {gap:.3f}" for gap in choice.gaps.values()),
            style="bold green" if row.recommended else "red" if row.privacy == 1 else "",
        )
    return table


def _legend(plan: "PopulationPlan") -> "Iterator[str]":
    yield (
        "T: clients that no number of rounds tells apart; 1 protects nobody. circles: in a cohort, of all. "
        "family: different cohorts. C: clients aggregated in a round on average, skipped rounds included. "
        "C/K: convergence factor. F: largest difference between two clients' participation rates, in the long "
        "run of uniform selection."
    )
    if plan.choices[0].gaps:
        yield f"* F after {plan.rounds:,} rounds: one simulated run of each mode of selection, seed {plan.seed}."
    else:
        yield "F of the fairness-aware modes has no closed form, and a population of this size is not simulated here."
    needed = {row.privacy: row.cohort_needed for choice in plan.main if (row := choice.expected)}
    if larger := [f"{cohort:,} (T = {level:,})" for level, cohort in needed.items() if cohort > plan.cohort]:
        yield f"† Some circles are larger than T. For one circle more in a cohort, K must be {', '.join(larger)}."


def _show_one(plan: "PopulationPlan", console: "Console") -> None:
    from rich.table import Table

    row = plan.choices[0].expected
    if row.privacy == 1:
        console.print("[bold red]T = 1 protects nobody:[/] every client is a circle of its own.\n")
    else:
        console.print(
            f"[bold]T = {row.privacy}[/]: in whatever the server computes from the sums of all rounds, every client "
            f"has the same weight as at least {row.privacy - 1} others.\n"
        )
    table = Table(box=None, show_header=len(plan.choices) > 1, padding=(0, 2, 0, 0))
    table.add_column("")
    for choice in plan.choices:
        table.add_column(_COMPOSITIONS[choice.composition])
    for lines in zip(*(_lines(choice, plan) for choice in plan.choices), strict=True):
        table.add_row(lines[0][0], *(value for _, value in lines))
    console.print(table)
    console.print(f"* simulated once, seed {plan.seed}\n" if plan.choices[0].gaps else "", style="dim")
    if plan.survival < 1:
        console.print(
            f"A selected client lasts the round with probability {plan.survival:g}, and a circle that loses one is "
            f"left out: [bold]{1 - 1 / row.over_selection:.1%}[/] of the cohort on average. Selecting "
            f"[bold]{row.over_selection:.2f}[/] times as many, {math.ceil(row.chosen * row.over_selection)} circles "
            f"instead of {row.chosen}, makes up for it.\n"
        )
    if row.cohort_needed > plan.cohort:
        console.print(f"Some circles are larger than T; K = {row.cohort_needed:,} would hold one circle more.\n")


def _lines(choice: "Choice", plan: "PopulationPlan") -> "Iterator[tuple[str, str]]":
    row = choice.expected
    more = " or more" if plan.population % row.privacy else ""
    yield "circles", f"{row.circles:,}, of {row.privacy:,}{more} clients"
    yield "in a cohort", f"{row.chosen:,} circles"
    yield "different cohorts", _humanise(row.family)
    yield "rounds skipped", _percent(row.skipped)
    yield "clients in a round, C", _number(row.cardinality)
    if plan.survival < 1:
        yield "  without those lost inside it", _number(row.aggregated)
    yield "convergence factor, C/K", f"{row.convergence:.4f}"
    yield "selection variance, β/(4E²G²)", f"{row.variance:.4f}"
    yield "fairness gap F, uniform, long run", f"{row.fairness_gap:.4f}"
    for mode, gap in choice.gaps.items():
        yield f"  after {plan.rounds:,} rounds, {mode}*", f"{gap:.4f}"


def _humanise(count: int) -> str:
    """Exactly up to a million, then as 1.05e16; floats end at 1e308 but families do not."""
    if count < 1_000_000:
        return f"{count:,}"
    exponent = math.floor(math.log10(count))
    return f"{10 ** (math.log10(count) - exponent):.2f}e{exponent}"


def _number(value: float) -> str:
    return f"{value:,.4g}" if value >= 0.001 else "< 0.001"


def _percent(share: float) -> str:
    return "< 0.1%" if share < 0.0005 else f"{share:.1%}"
