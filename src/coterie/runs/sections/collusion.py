"""The colluders of a run, counted as ``coterie plan`` counts them (:mod:`coterie.planning.collusion`).

``aggregation.collusion`` is a share of all clients, ``clients.count``. Earlier versions took it as a share of each
session. Their runs keep that meaning: :mod:`coterie.runs.settings.toml` reads their settings with
``aggregation.collusion_of = "session"``.
"""

from collections.abc import Iterable

from coterie.cohorts.policies import POLICIES
from coterie.graphs.failures import part_of
from coterie.planning.collusion import circle_colluders, count_colluders
from coterie.runs.sections.common import AggregationSettings, CohortSettings

PRIVACY_BITS = 40.0
"""A session or a circle has more colluders than counted with probability at most 2^-40."""


def collusion_share(aggregation: AggregationSettings) -> float | None:
    """Return the share for the planner; None if the threat determines it."""
    return None if aggregation.collusion < 0 else aggregation.collusion


def roster_size(aggregation: AggregationSettings, population: int, clients: int) -> int:
    """Return the number of clients that ``aggregation.collusion`` is a share of, for a session of ``clients``."""
    return clients if aggregation.collusion_of == "session" else population


def session_colluders(aggregation: AggregationSettings, population: int, clients: int) -> int:
    """Return c, the number of a session's clients that may help the server, out of ``population`` clients.

    A malicious server may have all colluders in one session. An honest-but-curious one selects at random.
    """
    return count_colluders(
        clients,
        roster_size(aggregation, population, clients),
        collusion_share(aggregation),
        active=aggregation.threat == "active-server",
        privacy_bits=PRIVACY_BITS + 1,  # as in a plan, which assigns the other half of 2^-40 to the graph
    ).number


def fewest_summed(aggregation: AggregationSettings, population: int, minimum: int, most: int) -> int:
    """Return the fewest clients that a sum may have, in sessions of up to ``most``: ``minimum``, or c + 2 if larger.

    If no share of all clients is set, c depends on the session, whose terms check it; then it is ``minimum``.
    """
    if aggregation.collusion < 0 or aggregation.collusion_of == "session":
        return minimum
    return max(minimum, session_colluders(aggregation, population, most) + 2)


def promised_colluders(
    aggregation: AggregationSettings, cohort: CohortSettings, population: int, circle: int, sizes: Iterable[int]
) -> int:
    """Return the number of members of a ``circle`` that may help the server, in sessions of these ``sizes``.

    Circles drawn at random rarely have many colluders. If the server is malicious, or if colluders can influence how
    circles are formed, all of them may be in one circle. Without circles, it is the number that every session
    withstands.
    """
    if aggregation.threat == "active-server" or aggregation.collusion_of == "session" or circle == 1:
        return min((session_colluders(aggregation, population, size) for size in sizes), default=0)
    colluding = part_of(max(0.0, aggregation.collusion), population)
    return circle_colluders(population, colluding, circle, active=not drawn_circles(cohort), bits=PRIVACY_BITS)


def drawn_circles(cohort: CohortSettings) -> bool:
    """Return whether circles are drawn at random, independently of their members."""
    kind = POLICIES.get(cohort.policy)
    return kind is not None and kind.adjustable and cohort.circles == "random"
