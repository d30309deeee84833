"""``coterie plan --clients``: print the plan of one session."""

import math
from typing import TYPE_CHECKING, Any, TypeAlias

from coterie.cli.common import new_console, print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from coterie.planning.costs import Price
    from coterie.planning.seconds import SessionSeconds
    from coterie.planning.session import Plan
    from coterie.planning.two_trips import ProtocolPlan, ProtocolPrice
    from coterie.secagg.protocols import SessionProtocol

    Seconds: TypeAlias = dict[SessionProtocol, SessionSeconds]
    """The cost of a session under each possible protocol; empty if nothing was measured."""


def show_session(found: "Plan", as_json: bool, circle: int = 1, *, calibrate: bool = True) -> None:
    """Print the plan as text or JSON; ``circle`` is that of :func:`~coterie.planning.two_trips.plan_protocol`.

    With ``calibrate``, the cost of operations is measured on this machine.
    """
    from coterie.planning.two_trips import plan_protocol

    protocols = plan_protocol(found, circle)
    seconds = measure_session(found, protocols) if calibrate else {}
    if as_json:
        print_json(_as_dict(found, protocols, seconds))
    else:
        _show(found, protocols, seconds)


def measure_session(found: "Plan", protocols: "ProtocolPlan") -> "Seconds":
    """Measure the operations of a session, and return its cost under each possible protocol."""
    from coterie.bench.operations import operation_seconds
    from coterie.planning.seconds import session_seconds
    from coterie.secagg.protocols import SessionProtocol

    operation = operation_seconds(found)
    possible = list(SessionProtocol) if protocols.two_trips else [SessionProtocol.PAPERS]
    return {protocol: session_seconds(found, protocols, operation, protocol) for protocol in possible}


def _as_dict(found: "Plan", protocols: "ProtocolPlan", seconds: "Seconds") -> dict[str, Any]:
    """Return the plan for JSON."""
    from dataclasses import asdict

    from coterie.graphs.table import topology_name
    from coterie.planning.session import complete_limit
    from coterie.secagg.protocols import SessionProtocol

    def write(price: "Price | ProtocolPrice") -> dict[str, Any]:
        chances = {f"{leaving:g}": chance for leaving, chance in price.failed_rounds.items()}
        return asdict(price) | {"failed_rounds": chances}

    guarantee = found.guarantee
    return {
        "clients": found.clients,
        "sessions": found.sessions,
        "roster": found.roster,
        "privacy": found.privacy,
        "lost": found.lost,
        "minimum": found.minimum,
        "collusion": found.collusion,
        "active_server": found.active,
        "colluders": found.colluders,
        "colluders_reason": found.colluders_reason,
        "quorum": found.quorum,
        "topology": topology_name(guarantee.topology),
        "complete_up_to": complete_limit(active=found.active),
        "connection_probability": found.connection_probability,
        "degree": guarantee.degree,
        "threshold": guarantee.threshold,
        "privacy_failure_log2": _finite(guarantee.privacy_failure_log2),
        "reliability_failure_log2": _finite(guarantee.reliability_failure_log2),
        "multi_round_privacy_holds": found.holds,
        "promise": found.promise,
        "bits": found.bits,
        "length": found.length,
        **asdict(found.costs),
        "complete": asdict(found.complete),
        "prices": [write(price) for price in found.prices],
        "notes": list(found.notes),
        "protocol": protocols.protocol,
        "protocol_reason": protocols.reason,
        "protocols": {
            name: write(price) | {"seconds": asdict(seconds[name]) if name in seconds else None}
            for name, price in (
                (SessionProtocol.PAPERS, protocols.papers),
                (SessionProtocol.TWO_TRIPS, protocols.two_trips),
            )
            if price is not None
        },
    }


def _finite(log2: float) -> float:
    """Return a number for JSON, which has no infinity: impossible events get the exponent of the smallest float64."""
    return max(log2, -1074.0)


