"""CCESA's sparse graph compared with the complete graph of SA: a client's work should shrink with its neighbourhood.

The experiment of Choi et al. 2020, Table 5.1: vectors of 10,000 entries of Z_2^16, the connection probability and
threshold of their rule, clients that drop out in each of the four steps. A client's steps 1 and 2 (sharing keys and
masking) touch each neighbour once, and the sparse graph leaves a client about p (n - 1) of its n - 1 neighbours: their
cost should fall to a fraction p. Entries are drawn from the ring, because the paper does not quantise either.
"""

import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Semaphore

import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.errors import ConfigError, RoundAborted
from coterie.graphs.guarantees import majority_threshold, paper_parameters, step_dropout
from coterie.graphs.topology import Complete, ErdosRenyi, Topology
from coterie.rounds import one_off
from coterie.secagg.server import Step
from coterie.secagg.terms import Terms
from coterie.transports.faults import dropouts
from coterie.transports.memory import AnswerCount, Carrier, OnAnswer, Session, SessionReport

LENGTH = 10_000
BITS = 16
_SAMPLES = 300
_STEPS = (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL)


@dataclass(frozen=True)
class Times:
    """Median milliseconds of a client in each step, those of the server, and the threshold."""

    threshold: int
    client_ms: Mapping[str, float]
    server_ms: float

    @property
    def neighbour_ms(self) -> float:
        """Steps 1 and 2, in which a client does something for each of its neighbours."""
        return self.client_ms["share"] + self.client_ms["mask"]


@dataclass(frozen=True)
class Comparison:
    """SA and CCESA on the same clients, and the numbers of the paper if it has them.

    ``deviation`` is how far the ratio of the clients' work (steps 1 and 2) is from ``probability``, relative to it.
    """

    clients: int
    dropout: float
    probability: float
    sa: Times
    ccesa: Times
    paper_sa: Times | None
    paper_ccesa: Times | None

    @property
    def ratio(self) -> float:
        """CCESA's client work in steps 1 and 2 as a fraction of SA's."""
        return self.ccesa.neighbour_ms / self.sa.neighbour_ms

    @property
    def deviation(self) -> float:
        """``ratio / probability - 1``."""
        return self.ratio / self.probability - 1


def _printed(threshold: int, advertise: int, share: int, mask: int, reveal: int, server: int) -> Times:
    return Times(threshold, {"advertise": advertise, "share": share, "mask": mask, "reveal": reveal}, server)


#: Choi et al. 2020, Table 5.1: SA and CCESA, by (clients, q_total).
PAPER = {
    (100, 0.0): (_printed(51, 6, 3572, 3537, 88, 13), _printed(43, 6, 2216, 2171, 56, 16)),
    (100, 0.1): (_printed(51, 6, 3540, 3365, 80, 9847), _printed(51, 6, 2715, 2648, 66, 8067)),
    (300, 0.0): (_printed(151, 6, 11044, 10867, 269, 82), _printed(83, 6, 4435, 4354, 110, 54)),
    (300, 0.1): (_printed(151, 6, 10502, 10453, 255, 72847), _printed(98, 6, 5382, 5300, 113, 37082)),
    (500, 0.0): (_printed(251, 6, 19097, 18196, 449, 198), _printed(112, 6, 5954, 5846, 145, 132)),
    (500, 0.1): (_printed(251, 6, 18107, 17315, 432, 329645), _printed(133, 6, 7634, 7403, 184, 141511)),
}


def compare(
    clients: int, dropout: float, seed: int = 0, observe: Callable[[str], OnAnswer] | None = None
) -> Comparison:
    """Time both protocols in turns, in as many sessions as are needed for 300 clients of each.

    ``observe`` is called with the name of each protocol and returns its observer.
    """
    rule = paper_parameters(clients, dropout)
    if rule.complete:
        raise ConfigError(f"CCESA's rule asks {clients} clients with dropout {dropout:g} for the complete graph")
    if seed < 0:
        raise ConfigError(f"a seed is not negative, as {seed} is")
    turns = _Turns()

    def run(me: int, scheme: str, topology: Topology, threshold: int) -> Times:
        watch = observe(scheme) if observe else None

        def pass_on(step: Step, count: int, total: int) -> None:
            if watch:
                watch(step, count, total)
            turns.pass_on(me)

        reports = []
        _stay_on_one_core()
        with turns.of(me):
            for session_seed in range(seed, seed + math.ceil(_SAMPLES / clients)):
                terms = Terms(
                    session=session_seed.to_bytes(16, "big"),
                    clients=tuple(map(str, range(clients))),
                    bits=BITS,
                    length=LENGTH,
                    topology=topology,
                    threshold=threshold,
                )
                reports.append(_run(terms, dropout, session_seed, pass_on))
        return _times(threshold, reports)

    with ThreadPoolExecutor(2) as pool:
        sa = pool.submit(run, 0, "SA", Complete(), majority_threshold(clients))
        ccesa = pool.submit(run, 1, "CCESA", ErdosRenyi(rule.connection_probability), rule.threshold)
        try:
            finished, _ = wait((sa, ccesa), return_when=FIRST_EXCEPTION)
            for session in finished:
                session.result()
        finally:
            turns.stop()
    paper_sa, paper_ccesa = PAPER.get((clients, dropout), (None, None))
    return Comparison(
        clients=clients,
        dropout=dropout,
        probability=rule.connection_probability,
        sa=sa.result(),
        ccesa=ccesa.result(),
        paper_sa=paper_sa,
        paper_ccesa=paper_ccesa,
    )


class _Turns:
    """Two sessions that advance in turns, one client each, so that a busy moment of the machine hits both alike."""

    def __init__(self) -> None:
        self._gates = (Semaphore(1), Semaphore(0))
        self._alone = False
        self._stopped = False

    @contextmanager
    def of(self, me: int) -> Iterator[None]:
        """Begin when it is this session's turn; at the end leave all turns to the other session."""
        self._gates[me].acquire()
        try:
            yield
        finally:
            self._alone = True
            self._gates[1 - me].release()

    def pass_on(self, me: int) -> None:
        """Let the other session continue, and wait for the next turn."""
        if not self._alone:
            self._gates[1 - me].release()
            self._gates[me].acquire()
        if self._stopped:
            raise RoundAborted("the comparison was stopped")

    def stop(self) -> None:
        """End all sessions at their next turn."""
        self._stopped = True


def _stay_on_one_core() -> None:
    """Keep this thread on the core of the other session: two cores are rarely equally fast."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _run(terms: Terms, dropout: float, seed: int, observe: OnAnswer) -> SessionReport:
    vectors: dict[str, RingVector] = {
        client: np.random.default_rng((seed, number)).integers(terms.ring.modulus, size=terms.length, dtype=np.uint16)
        for client, number in terms.index.items()
    }

    # One worker: the processor time of a client is measured, not the total time.
    faults = dropouts(step_dropout(dropout), seed)
    session = Session(terms, one_off(terms, vectors), Carrier(faults, 1, AnswerCount(observe)))
    aggregate = session.run()
    if not np.array_equal(aggregate.total, terms.ring.sum((vectors[name] for name in aggregate.clients), terms.length)):
        raise RoundAborted("the sum is not that of the survivors' vectors")
    return session.report


def _times(threshold: int, reports: Sequence[SessionReport]) -> Times:
    client_s = {step: [spent for report in reports for spent in report.steps[step].client_seconds] for step in _STEPS}
    return Times(
        threshold,
        {str(step): 1e3 * statistics.median(spent) for step, spent in client_s.items()},
        1e3 * statistics.median(report.server_seconds for report in reports),
    )
