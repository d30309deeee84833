"""The cost of one session of secure aggregation: client steps, server, bytes and memory; ours and Flower's.

The session is the real protocol in one process, through the bytes of the real messages. Inputs are floating-point
vectors made when they are needed, so that memory holds a few of them and not all.

A client's time is processor time: waiting for a core does not count, but sharing caches with a busy neighbour does. It
ends with the bytes of the reply. The masking step includes quantising the input, because Flower's does. Making the
input stands for training: its median time is subtracted. With one worker, clients take turns, as Flower's do. The
server's time is wall-clock time: it unmasks on all workers.
"""

import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter, process_time, thread_time

import numpy as np

from coterie.arithmetic.quantize import Layout
from coterie.arithmetic.ring import RingVector
from coterie.bench.machine import keystream_ratio, run_alone, server_limit, verification_seconds
from coterie.bench.rivals import flower_secagg as flower
from coterie.bench.workload import Workload
from coterie.errors import ConfigError, RoundAborted
from coterie.graphs.topology import Complete, Graph, Harary, Topology
from coterie.host import peak_rss_bytes
from coterie.rounds import one_off
from coterie.secagg.rules import graph_seed
from coterie.secagg.server import Aggregate, Step
from coterie.transports.faults import Direction, Fault, FaultKind, Faults
from coterie.transports.memory import AnswerCount, Carrier, OnAnswer, Session, SessionReport


@dataclass(frozen=True)
class SessionCosts:
    """The costs of one session, in the same terms for every implementation.

    ``client_ms`` has a median for each step that clients take part in. ``session_ms`` is the work of all clients, one
    after the other, and of the server. ``upload_bytes`` are all bytes that a typical client sends;
    ``masked_vector_bytes`` are those of the message with its vector.
    """

    client_ms: Mapping[str, float]
    server_ms: float
    session_ms: float
    upload_bytes: int
    masked_vector_bytes: int
    peak_rss_bytes: int

    def speedup_over(self, other: "SessionCosts") -> dict[str, float]:
        """Return how many times as fast as ``other`` this is, where most of the time goes."""
        steps = {step: other.client_ms[step] / self.client_ms[step] for step in ("share", "mask")}
        return {**steps, "server": other.server_ms / self.server_ms}


@dataclass(frozen=True)
class Measurement:
    """The costs of our session, and their parts.

    * ``download_bytes`` are the bytes that a typical client receives, and ``degree`` is the mean number of neighbours.
    * ``wall_ms`` is the time of the session on ``workers`` threads, including the making of inputs.
    * ``graph_ms`` is the time to build the graph and to check that the survivors are connected. Clients in one process
      share that work; a client on its own would add it to each step that needs it.
    * ``masked_vector_ratio`` is the size of the message relative to the size of its numbers, length x bits / 8.
    * ``keystream_ratio`` is defined by :func:`~coterie.bench.machine.keystream_ratio`, at this length and degree.
    * ``server_limit_ms`` is the result of :func:`~coterie.bench.machine.server_limit` for this session.
    """

    costs: SessionCosts
    download_bytes: int
    bits: int
    degree: float
    workers: int
    wall_ms: float
    graph_ms: float
    masked_vector_ratio: float
    keystream_ratio: float
    server_processor_ms: float
    server_limit_ms: float
    signatures: Mapping[str, int]
    """How many signatures a client verifies in each step in which it verifies any."""
    signatures_ms: float
    """The time to verify all of them, measured separately."""

    @property
    def server_ratio(self) -> float | None:
        """The server's processor time, relative to that of its cryptography alone.

        It is known only with one worker: with more workers, clients work at the same time.
        """
        return self.server_processor_ms / self.server_limit_ms if self.workers == 1 else None


@dataclass(frozen=True)
class SessionRun:
    """One session that was played: its report, and its times without the making of inputs."""

    report: SessionReport
    client_s: Mapping[Step, float]
    """The median processor time of a client in each step."""
    making_s: float
    """The processor time of making all inputs."""
    process_s: float
    """The processor time of this process for all the rest: clients, server and carrier."""
    peak_rss_bytes: int


