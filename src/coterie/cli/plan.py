"""``coterie plan``: parameters, bounds and costs before anything is run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.plan_population import show_population

if TYPE_CHECKING:
    from coterie.planning.session import Costs, Plan


SESSION, ROUNDS = "One session", "Many rounds"


def plan(
    context: typer.Context,
    dropout: Annotated[
        str,
        typer.Option(
            metavar="P",
            help="Fraction of clients that drop out; with --population also levels spread evenly, as 0.1,0.3.",
        ),
    ],
    clients: Annotated[int | None, typer.Option(help="Clients in a session.", min=3, rich_help_panel=SESSION)] = None,
    collusion: Annotated[
        float | None,
        typer.Option(
            help="Fraction of clients that collude with the server (0 if not given; just under 1/3 with --active).",
            rich_help_panel=SESSION,
        ),
    ] = None,
    topology: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Who shares with whom: auto is the cheapest; a wrong name lists all.",
            rich_help_panel=SESSION,
        ),
    ] = "auto",
    privacy_bits: Annotated[
        float | None,
        typer.Option(
            help="Probability of a privacy failure at most 2^-BITS (40 if not given).", rich_help_panel=SESSION
        ),
    ] = None,
    reliability_bits: Annotated[
        float | None,
        typer.Option(
            help="Probability of a failed session at most 2^-BITS (20 if not given).", rich_help_panel=SESSION
        ),
    ] = None,
    active: Annotated[bool, typer.Option(help="Plan against a server that lies.", rich_help_panel=SESSION)] = False,
    length: Annotated[
        int, typer.Option(help="Numbers in each client's vector.", min=1, rich_help_panel=SESSION)
    ] = 100_000,
    precision: Annotated[
        int, typer.Option(help="Bits for each number before aggregation.", rich_help_panel=SESSION)
    ] = 16,
    population: Annotated[
        int | None, typer.Option(help="Clients to choose from in every round.", min=1, rich_help_panel=ROUNDS)
    ] = None,
    cohort: Annotated[
        int | None, typer.Option(help="Clients in a round, at most.", min=1, rich_help_panel=ROUNDS)
    ] = None,
    privacy: Annotated[
        int | None, typer.Option(metavar="T", help="Look closely at this T only.", min=1, rich_help_panel=ROUNDS)
    ] = None,
    survival: Annotated[
        float, typer.Option(help="Probability that a selected client lasts the round.", rich_help_panel=ROUNDS)
    ] = 1.0,
    seed: Annotated[
        int, typer.Option(help="Draws random circles and the simulated rounds.", min=0, rich_help_panel=ROUNDS)
    ] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw C against T into this PNG file.", rich_help_panel=ROUNDS)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Plan one session from a threat model (--clients), or who takes part over many rounds (--population).

    A session: topology, degree and threshold, with the proven bounds and the costs. Without failure targets,
    [bold]--topology erdos-renyi[/] takes the rule of the CCESA paper.

    Many rounds: what every multi-round privacy T costs, and which T to take.

    [dim]Examples:[/] coterie plan --clients 1000 --dropout 0.1 --collusion 0.05

    coterie plan --population 120 --cohort 12 --dropout 0.2
    """
    from coterie.errors import ConfigError

    if (clients is None) == (population is None):
        raise ConfigError("give either --clients, to plan one session, or --population, to plan many rounds")
    other, panel = ("--population", ROUNDS) if population is None else ("--clients", SESSION)
    if foreign := _given(context, panel):
        raise ConfigError(f"{', '.join(foreign)} can only be given with {other}")
    levels = _levels(dropout)
    if population is not None:
        if cohort is None:
            raise ConfigError("--population needs --cohort, the number of clients in a round")
        show_population(population, cohort, levels, privacy, survival, seed, plot, as_json)
    elif clients is not None:
        if len(levels) > 1:
            raise ConfigError("a session has one --dropout; several levels can only be given with --population")

        from coterie.planning.session import recommend

        found = recommend(
            clients,
            levels[0],
            collusion=collusion,
            topology=topology,
            privacy_bits=privacy_bits,
            reliability_bits=reliability_bits,
            active=active,
            length=length,
            precision=precision,
        )
        if as_json:
            typer.echo(json.dumps(_as_dict(found), indent=2))
        else:
            _show(found)


def _given(context: typer.Context, panel: str) -> list[str]:
    """The options of one panel that the user typed, whatever their values."""
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if getattr(parameter, "rich_help_panel", None) == panel
        and parameter.name is not None
        and getattr(context.get_parameter_source(parameter.name), "name", "DEFAULT") != "DEFAULT"
    ]


def _levels(dropout: str) -> list[float]:
    from coterie.errors import ConfigError

    try:
        return [float(level) for level in dropout.split(",")]
    except ValueError:
        raise ConfigError(f"--dropout is a fraction such as 0.1, or several as 0.1,0.2,0.3; not {dropout!r}") from None


