"""``coterie plan --population --rounds``: print the plan of a deployment, and write its settings and threat model."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from coterie.cli.common import new_console, print_json
from coterie.cli.plan_session import measure_session, probability_text
from coterie.reports.words import count, duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.planning.deployment import DeploymentPlan
    from coterie.planning.seconds import SessionSeconds


def show_deployment(
    found: "DeploymentPlan", as_json: bool, *, calibrate: bool, config: Path | None, threat_model: Path | None
) -> None:
    """Write the requested files, measure the machine unless ``calibrate`` is off, and print the plan."""
    from coterie.files import write_output

    if config:
        write_output(config, settings_toml(found).encode())
    if threat_model:
        from coterie.planning.threat_model import threat_model_page

        write_output(threat_model, threat_model_page(found).encode())
    seconds = measure_session(found.session, found.protocols)[found.protocols.protocol] if calibrate else None
    if as_json:
        print_json(found.as_dict(seconds))
        return
    _show(found, seconds)
    _show_files(config, threat_model)


def settings_toml(found: "DeploymentPlan") -> str:
    """Return the settings of a run as TOML, after checking that they do not contradict each other."""
    from coterie.errors import ConfigError
    from coterie.runs.settings.toml import make_config

    settings = found.settings()
    try:
        make_config(settings)
    except ConfigError as error:
        raise ConfigError(f"the settings of this plan are not valid for a run: {error}") from None
    lines = [
        "# The settings of a planned deployment, written by coterie plan. Absence and loss are simulated.",
        "# Add your own data, model and training; coterie init writes a file with every setting.",
    ]
    section = ""
    for key, value in settings.items():
        table, _, name = key.rpartition(".")
        if table != section:
            lines += ["", f"[{table}]"]
            section = table
        lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def _show(found: "DeploymentPlan", seconds: "SessionSeconds | None") -> None:
    from rich.table import Table

    console, plan, choice = new_console(), found.population, found.choice
    server = "a malicious server" if plan.active else "an honest-but-curious server"
    helped = f"{plan.collusion:.3g} of all clients collude with it" if plan.collusion else "no client colludes with it"
    levels = ", ".join(f"{level:.3g}" for level in plan.absent)
    console.print(
        f"\n[bold]{plan.population:,} clients[/], cohorts of {plan.cohort:,}, {count(found.rounds, 'round')}; absent "
        f"{levels}, lost in the round {plan.lost:.3g}; against {server}; {helped}\n"
    )
    style = "bold green" if found.holds else "bold yellow"
    console.print(
        f"[{style}]→ T = {choice.privacy:,}[/], {found.session.graph_title}, {count(found.trips, 'trip')} a round\n"
    )
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for label, value in _rows(found, seconds):
        table.add_row(label, value)
    console.print(table)
    console.print(f"\n{found.session.promise}" if found.holds else f"\n[yellow]{found.session.promise}[/]")
    for note in found.session.notes:
        console.print(f"[yellow]Note:[/] {note}")


def _rows(found: "DeploymentPlan", seconds: "SessionSeconds | None") -> "Iterator[tuple[str, str]]":
    plan, choice, session, costs = found.population, found.choice, found.session, found.costs
    yield "honest members left in a circle, T - c", f"{choice.honest:,} (c = {choice.colluders:,})"
    yield "clients selected in a round", f"{choice.cardinality:,.4g} on average, {choice.most_clients:,} at most"
    yield "clients aggregated in a round", f"{choice.aggregated:,.4g} of {plan.cohort:,} on average"
    yield "over-selection", _over_selection(found)
    yield "threshold, neighbours", f"{found.threshold:,}, {session.guarantee.degree:,.0f}"
    if session.quorum:
        yield "clients that must confirm a sum", f"{session.quorum:,} of {session.clients:,}"
    yield "fewest clients of a sum", f"{session.minimum:,}"
    yield "a client sends, receives", f"{size(costs.client_upload_bytes)}, {size(costs.client_download_bytes)} a round"
    yield (
        "the server receives, sends",
        f"{size(costs.server_download_bytes)}, {size(costs.server_upload_bytes)} a round",
    )
    yield "seconds of a client, of the server", _seconds_text(seconds)
    yield "rounds without enough complete circles", f"{choice.skipped:.1%}" if choice.skipped >= 5e-4 else "< 0.1%"
    yield "a session fails", probability_text(session.guarantee.reliability_failure_log2)
    yield "a partial sum or an input leaks", probability_text(session.guarantee.privacy_failure_log2)
    yield "epsilon of a client, all rounds", _noise_text(found)


def _over_selection(found: "DeploymentPlan") -> str:
    factor = found.choice.over_selection
    if found.population.over_select:
        return f"{factor:.3g} times as many clients, if enough circles are complete"
    return f"none; --over-select takes {factor:.3g} times as many" if factor > 1 else "not needed"


def _seconds_text(seconds: "SessionSeconds | None") -> str:
    if seconds is None:
        return "not measured (--no-calibrate)"
    return f"{duration(seconds.client)}, {duration(seconds.server)} a round: cryptography on one core of this machine"


def _noise_text(found: "DeploymentPlan") -> str:
    if found.epsilon is None:
        return "no bound without noise (--epsilon)"
    return f"{found.epsilon:g} at delta = {found.delta:g}, by noise of {found.multiplier:.4g} times the clipping norm"


def _show_files(config: Path | None, threat_model: Path | None) -> None:
    """Print where the files are, or the options that write them."""
    typer.echo()
    if config:
        typer.echo(f"The settings are in {config}; run them with: coterie run {config}")
    else:
        typer.echo("--config FILE writes the settings for coterie run.")
    if threat_model:
        typer.echo(f"The threat model is in {threat_model}.")
    else:
        typer.echo("--threat-model FILE writes a page in plain words: who may attack, what holds, what does not.")