def run_session(workload: Workload, workers: int, observe: OnAnswer | None = None) -> SessionRun:
    """Run one session; a result that is not exactly right raises :class:`RoundAborted`."""
    if workers < 1:
        raise ConfigError(f"a session needs at least 1 worker, not {workers}")
    terms = workload.terms
    inputs = _Inputs(workload)
    vanish = Fault(FaultKind.DROP, Step.MASK, workload.vanishing, direction=Direction.DOWN)
    carrier = Carrier(Faults(rules=(vanish,)), workers, AnswerCount(observe) if observe else None)
    session = Session(terms, one_off(terms, inputs, identities=workload.identities), carrier)
    began = process_time()
    aggregate = session.run()
    process_s = process_time() - began
    peak = peak_rss_bytes()
    _check(workload, aggregate)
    report, making_s = session.report, sum(inputs.making_seconds)
    client_s = {step: report.steps[step].median_client_seconds for step in report.steps}
    client_s[Step.MASK] -= statistics.median(inputs.making_seconds)
    return SessionRun(report, client_s, making_s, process_s - making_s, peak)


def measure(workload: Workload, workers: int, observe: OnAnswer | None = None) -> Measurement:
    """Run and time one session; a result that is not exactly right raises :class:`RoundAborted`."""
    played = run_session(workload, workers, observe)
    terms, report, client_s = workload.terms, played.report, played.client_s
    work_s = sum(sum(report.steps[step].client_seconds) for step in report.steps) - played.making_s
    vector_bytes = int(statistics.median(report.steps[Step.MASK].upload_bytes))
    graph = terms.graph(graph_seed(terms, ()))
    degree = statistics.mean(graph.degree(client) for client in range(workload.clients))
    signatures = client_signatures(workload, degree)
    return Measurement(
        costs=SessionCosts(
            client_ms={str(step): 1e3 * seconds for step, seconds in client_s.items()},
            server_ms=1e3 * report.server_seconds,
            session_ms=1e3 * (report.server_seconds + work_s),
            upload_bytes=report.upload_bytes,
            masked_vector_bytes=vector_bytes,
            peak_rss_bytes=played.peak_rss_bytes,
        ),
        download_bytes=report.download_bytes,
        bits=terms.bits,
        degree=degree,
        workers=workers,
        wall_ms=1e3 * report.seconds,
        graph_ms=1e3 * _graph_seconds(workload),
        masked_vector_ratio=vector_bytes / (workload.length * terms.bits / 8),
        keystream_ratio=keystream_ratio(terms.ring, terms.length, round(degree)),
        server_processor_ms=1e3 * report.server_processor_seconds,
        server_limit_ms=1e3 * _server_limit(workload, graph),
        signatures=signatures,
        signatures_ms=1e3 * sum(signatures.values()) * verification_seconds() if signatures else 0.0,
    )


def client_signatures(workload: Workload, degree: float) -> dict[str, int]:
    """Return how many signatures a typical client verifies in each step: against an active server, otherwise none.

    It verifies the signatures on all other clients' keys, on the statements of its aggregated neighbours, and on the
    confirmations of a quorum except its own.
    """
    if not workload.active:
        return {}
    others = workload.clients - 1
    lost = len(workload.vanishing)
    return {
        str(Step.SHARE): others,
        str(Step.CONFIRM): round(degree * (others - lost) / others),
        str(Step.REVEAL): workload.terms.quorum - 1,
    }


def _server_limit(workload: Workload, graph: Graph) -> float:
    """Return the seconds of the server's cryptography; against an active server every client signs three messages."""
    terms = workload.terms
    vanished = {terms.index[client] for client in workload.vanishing}
    survivors = workload.clients - len(vanished)
    return server_limit(
        terms.ring,
        terms.length,
        survivors=survivors,
        agreements=sum(len(set(graph.neighbours(client)) - vanished) for client in vanished),
        signatures=workload.clients + 2 * survivors if workload.active else 0,
    )


