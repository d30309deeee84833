"""``coterie plan``: parameters, bounds and costs before anything is run."""

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coterie.secagg.plan import Costs, Plan


class TopologyName(StrEnum):
    """Names a user can give."""

    AUTO = "auto"
    COMPLETE = "complete"
    ERDOS_RENYI = "erdos-renyi"
    HARARY = "harary"


def plan(
    clients: Annotated[int, typer.Option(help="Clients in a session.", min=3)],
    dropout: Annotated[float, typer.Option(help="Fraction of clients that drop out over the whole session.")],
    collusion: Annotated[float, typer.Option(help="Fraction of clients that collude with the server.")] = 0.0,
    topology: Annotated[TopologyName, typer.Option(help="Who shares with whom.")] = TopologyName.AUTO,
    privacy_bits: Annotated[
        float | None, typer.Option(help="Probability of a privacy failure at most 2^-BITS (40 if not given).")
    ] = None,
    reliability_bits: Annotated[
        float | None, typer.Option(help="Probability of a failed session at most 2^-BITS (20 if not given).")
    ] = None,
    active: Annotated[bool, typer.Option(help="Plan against a server that lies.")] = False,
    length: Annotated[int, typer.Option(help="Numbers in each client's vector.", min=1)] = 100_000,
    precision: Annotated[int, typer.Option(help="Bits for each number before aggregation.")] = 16,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Choose topology, degree and threshold from a threat model; show the proven bounds and the costs.

    Without failure targets, [bold]--topology erdos-renyi[/] takes the rule of the CCESA paper.

    [dim]Example:[/] coterie plan --clients 1000 --dropout 0.1 --collusion 0.05
    """
    from coterie.secagg.plan import recommend

    found = recommend(
        clients,
        dropout,
        collusion=collusion,
        topology=topology.value,
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
        f"{found.collusion:.1%} collude with a {against} server"
    )
    console.print(
        f"[bold green]→ {titles[name]}[/], {_neighbourhood(found)}, threshold [bold]{guarantee.threshold}[/]\n"
    )
    bounds = Table(box=None, show_header=False, padding=(0, 2))
    bounds.add_row("a partial sum or an input leaks", _probability(guarantee.privacy_failure_log2))
    bounds.add_row("the session fails", _probability(guarantee.reliability_failure_log2))
    console.print(bounds)
    console.print()
    console.print(_cost_table(costs, found.complete, found))
    for note in found.notes:
        console.print(f"[yellow]Note:[/] {note}")


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
        show = _bytes if is_bytes else "{:,}".format
        table.add_row(label, show(ours), show(theirs), f"{ours / theirs:.2f}" if theirs else "")
    return table


def _bytes(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 10_000:
            return f"{count:,} {unit}"
        count = round(count / 1000)
    return f"{count:,} GB"