def _show(found: "Plan", protocols: "ProtocolPlan", seconds: "Seconds") -> None:
    from rich.table import Table

    console = new_console()
    guarantee = found.guarantee
    against = "a malicious server" if found.active else "an honest-but-curious server"
    several = f"{found.sessions:,} sessions of " if found.sessions > 1 else ""
    circles = f" in circles of {found.privacy:,} or more" if found.privacy > 1 else ""
    console.print(
        f"\n[bold]{several}{found.clients:,} clients[/]{circles}, each lost in the round with probability "
        f"{found.lost:g}, against {against} and {found.colluders:,} colluders\n"
        f"(c = {found.colluders:,}: {found.colluders_reason})"
    )
    signing = f", [bold]{found.quorum:,}[/] clients must confirm who survived" if found.quorum else ""
    console.print(
        f"[bold green]→ {found.graph_title}[/], {_neighbourhood(found)}, threshold "
        f"[bold]{guarantee.threshold:,}[/]{signing}; at least [bold]{found.minimum:,}[/] clients in every sum\n"
    )
    bounds = Table(box=None, show_header=False, padding=(0, 2))
    bounds.add_row("a partial sum or an input leaks", probability_text(guarantee.privacy_failure_log2))
    bounds.add_row("the session fails", probability_text(guarantee.reliability_failure_log2))
    console.print(bounds)
    console.print()
    console.print(found.promise if found.holds else f"[yellow]{found.promise}[/]")
    for note in found.notes:
        console.print(f"[yellow]Note:[/] {note}")
    console.print(
        f"\nA session of {found.length:,} numbers of {found.bits} bits by the papers' protocol", style="italic"
    )
    console.print(_cost_table(found))
    if found.active:
        _show_prices(found, console)
    _show_protocols(protocols, seconds, console)
    if found.active and protocols.protocol == "two-trips":
        console.print(
            "If it is revealed at once, a sum in two trips is over whole circles, but clients do not know which ones; "
            "the quorum is the threshold. docs/security/protocol.md states both.",
            style="dim",
        )
    console.print("\nSettings for [bold]coterie run[/]:\n", style="dim")
    console.print(_settings(found, protocols), markup=False)


def _show_protocols(found: "ProtocolPlan", seconds: "Seconds", console: "Console") -> None:
    """Print both protocols beside each other, and which one a run uses."""
    from rich.table import Table

    from coterie.reports.words import duration, size

    taken = "two trips" if found.protocol == "two-trips" else "the papers' protocol"
    console.print(f"\nProtocol: [bold green]{taken}[/] ({found.reason})")
    if found.two_trips is None:
        return
    papers, two_trips = found.papers, found.two_trips
    table = Table()
    for heading in ("", "papers' protocol", "two trips"):
        table.add_column(heading, justify="right" if heading else "left")
    often = [
        f"{price.trips}" if price.trips == price.most_trips else f"{price.trips} or {price.most_trips}"
        for price in (papers, two_trips)
    ]
    table.add_row("trips to every client", *often)
    table.add_row("client uploads", *(size(price.costs.client_upload_bytes) for price in (papers, two_trips)))
    table.add_row("client downloads", *(size(price.costs.client_download_bytes) for price in (papers, two_trips)))
    if seconds:
        table.add_row("a client's cryptography", *(duration(spent.client) for spent in seconds.values()))
        table.add_row("the server's cryptography", *(duration(spent.server) for spent in seconds.values()))
    for leaving, chance in papers.failed_rounds.items():
        table.add_row(
            f"rounds that fail, {leaving:.0%} lost a trip", f"{chance:.1%}", f"{two_trips.failed_rounds[leaving]:.1%}"
        )
    console.print(table)
    if seconds:
        console.print(
            "Cryptography: on one core of this machine, with the expected losses. Carrying the messages comes on top: "
            "on Flower every trip takes seconds (coterie bench flower).",
            style="dim",
        )


