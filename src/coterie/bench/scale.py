"""How the cost of a session grows with the number of clients.

A client's time should depend on its neighbours and not on the number of clients. To show this, the first sessions have
the same degree. They also have the same ring, that of the largest session: a sum of more clients needs more bits, and
beyond 32 bits a vector takes twice the keystream, which would hide the other effects. The other sessions have the
degree and the threshold that a planner chooses for their size.

Every session runs in its own process, so that its peak memory is its own. Times are processor times.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from coterie.bench.machine import run_alone
from coterie.bench.secagg import run_session
from coterie.bench.settings import ScaleSettings
from coterie.bench.targets import Target
from coterie.bench.workload import Workload, choose
from coterie.graphs.failures import ThreatModel
from coterie.graphs.search import search_harary
from coterie.graphs.topology import Topology

_STEP_GROWTH = 1.3
_SESSION_GROWTH = 1.25
_PEAK_GB = 1.0


@dataclass(frozen=True)
class ScaleRow:
    """One session: its graph and its costs."""

    clients: int
    planned: bool
    """Whether degree and threshold were planned for this number of clients."""
    degree: int
    threshold: int
    bits: int
    client_ms: Mapping[str, float]
    """The median of each step."""
    session_s: float
    """The processor time of all clients and the server, without the making of inputs."""
    peak_rss_bytes: int

    def growth_from(self, first: "ScaleRow") -> dict[str, float]:
        """Return how each cost of a client grew since the smallest session, and that of the session per client."""
        steps = {step: spent / first.client_ms[step] for step, spent in self.client_ms.items()}
        return {**steps, "session": self.session_s / first.session_s / (self.clients / first.clients)}


def find_targets(same_degree: Sequence[ScaleRow], planned: Sequence[ScaleRow]) -> list[Target]:
    """Return the targets: how a client's steps and the session may grow, and the memory of the largest session."""
    found = []
    if same_degree:
        growth, sizes = same_degree[-1].growth_from(same_degree[0]), _sizes(same_degree)
        found += [
            Target(f"growth of a client's {step} step, {sizes}", growth[step], _STEP_GROWTH)
            for step in ("mask", "reveal")
        ]
    if planned:
        last = planned[-1]
        session = last.growth_from(planned[0])["session"]
        found += [
            Target(f"growth of the session for each client, {_sizes(planned)}", session, _SESSION_GROWTH),
            Target(f"peak memory of {last.clients:,} clients, in GB", last.peak_rss_bytes / 1e9, _PEAK_GB),
        ]
    return found


def _sizes(rows: Sequence[ScaleRow]) -> str:
    return f"{rows[0].clients:,} to {rows[-1].clients:,} clients"


def workloads(settings: ScaleSettings) -> list[tuple[Workload, bool]]:
    """Return the sessions to play, each with whether its graph is planned."""
    room = max(settings.clients, default=0)
    found = []
    for clients in settings.clients:
        topology, threshold = choose("harary", clients, settings.dropout, settings.degree)
        found.append((_workload(settings, clients, topology, threshold, room), False))
    for clients in settings.planned:
        guarantee = search_harary(ThreatModel(clients, settings.dropout))
        found.append((_workload(settings, clients, guarantee.topology, guarantee.threshold, 0), True))
    return found


def _workload(settings: ScaleSettings, clients: int, topology: Topology, threshold: int, room: int) -> Workload:
    return Workload(clients, settings.length, settings.dropout, topology, threshold, seed=settings.seed, room=room)


def measure_scale(sessions: Sequence[tuple[Workload, bool]]) -> Iterator[ScaleRow]:
    """Play the sessions one after the other, each in its own process."""
    for workload, planned in sessions:
        yield run_alone(measure_row, workload, planned)


def measure_row(workload: Workload, planned: bool) -> ScaleRow:
    """Play one session in this process."""
    played = run_session(workload, workers=1)
    return ScaleRow(
        clients=workload.clients,
        planned=planned,
        degree=int(getattr(workload.topology, "degree", workload.clients - 1)),
        threshold=workload.threshold,
        bits=workload.terms.bits,
        client_ms={str(step): 1e3 * seconds for step, seconds in played.client_s.items()},
        session_s=played.process_s,
        peak_rss_bytes=played.peak_rss_bytes,
    )
