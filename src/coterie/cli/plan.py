"""``coterie plan``: parameters, bounds and costs, before anything runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from coterie.cli.common import AsJson
from coterie.cli.derive import with_options
from coterie.cli.plan_population import show_population
from coterie.cli.plan_session import show_session
from coterie.planning.settings import DEPLOYMENT, PRIVACY_BITS, ROUNDS, SESSION, PlanSettings

if TYPE_CHECKING:
    from coterie.planning.population import PopulationOptions

Value = TypeVar("Value")


@with_options
def plan(
    context: typer.Context,
    settings: PlanSettings,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the clients aggregated against T into this PNG file.", rich_help_panel=ROUNDS),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Write the settings for coterie run into this TOML file.", rich_help_panel=DEPLOYMENT),
    ] = None,
    threat_model: Annotated[
        Path | None,
        typer.Option(
            help="Write a page for people who are not engineers: who may attack, what holds, what does not, and on "
            "which assumptions.",
            rich_help_panel=DEPLOYMENT,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan a deployment, many rounds or a session, and print the plan."""
    from coterie.errors import ConfigError

    if (settings.clients is None) == (settings.population is None):
        raise ConfigError("give either --clients, to plan one session, or --population, to plan many rounds")
    other, panel = ("--population", ROUNDS) if settings.population is None else ("--clients", SESSION)
    if foreign := _given(context, panel):
        raise ConfigError(f"{', '.join(foreign)} can only be given with {other}")
    lost = settings.lost
    if settings.survival is not None:
        lost = _once("--lost", lost, "--survival", round(1 - settings.survival, 12))
    if settings.rounds is None and (foreign := _given(context, DEPLOYMENT)):
        raise ConfigError(f"{', '.join(foreign)} can only be given with --population and --rounds")
    if settings.rounds is not None:
        _plan_deployment(context, settings, lost, as_json, config, threat_model)
    elif settings.clients is None:
        if costs := _given(context, names=("length", "precision", "calibrate")):
            raise ConfigError(f"{', '.join(costs)} with --population needs --rounds, to plan a whole deployment")
        _plan_rounds(settings, lost, plot, as_json)
    else:
        _plan_session(settings, settings.clients, lost, as_json)


def _plan_deployment(
    context: typer.Context,
    settings: PlanSettings,
    lost: float | None,
    as_json: bool,
    config: Path | None,
    threat_model: Path | None,
) -> None:
    from coterie.cli.plan_deployment import show_deployment
    from coterie.errors import ConfigError
    from coterie.files import check_output
    from coterie.planning.deployment import plan_deployment

    if settings.clients is not None:
        raise ConfigError("--rounds plans a deployment: give --population, not --clients")
    if table := _given(context, names=("plot", "seed")):
        raise ConfigError(f"{', '.join(table)} is for the table of all T: leave --rounds out")
    population, cohort, levels = _people(settings)
    for path in (config, threat_model):
        if path is not None:
            check_output(path)
    if config is not None and threat_model is not None and os.path.realpath(config) == os.path.realpath(threat_model):
        raise ConfigError(f"--threat-model: {threat_model} is also the file of --config")
    found = plan_deployment(
        population,
        cohort,
        levels,
        rounds=settings.rounds or 1,
        length=settings.length,
        precision=settings.precision,
        epsilon=settings.epsilon,
        delta=settings.delta,
        **_shared(settings, lost),
    )
    show_deployment(found, as_json, calibrate=settings.calibrate, config=config, threat_model=threat_model)


def _people(settings: PlanSettings) -> tuple[int, int, list[float]]:
    """Return the population, the cohort and the levels of absence; refuse a plan without them."""
    from coterie.errors import ConfigError

    population, cohort = settings.population, settings.cohort
    if population is None or cohort is None:
        raise ConfigError("--population needs --cohort, the number of clients in a round")
    # The old option --dropout means absence here, and loss in a session.
    absent = _once("--absent", settings.absent, "--dropout", settings.dropout)
    if absent is None:
        raise ConfigError(
            "--population needs --absent, the probability that a client is not there for a round; 0 if all always are"
        )
    levels = _levels(absent)
    if not all(0 <= level <= 1 for level in levels):
        raise ConfigError(f"--absent is a probability from 0 to 1, or several; not {absent!r}")
    return population, cohort, levels


def _shared(settings: PlanSettings, lost: float | None) -> "PopulationOptions":
    """Return the options that a plan of rounds and a plan of a deployment share."""
    return {
        "privacy": settings.privacy,
        "lost": lost or 0.0,
        "over_select": settings.over_select,
        "collusion": settings.collusion,
        "active": settings.active,
        "privacy_bits": PRIVACY_BITS if settings.privacy_bits is None else settings.privacy_bits,
    }


def _plan_rounds(settings: PlanSettings, lost: float | None, plot: Path | None, as_json: bool) -> None:
    population, cohort, levels = _people(settings)
    shared = _shared(settings, lost)
    show_population(population, cohort, levels, seed=settings.seed, plot=plot, as_json=as_json, **shared)


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
    show_session(found, as_json, settings.circles, calibrate=settings.calibrate)


def _given(context: typer.Context, panel: str = "", names: tuple[str, ...] = ()) -> list[str]:
    """Return the options of one panel, or with these names, that the user gave, with any value."""
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name is not None
        and (parameter.name in names or (panel and getattr(parameter, "rich_help_panel", None) == panel))
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