def _settings(found: "Plan", protocols: "ProtocolPlan") -> str:
    """Return the part of a configuration that runs sessions like this one."""
    from coterie.graphs.failures import part_of
    from coterie.graphs.table import topology_name
    from coterie.planning.collusion import share_of

    lines = [
        f"clients.count = {found.roster}",
        f"cohort.size = {found.clients}",
        *(['cohort.policy = "multi-round"', f"cohort.privacy = {found.privacy}"] if found.privacy > 1 else ()),
        f'aggregation.threat = "{"active-server" if found.active else "honest-but-curious"}"',
        f'aggregation.topology = "{topology_name(found.guarantee.topology)}"',
        f'aggregation.protocol = "{protocols.protocol}"',
        f"aggregation.dropout = {found.lost:g}",
        f"aggregation.collusion = {share_of(part_of(found.collusion, found.roster), found.roster)}",
    ]
    return "\n".join(lines)


def _neighbourhood(found: "Plan") -> str:
    from coterie.graphs.table import topology_kind

    degree, kind = found.guarantee.degree, topology_kind(found.guarantee.topology)
    if kind and kind.connect:
        return f"p = [bold]{found.connection_probability:.4f}[/] (about {degree:,.0f} neighbours each)"
    return f"[bold]{degree:,.0f}[/] neighbours each"


def probability_text(log2: float) -> str:
    """Return a bound in words, rounded up, so that the printed number is a bound too."""
    if log2 == float("-inf"):
        return "[bold]cannot happen[/] with so few colluders and so many clients in the sum"
    if log2 == 0:
        return "[red]no promise[/]"
    return f"with probability at most [bold]2^{math.ceil(10 * log2) / 10:.1f}[/]"


def _cost_table(found: "Plan") -> "Table":
    from rich.table import Table

    from coterie.reports.words import size

    costs, complete = found.costs, found.complete
    compared = costs != complete
    table = Table()
    table.add_column("")
    table.add_column("this plan", justify="right", style="bold")
    if compared:
        table.add_column("complete graph", justify="right")
        table.add_column("ratio", justify="right")
    for label, ours, theirs, is_bytes in (
        ("client uploads", costs.client_upload_bytes, complete.client_upload_bytes, True),
        ("  of it the masked vector", costs.masked_vector_bytes, complete.masked_vector_bytes, True),
        ("client downloads", costs.client_download_bytes, complete.client_download_bytes, True),
        ("client key agreements", costs.key_agreements, complete.key_agreements, False),
        ("client signature checks", costs.signature_checks, complete.signature_checks, False),
        ("server receives", costs.server_download_bytes, complete.server_download_bytes, True),
        ("server sends", costs.server_upload_bytes, complete.server_upload_bytes, True),
        ("server key agreements", costs.server_key_agreements, complete.server_key_agreements, False),
    ):
        show = size if is_bytes else "{:,}".format
        ratio = f"{ours / theirs:.2f}" if theirs else ""
        table.add_row(label, show(ours), *((show(theirs), ratio) if compared else ()))
    return table


def _show_prices(found: "Plan", console: "Console") -> None:
    from rich.table import Table

    from coterie.secagg.steps import TABLE

    console.print(
        f"\nRounds that fail if clients are lost in each of the {len(TABLE)} steps, unlike --lost, which counts all "
        "steps together (complete graph)",
        style="italic",
    )
    table = Table()
    for heading in ("colluders withstood", "must confirm"):
        table.add_column(heading, justify="right")
    for leaving in found.prices[0].failed_rounds:
        table.add_column(f"{leaving:.0%} a step, {1 - (1 - leaving) ** len(TABLE):.0%} in all", justify="right")
    for price in found.prices:
        style = "bold" if price.colluders == found.colluders else None
        chances = (f"{chance:.1%}" for chance in price.failed_rounds.values())
        table.add_row(f"{price.colluders:,}", f"{price.quorum:,}", *chances, style=style)
    console.print(table)
