"""Contradictions between sections of the settings, topic by topic; each algorithm says which of them concern it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from coterie.arithmetic.quantize import Quantizer
from coterie.cohorts.circles import circle_sizes, circles_per_round
from coterie.errors import ConfigError
from coterie.planning.collusion import share_of
from coterie.runs.sections.collusion import session_colluders

if TYPE_CHECKING:
    from coterie.runs.settings.config import (
        AggregationSettings,
        AvailabilitySettings,
        ClientSettings,
        CohortSettings,
        FaultSettings,
        NoiseSettings,
    )

Contradiction: TypeAlias = tuple[str, str]
"""A setting, by its key, and what is wrong with it."""
Check: TypeAlias = Callable[..., Iterator[Contradiction]]
"""Looks for contradictions between the sections that its parameters are named after."""


def selection(
    clients: "ClientSettings", cohort: "CohortSettings", aggregation: "AggregationSettings"
) -> Iterator[Contradiction]:
    """Look whether cohorts of this size can be selected."""
    if cohort.size > clients.count:
        yield "cohort.size", f"{cohort.size} cannot be selected from clients.count = {clients.count}"
    if cohort.minimum > cohort.size:
        yield "cohort.minimum", f"must not be above cohort.size = {cohort.size}"
    if aggregation.threshold > cohort.size:
        yield "aggregation.threshold", f"a cohort of cohort.size = {cohort.size} has no {aggregation.threshold} shares"
    if cohort.policy == "balanced-halves" and cohort.size % 2:
        yield "cohort.size", "must be even for balanced-halves"
    if cohort.policy == "multi-round":
        if cohort.privacy > cohort.size:
            yield "cohort.privacy", f"a circle of {cohort.privacy} does not fit into cohort.size = {cohort.size}"
        elif cohort.size <= clients.count:
            sizes = circle_sizes(clients.count, cohort.privacy)
            try:
                circles_per_round(sizes, cohort.size)
            except ConfigError as error:
                yield "cohort.size", str(error)


def company(
    aggregation: "AggregationSettings", clients: "ClientSettings", cohort: "CohortSettings"
) -> Iterator[Contradiction]:
    """Look whether two honest clients can be in every sum, and whether colluders alone can open a secret."""
    if -1 < aggregation.collusion < 0:
        yield "aggregation.collusion", "is a share of all clients, or -1"
    if aggregation.collusion < 0 or aggregation.collusion_of == "session" or cohort.size > clients.count:
        return
    colluders = session_colluders(aggregation, clients.count, cohort.size)
    if colluders > cohort.size - 2:
        active = aggregation.threat == "active-server"
        enough = f" to c + 2 = {colluders + 2} or more" if active and colluders + 2 <= clients.count else ""
        least = f" to {share_of(cohort.size - 2, clients.count)} or less" if active and cohort.size > 1 else ""
        yield (
            "aggregation.collusion",
            f"c = {colluders} of clients.count = {clients.count} may be in one session, and cohort.size = "
            f"{cohort.size} leaves no two honest clients beside them; raise cohort.size{enough}, or lower "
            f"aggregation.collusion{least}",
        )
    elif 0 < aggregation.threshold <= colluders:
        yield (
            "aggregation.threshold",
            f"c = {colluders} colluders in one session could open every secret with {aggregation.threshold} shares; "
            f"take {colluders + 1} or more, or 0",
        )


def steps(faults: "FaultSettings", aggregation: "AggregationSettings") -> Iterator[Contradiction]:
    """Look whether clients leave in steps that there are."""
    if "confirm" in faults.steps and aggregation.threat != "active-server":
        yield "faults.steps", 'there is no step "confirm" unless aggregation.threat is active-server'


def noise(
    noise: "NoiseSettings",
    aggregation: "AggregationSettings",
    availability: "AvailabilitySettings",
    clients: "ClientSettings",
) -> Iterator[Contradiction]:
    """Look whether noise can do what it is for."""
    if noise.kind == "none":
        return
    if aggregation.kind == "plain":
        yield "noise.kind", "noise is added before masking: it needs aggregation.kind = secure"
    if aggregation.threat == "active-server" and aggregation.topology != "complete":
        yield (
            "aggregation.topology",
            "must be complete with noise: a lying server may see sums of parts, with less",
        )
    if availability.kind == "label-dependent":
        yield "availability.kind", "must not be label-dependent with noise: who is there would tell the clients' labels"
    if clients.weighting != "uniform":
        yield "clients.weighting", "must be uniform with noise: weights would travel without any"


def ring(aggregation: "AggregationSettings", clients: "ClientSettings") -> Iterator[Contradiction]:
    """Look whether a sum over all clients fits into a ring."""
    try:
        Quantizer(aggregation.clip, aggregation.precision, clients.count)
    except ConfigError as error:
        yield "aggregation.precision", str(error)
