"""``coterie plan --population``: print what multi-round privacy costs."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli.common import new_console, print_json
from coterie.reports.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Unpack

    from rich.console import Console
    from rich.table import Table

    from coterie.cohorts.theory import TradeOff
    from coterie.planning.population import Choice, PopulationOptions, PopulationPlan

_COMPOSITIONS = {"any": "", "random": "random circles", "similar": "similar availability"}
_WIDE = 110  # smallest width of a terminal for the columns of families and simulated gaps
_WIDEST = 130  # and for the column of the cost in rounds as well
_MUCH = 0.9  # share of the cohort; if fewer are aggregated, advice is printed


def show_population(
    population: int,
    cohort: int,
    absent: "Sequence[float]",
    *,
    seed: int,
    plot: Path | None,
    as_json: bool,
    **options: "Unpack[PopulationOptions]",
) -> None:
    """Plan the rounds, draw the trade-off if requested, and print the plan as text or JSON."""
    from rich.markup import escape

    from coterie.planning.population import draw_trade_off, plan_population

    shown = plan_population(population, cohort, absent, **options, seed=seed)
    chosen = options.pop("privacy", None) is not None
    if plot:
        draw_trade_off(plan_population(population, cohort, absent, **options, seed=seed) if chosen else shown, plot)
    if as_json:
        print_json(shown.as_dict())
        return
    console = new_console()
    _show_head(shown, console)
    if chosen:
        _show_one(shown, console)
    else:
        _show_choices(shown, console)
    if plot:
        console.print(f"The trade-off is drawn in [bold]{escape(str(plot))}[/].", soft_wrap=True)


def _show_head(plan: "PopulationPlan", console: "Console") -> None:
    levels = ", ".join(f"{level:.3g}" for level in plan.absent)
    evenly = ", evenly," if len(plan.absent) > 1 else ""
    more = ", over-selecting" if plan.over_select else ""
    console.print(
        f"\n[bold]{plan.population:,} clients[/], cohorts of K = {plan.cohort:,}{more}; absent when a round begins: "
        f"{levels}{evenly}; lost in the round: {plan.lost:.3g}"
    )
    if plan.collusion or plan.active:
        against = "a malicious" if plan.active else "an honest-but-curious"
        console.print(f"Against {against} server and c = {plan.colluders:,} colluders: {plan.colluders_reason}.")
    console.print()


def _show_choices(plan: "PopulationPlan", console: "Console") -> None:
    from coterie.planning.population import RULE

    similar = plan.choices_of("similar")
    for choices in filter(None, (plan.main, similar)):
        console.print(_table(choices, plan, wide=console.width >= _WIDE, widest=console.width >= _WIDEST))
    best = plan.recommended
    if best:
        of_those = " Only some T are shown." if plan.selective else ""
        console.print(
            f"[bold green]→ T = {best.privacy}[/], which aggregates {_number(best.aggregated)} of {plan.cohort:,} "
            f"clients in a round on average. The rule: {RULE}.{of_those} See --privacy {best.privacy}."
        )
        if best.convergence < _MUCH and not plan.over_select:
            console.print(_advice(best))
        console.print(_training_cost(plan, best))
    else:
        console.print(f"[yellow]No T is recommended.[/] The rule: {RULE}. {_reason(plan)}")
    if similar:
        console.print(
            "Circles of similar availability are complete more often, but unreliable ones fall behind (F); and "
            "an attacker who controls several clients can steer them into one circle by their availability. The "
            "recommendation is for random circles."
        )
    _show_needs(plan, console)
    console.print(_promises(plan))
    console.print()
    console.print(*_legend(plan, console), sep="\n", style="dim")
    if best:
        console.print("\nSettings for [bold]coterie run[/]:\n", style="dim")
        console.print(*_settings(plan, best), sep="\n", markup=False)


def _show_needs(plan: "PopulationPlan", console: "Console") -> None:
    """Print what a session needs for a result, and whether one session can hold a round."""
    for note in plan.notes:
        console.print(f"[yellow]{note}[/]")
    if plan.needs is None:
        return
    clients, summed, quorum = plan.needs
    graph = promise = ""
    if session := plan.session:
        graph = f" {session.graph_title}, threshold {session.guarantee.threshold:,}."
        promise = f" {session.promise}"
    needed = f"every sum needs at least c + 2 = {summed:,} clients" if plan.colluders else "every sum needs 2 clients"
    if summed > clients:
        needed += ", more than there are: no round has a result"
    else:
        needed += f", and {quorum:,} clients must confirm who survived. A round with fewer has no result"
    console.print(f"Sessions of {clients:,}:{graph} {needed[0].upper()}{needed[1:]}.{promise}")


def _promises(plan: "PopulationPlan") -> str:
    """Return the T that each policy of ``coterie run`` guarantees."""
    promised = plan.promised
    keeping = ", ".join(f"{name} T = {privacy:,}" for name, privacy in promised.items() if privacy > 1)
    others = ", ".join(name for name, privacy in promised.items() if privacy == 1)
    return (
        f"What each policy (cohort.policy) promises here over any number of rounds: {keeping or 'none keeps circles'}; "
        f"nothing (T = 1): {others or 'none'}."
    )


def _settings(plan: "PopulationPlan", best: "TradeOff") -> "Iterator[str]":
    """Return the part of a configuration that runs this plan, with simulated absence and loss."""
    from coterie.graphs.failures import part_of
    from coterie.graphs.table import topology_name
    from coterie.planning.collusion import share_of

    yield 'cohort.policy = "multi-round"'
    yield f"clients.count = {plan.population}"
    yield f"cohort.size = {plan.cohort}"
    yield f"cohort.privacy = {best.privacy}"
    if plan.over_select:
        yield f"cohort.survival = {1 - plan.lost:g}"
    if session := plan.session:
        yield 'aggregation.threat = "active-server"'
        yield f'aggregation.topology = "{topology_name(session.guarantee.topology)}"'
    if plan.collusion:
        yield f"aggregation.collusion = {share_of(part_of(plan.collusion, plan.population), plan.population)}"


def _advice(best: "TradeOff") -> str:
    """Return why so few clients are aggregated, and what would help."""
    whole = 1 / best.over_selection
    if whole < _MUCH:
        return (
            f"A circle of {best.privacy} loses no client in {whole:.0%} of the rounds. --over-select adds circles "
            "to make up for the others."
        )
    return (
        "More clients, or fewer absent ones, leave more complete circles. A K that is a multiple of the circle size "
        "leaves fewer places empty."
    )


def _training_cost(plan: "PopulationPlan", best: "TradeOff") -> str:
    """Return what the recommended T costs in rounds of training, and which smaller T would cost less."""
    rows = {choice.expected.privacy: choice for choice in plan.main}
    half = rows[best.privacy].slowdown.most / 2
    cheaper = [one for one in rows.values() if one.expected.protects and one.slowdown.most <= half]
    other = f" T = {cheaper[-1].expected.privacy}: {_times(cheaper[-1])}." if cheaper else ""
    return (
        f"What T = {best.privacy} costs in training: {_times(rows[best.privacy])} the rounds of T = 1 for the same "
        "convergence bound: the least if the noise of gradients dominates it, the most if clients differ much and the "
        f"members of a circle are alike.{other}"
    )


def _times(choice: "Choice") -> str:
    """Write how many times as many rounds a T takes."""
    least, most = choice.slowdown
    if f"{least:.2f}" == f"{most:.2f}":
        return f"{least:.2f} times"
    return f"{least:.2f} to {most:.2f} times" if math.isfinite(most) else f"at least {least:.2f} times"


def _reason(plan: "PopulationPlan") -> str:
    rows = [choice.expected for choice in plan.main]
    if not any(row.protects for row in rows):
        return (
            "No circle that fits into the cohort leaves two honest members. What would help: a larger cohort, fewer "
            "colluders, or, where circles are drawn at random, fewer --privacy-bits."
        )
    best = max((row for row in rows if row.protects), key=lambda row: row.aggregated)
    return f"The best, T = {best.privacy}, aggregates {_number(best.aggregated)} of {plan.cohort:,}. {_advice(best)}"


def _table(choices: "Sequence[Choice]", plan: "PopulationPlan", *, wide: bool, widest: bool) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = _COMPOSITIONS[choices[0].composition].capitalize()
    table = Table(title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=0)
    honest = ["T-c"] if plan.collusion else []
    modes = list(choices[0].gaps) if wide else []
    headings = ["T", *honest, "circles", "selected", "aggregated", "of K", "skipped", "β", "F"]
    for heading in (
        *headings,
        *(f"{mode}*" for mode in modes),
        *(["family"] if wide else []),
        *(["rounds"] if widest else []),
    ):
        table.add_column(f" {heading}", justify="right", no_wrap=True)
    for choice in choices:
        row = choice.expected
        table.add_row(
            f"{row.privacy:,}",
            *([f" {row.honest:,}"] if honest else []),
            f" {row.selected:,} of {row.circles:,}",
            f" {_number(row.cardinality)}{'†' if row.cohort_needed > plan.cohort else ''}",
            f" {_number(row.aggregated)}",
            f" {row.convergence:.3f}",
            f" {_percent(row.skipped)}",
            f" {row.variance:.3f}",
            f" {row.fairness_gap:.3f}",
            *(f" {choice.gaps[mode]:.3f}" for mode in modes),
            *([f" {_humanise(row.family)}"] if wide else []),
            *([f" {choice.slowdown.most:.3g}x"] if widest else []),
            style="bold green" if row.recommended else "" if row.protects else "red",
        )
    return table


def _legend(plan: "PopulationPlan", console: "Console") -> "Iterator[str]":
    honest = "T-c: honest ones among them, of a circle with all its colluders; 1 or fewer is not protected. "
    yield (
        "T: clients that are summed together or not at all, in any number of rounds; T = 1 protects no client. "
        f"{honest if plan.collusion else ''}"
        "circles: selected for a round, of all. selected (C): clients selected in a round on average, skipped rounds "
        "included. aggregated: the rest, after leaving out circles that lost a member in the round"
        f"{', rounds that end without a result included' if plan.active else ''}. of K: that as a share of the cohort."
    )
    first = next(iter(plan.main)).expected
    alone = f", {first.variance:.3f} for T = 1" if first.privacy == 1 else ""
    yield (
        "What T costs in training: rounds count only in proportion to 'of K', and the steps between them are noisier. "
        f"β is that noise in the convergence bound, in units of 4E²G²{alone}: few whole circles stand for all clients, "
        "so it grows with T."
    )
    yield "F: largest difference between two clients' participation rates, in the long run of uniform selection."
    if plan.choices[0].gaps and console.width >= _WIDE:
        yield f"* F after {plan.rounds:,} rounds: one simulated run of each mode of selection, seed {plan.seed}."
    elif plan.choices[0].gaps:
        yield "A terminal of 110 columns, --privacy T or --json also show F of each mode of selection, simulated."
    else:
        yield "F of the fairness-aware modes has no closed form, and a population of this size is not simulated here."
    if console.width >= _WIDE:
        yield "family: different cohorts."
    if console.width >= _WIDEST:
        yield "rounds: the most rounds for the convergence bound that T = 1 reaches, as a multiple of those of T = 1."
    needed = {row.privacy: row.cohort_needed for choice in plan.main if (row := choice.expected)}
    if larger := [f"{cohort:,} (T = {level:,})" for level, cohort in needed.items() if cohort > plan.cohort]:
        yield f"† Some circles are larger than T. For one circle more in a cohort, K must be {', '.join(larger)}."


def _show_one(plan: "PopulationPlan", console: "Console") -> None:
    from rich.table import Table

    row = plan.choices[0].expected
    if row.privacy == 1:
        console.print("[bold red]T = 1 protects no client:[/] every client is a circle of its own.\n")
    else:
        console.print(
            f"[bold]T = {row.privacy}[/]: in every combination of the sums of all rounds, every client "
            f"has the same weight as at least {count(row.privacy - 1, 'other')}.\n"
        )
        if row.colluders:
            style = "bold" if row.protects else "bold red"
            console.print(
                f"A circle may have {count(row.colluders, 'colluder')}, who know their own updates. Honest members "
                f"left: [{style}]T - c = {row.honest:,}[/].\n"
            )
    table = Table(box=None, show_header=len(plan.choices) > 1, padding=(0, 2, 0, 0))
    table.add_column("")
    for choice in plan.choices:
        table.add_column(_COMPOSITIONS[choice.composition])
    for lines in zip(*(_lines(choice, plan) for choice in plan.choices), strict=True):
        table.add_row(lines[0][0], *(value for _, value in lines))
    console.print(table)
    console.print(f"* simulated once, seed {plan.seed}\n" if plan.choices[0].gaps else "", style="dim")
    if plan.lost and not plan.over_select:
        console.print(
            f"A selected client is lost in the round with probability {plan.lost:g}, and a circle that loses one is "
            f"left out: [bold]{1 - 1 / row.over_selection:.1%}[/] of the cohort on average. --over-select makes up for "
            f"it by selecting [bold]{row.over_selection:.2f}[/] times as many clients, if enough circles are "
            "complete.\n"
        )
    _show_needs(plan, console)
    if row.cohort_needed > plan.cohort:
        console.print(f"Some circles are larger than T; K = {row.cohort_needed:,} would hold one circle more.\n")
    console.print(_promises(plan))


def _lines(choice: "Choice", plan: "PopulationPlan") -> "Iterator[tuple[str, str]]":
    row = choice.expected
    more = " or more" if plan.population % row.privacy else ""
    yield "circles", f"{row.circles:,}, of {row.privacy:,}{more} clients"
    yield "in a cohort", count(row.chosen, "circle")
    if plan.over_select:
        yield "selected, to make up for loss", f"{count(row.selected, 'circle')}, up to {row.most_clients:,} clients"
    yield "different cohorts", _humanise(row.family)
    yield "rounds skipped", _percent(row.skipped)
    yield "clients selected in a round, C", _number(row.cardinality)
    yield "clients aggregated in a round", _number(row.aggregated)
    yield "  as a share of the cohort K", f"{row.convergence:.4f}"
    yield "selection variance, β/(4E²G²)", f"{row.variance:.4f}"
    yield "rounds for the bound of T = 1", _times(choice)
    yield "fairness gap F, uniform, long run", f"{row.fairness_gap:.4f}"
    for mode, gap in choice.gaps.items():
        yield f"  after {plan.rounds:,} rounds, {mode}*", f"{gap:.4f}"


def _humanise(number: int) -> str:
    """Write a number exactly up to a million, then as 1.05e16; the number may be too large for a float."""
    if number < 1_000_000:
        return f"{number:,}"
    exponent = math.floor(math.log10(number))
    return f"{10 ** (math.log10(number) - exponent):.2f}e{exponent}"


def _number(value: float) -> str:
    if value >= 10_000:
        return f"{value:,.0f}"
    return f"{value:,.4g}" if value >= 0.001 or value == 0 else "< 0.001"


def _percent(share: float) -> str:
    return "< 0.1%" if share < 0.0005 else f"{share:.1%}"
