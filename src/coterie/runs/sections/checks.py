"""Checks for contradictions between sections of the settings; each algorithm lists those that apply to it."""

from collections.abc import Iterator

import numpy as np

from coterie.arithmetic.quantize import Quantizer
from coterie.cohorts.circles import Reals
from coterie.cohorts.policies import POLICIES, PolicySettings
from coterie.errors import ConfigError
from coterie.graphs.table import TOPOLOGIES
from coterie.planning.collusion import share_of
from coterie.runs.sections.base import Contradiction
from coterie.runs.sections.collusion import session_colluders
from coterie.runs.sections.common import (
    AggregationSettings,
    AvailabilitySettings,
    ClientSettings,
    CohortSettings,
    FaultSettings,
    NoiseSettings,
)
from coterie.runs.sections.extensions import is_named


def selection(
    clients: ClientSettings, cohort: CohortSettings, aggregation: AggregationSettings
) -> Iterator[Contradiction]:
    """Check that cohorts of this size can be selected."""
    if cohort.size > clients.count:
        yield "cohort.size", f"{cohort.size} cannot be selected from clients.count = {clients.count}"
    if cohort.minimum > cohort.size:
        yield "cohort.minimum", f"must not be above cohort.size = {cohort.size}"
    if aggregation.threshold > cohort.size:
        yield "aggregation.threshold", f"a cohort of cohort.size = {cohort.size} has no {aggregation.threshold} shares"
    kind = POLICIES.get(cohort.policy)
    if kind and kind.adjustable and cohort.privacy > cohort.size:
        yield "cohort.privacy", f"a circle of {cohort.privacy} does not fit into cohort.size = {cohort.size}"
    elif kind and cohort.size <= clients.count:
        settings = policy_settings(clients, cohort)
        try:
            kind.build(kind.compose(settings, np.random.default_rng(0)), settings)
        except ConfigError as error:
            yield "cohort.size", str(error)


def policy_settings(clients: ClientSettings, cohort: CohortSettings, dropout: Reals | None = None) -> PolicySettings:
    """Return the arguments for a policy; without ``dropout``, for clients that are always available."""
    return PolicySettings(
        np.zeros(clients.count) if dropout is None else dropout,
        cohort.size,
        cohort.privacy,
        cohort.mode,
        cohort.survival,
        similar=cohort.circles == "similar",
    )


def smallest_circle(clients: ClientSettings, cohort: CohortSettings) -> int | None:
    """Return the size of the smallest circle that the policy keeps; None without circles, or for a user's policy."""
    kind = POLICIES.get(cohort.policy)
    return kind.privacy(policy_settings(clients, cohort)) if kind and kind.keeps_circles else None


def company(
    aggregation: AggregationSettings, clients: ClientSettings, cohort: CohortSettings
) -> Iterator[Contradiction]:
    """Check that every sum can have two honest clients, and that colluders alone cannot open a secret."""
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


def steps(faults: FaultSettings, aggregation: AggregationSettings) -> Iterator[Contradiction]:
    """Check that the steps in which clients drop out exist."""
    if "confirm" in faults.steps and aggregation.threat != "active-server":
        yield "faults.steps", 'there is no step "confirm" unless aggregation.threat is active-server'


def noise(
    noise: NoiseSettings,
    aggregation: AggregationSettings,
    availability: AvailabilitySettings,
    clients: ClientSettings,
) -> Iterator[Contradiction]:
    """Check that the settings allow noise to protect the clients."""
    if noise.kind == "none":
        return
    if aggregation.kind == "plain":
        yield "noise.kind", "noise is added before masking: it needs aggregation.kind = secure"
    if aggregation.threat == "active-server" and not always_complete(aggregation):
        yield (
            "aggregation.topology",
            "must be complete with noise: a malicious server may see sums of parts of a session, which have less noise",
        )
    chosen = aggregation.connection or aggregation.threshold or is_named(aggregation.topology)
    if not always_complete(aggregation) and chosen and aggregation.dropout_of == "client":
        yield (
            "aggregation.topology",
            "must be complete or planned with noise, with connection = 0 and threshold = 0: of another graph it is not "
            "known how often the server sees sums of parts of a session, which have less noise",
        )
    if availability.kind == "label-dependent":
        yield "availability.kind", "must not be label-dependent with noise: who is available would reveal labels"
    if clients.weighting != "uniform":
        yield "clients.weighting", "must be uniform with noise: weights are sent without noise"


def always_complete(aggregation: AggregationSettings) -> bool:
    """Return whether the graphs of sessions of every size are complete."""
    kind = TOPOLOGIES.get(aggregation.topology)
    return kind is not None and kind.complete


def ring(aggregation: AggregationSettings, clients: ClientSettings) -> Iterator[Contradiction]:
    """Check that a sum over all clients fits into a ring."""
    try:
        Quantizer(aggregation.clip, aggregation.precision, clients.count)
    except ConfigError as error:
        yield "aggregation.precision", str(error)