def _as_dict(found: "Plan") -> dict[str, Any]:
    """The plan as JSON."""
    from dataclasses import asdict

    import msgspec

    guarantee = found.guarantee
    return {
        "clients": found.clients,
        "dropout": found.dropout,
        "collusion": found.collusion,
        "active_server": found.active,
        "colluders": found.colluders,
        "quorum": found.quorum,
        "topology": msgspec.to_builtins(guarantee.topology)["type"],
        "connection_probability": found.connection_probability,
        "degree": guarantee.degree,
        "threshold": guarantee.threshold,
        "privacy_failure_log2": _finite(guarantee.privacy_failure_log2),
        "reliability_failure_log2": _finite(guarantee.reliability_failure_log2),
        "bits": found.bits,
        "length": found.length,
        **asdict(found.costs),
        "complete": asdict(found.complete),
        "prices": [
            asdict(price)
            | {"failed_rounds": {f"{leaving:g}": chance for leaving, chance in price.failed_rounds.items()}}
            for price in found.prices
        ],
        "notes": list(found.notes),
    }


def _finite(log2: float) -> float:
    """JSON knows no infinity: what cannot happen gets the exponent of the smallest positive float64."""
    return max(log2, -1074.0)


def _show(found: "Plan") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    guarantee, costs = found.guarantee, found.costs
    name = type(guarantee.topology).__name__
    titles = {"Complete": "complete graph", "ErdosRenyi": "Erdős-Rényi graph", "Harary": "Harary graph"}
    against = "lying" if found.active else "curious"
    console.print(
        f"\n[bold]{found.clients} clients[/], {found.dropout:.1%} drop out, "
        f"{found.colluders:,} collude with a {against} server"
    )
    signing = f", [bold]{found.quorum}[/] clients must confirm who survived" if found.quorum else ""
    console.print(
        f"[bold green]→ {titles[name]}[/], {_neighbourhood(found)}, threshold [bold]{guarantee.threshold}[/]{signing}\n"
    )
    bounds = Table(box=None, show_header=False, padding=(0, 2))
    bounds.add_row("a partial sum or an input leaks", _probability(guarantee.privacy_failure_log2))
    bounds.add_row("the session fails", _probability(guarantee.reliability_failure_log2))
    console.print(bounds)
    console.print()
    console.print(_cost_table(costs, found.complete, found))
    if found.active:
        console.print(_price_table(found))
    for note in found.notes:
        console.print(f"[yellow]Note:[/] {note}")
    console.print("Settings for [bold]coterie run[/]:\n", style="dim")
    console.print(_settings(found), markup=False, highlight=False)


def _settings(found: "Plan") -> str:
    """Return the part of a configuration that plays sessions like this one."""
    from coterie.graphs.table import topology_name

    lines = [
        f"cohort.size = {found.clients}",
        f'aggregation.threat = "{"active-server" if found.active else "honest-but-curious"}"',
        f'aggregation.topology = "{topology_name(found.guarantee.topology)}"',
        f"aggregation.dropout = {found.dropout:g}",
        f"aggregation.collusion = {found.collusion:g}",
    ]
    return "\n".join(lines)


def _neighbourhood(found: "Plan") -> str:
    from coterie.graphs.topology import ErdosRenyi

    degree = found.guarantee.degree
    if isinstance(found.guarantee.topology, ErdosRenyi):
        return f"p = [bold]{found.connection_probability:.4f}[/] (about {degree:.0f} neighbours each)"
    return f"[bold]{degree:.0f}[/] neighbours each"


def _probability(log2: float) -> str:
    if log2 == float("-inf"):
        return "[bold]cannot happen[/] under these fractions"
    if log2 == 0:
        return "[red]no promise[/]"
    return f"with probability at most [bold]2^{log2:.1f}[/]"


def _cost_table(costs: "Costs", complete: "Costs", found: "Plan") -> Any:  # noqa: ANN401 - rich is imported late
    from rich.table import Table

    from coterie.reports.words import size

    table = Table(title=f"A session of {found.length:,} numbers of {found.bits} bits", title_justify="left")
    table.add_column("")
    table.add_column("this plan", justify="right", style="bold")
    table.add_column("complete graph", justify="right")
    table.add_column("ratio", justify="right")
    for label, ours, theirs, is_bytes in (
        ("client uploads", costs.client_upload_bytes, complete.client_upload_bytes, True),
        ("  of it the masked vector", costs.masked_vector_bytes, complete.masked_vector_bytes, True),
        ("client downloads", costs.client_download_bytes, complete.client_download_bytes, True),
        ("client key agreements", costs.key_agreements, complete.key_agreements, False),
        ("server receives", costs.server_download_bytes, complete.server_download_bytes, True),
        ("server sends", costs.server_upload_bytes, complete.server_upload_bytes, True),
        ("server key agreements", costs.server_key_agreements, complete.server_key_agreements, False),
    ):
        show = size if is_bytes else "{:,}".format
        table.add_row(label, show(ours), show(theirs), f"{ours / theirs:.2f}" if theirs else "")
    return table


def _price_table(found: "Plan") -> Any:  # noqa: ANN401 - rich is imported late
    from rich.table import Table

    table = Table(title="Rounds that fail, on the complete graph, if clients leave in each step", title_justify="left")
    for heading in ("colluders withstood", "must confirm"):
        table.add_column(heading, justify="right")
    for leaving in found.prices[0].failed_rounds:
        table.add_column(f"{leaving:.0%} leave", justify="right")
    for price in found.prices:
        style = "bold" if price.colluders == found.colluders else None
        chances = (f"{chance:.1%}" for chance in price.failed_rounds.values())
        table.add_row(f"{price.colluders:,}", f"{price.quorum:,}", *chances, style=style)
    return table


def _bytes(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 10_000:
            return f"{count:,} {unit}"
        count = round(count / 1000)
    return f"{count:,} GB"