def measure_flower(workload: Workload) -> SessionCosts:
    """Time Flower's SecAgg+ (on the complete graph, its SecAgg) on the same work, in a process of its own.

    Its masks are not cryptographic; see :mod:`coterie.bench.rivals.flower_secagg`.
    """
    check_flower(workload)
    times, peak = run_alone(_run_flower, workload)
    return SessionCosts(
        client_ms=times.client_ms,
        server_ms=times.server_ms,
        session_ms=times.session_ms,
        upload_bytes=times.total_upload_bytes,
        masked_vector_bytes=times.upload_bytes["mask"],
        peak_rss_bytes=peak,
    )


def check_flower(workload: Workload) -> None:
    """Raise :class:`ConfigError` if Flower cannot do this work or is not installed."""
    flower.check(
        workload.clients, workload.length, workload.dropout, _flower_shares(workload.topology), workload.threshold
    )


def _flower_shares(topology: Topology) -> int:
    """Return Flower's parameter for a topology: the number of shares of a client, or 0 for the complete graph."""
    if isinstance(topology, Harary):
        return topology.degree + 1
    if isinstance(topology, Complete):
        return 0
    raise ConfigError("Flower aggregates over complete and harary graphs only")


def _run_flower(workload: Workload) -> tuple[flower.FlowerTimes, int]:
    times = flower.run_secaggplus(
        workload.clients,
        workload.length,
        workload.dropout,
        _flower_shares(workload.topology),
        workload.threshold,
        workload.seed,
    )
    return times, peak_rss_bytes()


class _Inputs:
    """Each client's ring vector, made when the session needs it; making its numbers is not part of the session."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._quantizer = workload.quantizer
        self.making_seconds: list[float] = []

    def __call__(self, client: str) -> RingVector:
        began = thread_time()
        numbers, weight, rng = self._workload.vector(client)
        self.making_seconds.append(thread_time() - began)
        return self._quantizer.encode(numbers, rng, weight).vector


def _check(workload: Workload, aggregate: Aggregate) -> None:
    """Compare with plain summation: the same clients, the same ring sum, a mean within the bound of rounding."""
    terms, quantizer = workload.terms, workload.quantizer
    expected = [client for client in terms.clients if client not in workload.vanishing]
    if list(aggregate.clients) != expected:
        raise RoundAborted(f"{len(aggregate.clients)} clients were aggregated; {len(expected)} should have been")
    plain = terms.ring.zeros(terms.length)
    weighted_sum, total_weight = np.zeros(workload.length), 0
    for client in expected:
        numbers, weight, rng = workload.vector(client)
        plain += quantizer.encode(numbers, rng, weight).vector
        weighted_sum += weight * numbers
        total_weight += weight
    terms.ring.reduce(plain)
    if not np.array_equal(aggregate.total, plain):
        raise RoundAborted("the sum is not that of the survivors' vectors")
    (mean,) = quantizer.decode(aggregate.total, Layout.of(weighted_sum), len(expected)).mean
    error = float(np.abs(mean - weighted_sum / total_weight).max())
    # Plain summation in float64 rounds as well: once for each product, sum and quotient, relative to the clip.
    bound = quantizer.error_bound(len(expected), total_weight) + (len(expected) + 2) * 2.0**-52 * quantizer.clip
    if not error <= bound:
        raise RoundAborted(f"the mean is off by {error:.3g}; rounding explains {bound:.3g}")


def _graph_seconds(workload: Workload) -> float:
    """Time a new graph of this kind: building it, and checking that the survivors are connected."""
    terms, seed = workload.terms, os.urandom(32)
    survivors = [terms.index[client] for client in terms.clients if client not in workload.vanishing]
    began = perf_counter()
    terms.graph(seed).connected(survivors)
    return perf_counter() - began
