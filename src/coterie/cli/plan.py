"""``coterie plan``: parameters, bounds and costs, before anything runs."""

from pathlib import Path
from typing import Annotated, TypeVar

import typer

from coterie.cli.common import AsJson
from coterie.cli.plan_population import show_population
from coterie.cli.plan_session import show_session

SESSION, ROUNDS = "One session", "Many rounds"
Value = TypeVar("Value")


def plan(
    context: typer.Context,
    clients: Annotated[int | None, typer.Option(help="Clients in a session.", min=3, rich_help_panel=SESSION)] = None,
    lost: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Dropout in the round: the probability that a client is lost after it was selected.",
        ),
    ] = None,
    collusion: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Share of all clients that collude with the server (if not given 0; with --active just under 1/3 of a "
            "session).",
        ),
    ] = None,
    active: Annotated[
        bool,
        typer.Option(
            "--active/--no-active",
            help="Plan against a malicious server, which lies and chooses whom it invites. Every session then "
            "withstands all colluders there are, and is on the complete graph up to 1,000 clients unless --topology "
            "says otherwise.",
        ),
    ] = False,
    roster: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Clients in all, if a session has only some of them; --collusion is a share of these.",
            rich_help_panel=SESSION,
        ),
    ] = None,
    topology: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Graph of clients that share secrets; auto; or cheapest, even if T does not hold on it. auto is the "
            "cheapest, but with --active the complete graph up to its limit.",
            rich_help_panel=SESSION,
        ),
    ] = "auto",
    privacy_bits: Annotated[
        float | None,
        typer.Option(
            metavar="BITS",
            help="Probability of a privacy failure at most 2^-BITS (40 if not given).",
        ),
    ] = None,
    reliability_bits: Annotated[
        float | None,
        typer.Option(
            metavar="BITS",
            help="Probability of a failed session at most 2^-BITS (20 if not given).",
            rich_help_panel=SESSION,
        ),
    ] = None,
    circles: Annotated[
        int,
        typer.Option(
            metavar="T",
            help="Size of the smallest circle; 1 without circles. Larger circles make two trips cheaper.",
            min=1,
            rich_help_panel=SESSION,
        ),
    ] = 1,
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
        int | None, typer.Option(help="K: clients in a round, at most.", min=1, rich_help_panel=ROUNDS)
    ] = None,
    absent: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            help="Probability that a client is not there when a round begins, before any is selected; or several, "
            "spread evenly, as 0.1,0.3.",
            rich_help_panel=ROUNDS,
        ),
    ] = None,
    over_select: Annotated[
        bool,
        typer.Option(
            "--over-select",
            help="Select more circles, to make up for those that --lost breaks in the round.",
            rich_help_panel=ROUNDS,
        ),
    ] = False,
    privacy: Annotated[
        int | None,
        typer.Option(
            metavar="T",
            help="Strong multi-round privacy T. One session: clients are in circles of T, and a client that is lost "
            "excludes its whole circle from the sum; if not given there are no circles. Many rounds: show only this T.",
            min=1,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Draws random circles and the simulated rounds.", min=0, rich_help_panel=ROUNDS)
    ] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the clients aggregated against T into this PNG file.", rich_help_panel=ROUNDS),
    ] = None,
    as_json: AsJson = False,
    dropout: Annotated[str | None, typer.Option(hidden=True)] = None,
    survival: Annotated[float | None, typer.Option(hidden=True)] = None,
) -> None:
    """Plan one session from a threat model (--clients), or who takes part over many rounds (--population).

    A session: topology, degree, threshold and the fewest clients of a sum, with the proven bounds, the costs and what
    the server learns in the end. Nothing is promised over many rounds without [bold]--privacy T[/].
    Without failure targets, [bold]--topology erdos-renyi[/] takes the rule of the CCESA paper.

    Many rounds: what every multi-round privacy T costs, and which T to take.

    Clients go missing in two ways. [bold]--absent[/]: not there when a round begins, so that their circle is not
    selected. [bold]--lost[/]: dropped out in the round, so that their circle is left out of the sum.

    [dim]Examples:[/] coterie plan --clients 1000 --lost 0.1 --collusion 0.05

    coterie plan --clients 1000 --lost 0.02 --collusion 0.05 --privacy 4

    coterie plan --clients 60 --lost 0.1 --active --roster 500 --collusion 0.02

    coterie plan --population 120 --cohort 12 --absent 0.2 --lost 0.02
    """
    from coterie.errors import ConfigError

    if (clients is None) == (population is None):
        raise ConfigError("give either --clients, to plan one session, or --population, to plan many rounds")
    other, panel = ("--population", ROUNDS) if population is None else ("--clients", SESSION)
    if foreign := _given(context, panel):
        raise ConfigError(f"{', '.join(foreign)} can only be given with {other}")
    if survival is not None:
        lost = _once("--lost", lost, "--survival", round(1 - survival, 12))
    if population is not None:
        if cohort is None:
            raise ConfigError("--population needs --cohort, the number of clients in a round")
        # The old option --dropout means absence here, and loss in a session.
        absent = _once("--absent", absent, "--dropout", dropout)
        if absent is None:
            raise ConfigError("--population needs --absent, the probability that a client is not there for a round")
        show_population(
            population,
            cohort,
            _levels(absent),
            privacy=privacy,
            lost=lost or 0.0,
            over_select=over_select,
            collusion=collusion,
            active=active,
            privacy_bits=40.0 if privacy_bits is None else privacy_bits,
            seed=seed,
            plot=plot,
            as_json=as_json,
        )
    elif clients is not None:
        if dropout is not None:
            levels = _levels(dropout)
            if len(levels) > 1:
                raise ConfigError("a session has one probability of loss; several levels are for --population")
            lost = _once("--lost", lost, "--dropout", levels[0])
        if lost is None:
            raise ConfigError("--clients needs --lost, the probability that a client drops out of the session")

        from coterie.planning.session import recommend

        found = recommend(
            clients,
            lost,
            privacy=privacy or 1,
            collusion=collusion,
            roster=roster,
            topology=topology,
            privacy_bits=privacy_bits,
            reliability_bits=reliability_bits,
            active=active,
            length=length,
            precision=precision,
        )
        show_session(found, as_json, circles)


def _given(context: typer.Context, panel: str) -> list[str]:
    """Return the options of one panel that the user gave, with any value."""
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if getattr(parameter, "rich_help_panel", None) == panel
        and parameter.name is not None
        and getattr(context.get_parameter_source(parameter.name), "name", "DEFAULT") != "DEFAULT"
    ]


def _once(name: str, value: Value | None, old_name: str, old: Value | None) -> Value | None:
    """Return the value of an option given under its name or its old name; refuse both."""
    from coterie.errors import ConfigError

    if value is not None and old is not None:
        raise ConfigError(f"{old_name} is an old name of {name}: give one of them")
    return old if value is None else value


def _levels(absent: str) -> list[float]:
    from coterie.errors import ConfigError

    try:
        return [float(level) for level in absent.split(",")]
    except ValueError:
        raise ConfigError(
            f"give a fraction such as 0.1, or with --absent several as 0.1,0.2,0.3; not {absent!r}"
        ) from None
