"""Two sessions with real cryptography that advance in turns, one client each.

Other work on the machine then slows both, so the ratio of their times is more reliable than the times. All times are
processor times.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Semaphore

import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.errors import RoundAborted
from coterie.rounds import one_off
from coterie.secagg.server import Step
from coterie.secagg.terms import Terms
from coterie.transports.faults import Faults
from coterie.transports.memory import AnswerCount, Carrier, Session, SessionReport


def play_in_turns(first: Terms, second: Terms, faults: Faults, seed: int) -> tuple[SessionReport, SessionReport]:
    """Play two sessions with the same vectors and dropouts, and check both sums."""
    turns = _Turns()

    def play(me: int, terms: Terms) -> SessionReport:
        def pass_on(step: Step, count: int, total: int) -> None:
            turns.pass_on(me)

        _stay_on_one_core()
        with turns.of(me):
            return play_session(terms, Carrier(faults, 1, AnswerCount(pass_on)), seed)

    with ThreadPoolExecutor(2) as pool:
        playing = [pool.submit(play, me, terms) for me, terms in enumerate((first, second))]
        try:
            wait(playing)
        finally:
            turns.stop()
    if turns.failure:
        raise turns.failure
    return playing[0].result(), playing[1].result()


def play_session(terms: Terms, carrier: Carrier, seed: int) -> SessionReport:
    """Play a session over vectors drawn from the ring; a sum that is not theirs raises :class:`RoundAborted`."""
    vectors: dict[str, RingVector] = {
        client: np.random.default_rng((seed, number)).integers(terms.ring.modulus, size=terms.length, dtype=np.uint64)
        for client, number in terms.index.items()
    }
    vectors = {client: vector.astype(terms.ring.zeros(0).dtype) for client, vector in vectors.items()}
    session = Session(terms, one_off(terms, vectors), carrier)
    aggregate = session.run()
    if not np.array_equal(aggregate.total, terms.ring.sum((vectors[name] for name in aggregate.clients), terms.length)):
        raise RoundAborted("the sum is not that of the survivors' vectors")
    return session.report


class _Turns:
    """The turns that two sessions take."""

    def __init__(self) -> None:
        self._gates: Sequence[Semaphore] = (Semaphore(1), Semaphore(0))
        self._alone = False
        self._stopped = False
        self.failure: BaseException | None = None
        """Why the first session that failed did."""

    @contextmanager
    def of(self, me: int) -> Iterator[None]:
        """Begin when it is this session's turn; at the end leave all turns to the other session.

        If this session fails, the other one ends at its next turn.
        """
        self._gates[me].acquire()
        try:
            yield
        except BaseException as error:
            self.failure, self._stopped = self.failure or error, True
            raise
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
        """End both sessions at their next turn."""
        self._stopped = True


def _stay_on_one_core() -> None:
    """Keep this thread on the core of the other session, since two cores are rarely equally fast.

    Two worker processes should not choose the same core.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
