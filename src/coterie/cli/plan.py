"""``coterie plan``: parameters, bounds and costs, before anything runs."""

from pathlib import Path
from typing import Annotated, TypeVar

import typer

from coterie.cli.common import AsJson
from coterie.cli.derive import with_options
from coterie.cli.plan_population import show_population
from coterie.cli.plan_session import show_session
from coterie.planning.settings import ROUNDS, SESSION, PlanSettings

Value = TypeVar("Value")


@with_options
def plan(
    context: typer.Context,
    settings: PlanSettings,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the clients aggregated against T into this PNG file.", rich_help_panel=ROUNDS),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan a session or many rounds, and print the plan."""
    from coterie.errors import ConfigError

    if (settings.clients is None) == (settings.population is None):
        raise ConfigError("give either --clients, to plan one session, or --population, to plan many rounds")
    other, panel = ("--population", ROUNDS) if settings.population is None else ("--clients", SESSION)
    if foreign := _given(context, panel):
        raise ConfigError(f"{', '.join(foreign)} can only be given with {other}")
    lost = settings.lost
    if settings.survival is not None:
        lost = _once("--lost", lost, "--survival", round(1 - settings.survival, 12))
    if settings.clients is None:
        _plan_rounds(settings, lost, plot, as_json)
    else:
        _plan_session(settings, settings.clients, lost, as_json)


def _plan_rounds(settings: PlanSettings, lost: float | None, plot: Path | None, as_json: bool) -> None:
    from coterie.errors import ConfigError

    population, cohort = settings.population, settings.cohort
    if population is None or cohort is None:
        raise ConfigError("--population needs --cohort, the number of clients in a round")
    # The old option --dropout means absence here, and loss in a session.
    absent = _once("--absent", settings.absent, "--dropout", settings.dropout)
    if absent is None:
        raise ConfigError("--population needs --absent, the probability that a client is not there for a round")
    show_population(
        population,
        cohort,
        _levels(absent),
        privacy=settings.privacy,
        lost=lost or 0.0,
        over_select=settings.over_select,
        collusion=settings.collusion,
        active=settings.active,
        privacy_bits=40.0 if settings.privacy_bits is None else settings.privacy_bits,
        seed=settings.seed,
        plot=plot,
        as_json=as_json,
    )


def _plan_session(settings: PlanSettings, clients: int, lost: float | None, as_json: bool) -> None:
    from coterie.errors import ConfigError
    from coterie.planning.session import recommend

    if settings.dropout is not None:
        levels = _levels(settings.dropout)
        if len(levels) > 1:
            raise ConfigError("a session has one probability of loss; several levels are for --population")
        lost = _once("--lost", lost, "--dropout", levels[0])
    if lost is None:
        raise ConfigError("--clients needs --lost, the probability that a client drops out of the session")
    found = recommend(
        clients,
        lost,
        privacy=settings.privacy or 1,
        collusion=settings.collusion,
        roster=settings.roster,
        topology=settings.topology,
        privacy_bits=settings.privacy_bits,
        reliability_bits=settings.reliability_bits,
        active=settings.active,
        length=settings.length,
        precision=settings.precision,
    )
    show_session(found, as_json, settings.circles)


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
