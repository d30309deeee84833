"""Rounds of additive secret sharing, as in the paper on confined descent: no server, and no dropout is tolerated."""

import os
import time
from collections.abc import Mapping

import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.circles import Mask
from coterie.cohorts.memory import ClientMemory
from coterie.confined.sharing import Addition, SharingTerms, add_in_process
from coterie.errors import LocalProtocolError, RoundAborted
from coterie.rounds import Coordinator
from coterie.rounds.coordinator import SESSION_BYTES
from coterie.rounds.outcome import without
from coterie.rounds.round import PeerRound
from coterie.runs.algorithms.base import Aggregated
from coterie.runs.engine.contributions import Contributions
from coterie.runs.engine.presence import still_present
from coterie.runs.records.record import RoundCosts
from coterie.secagg.server import Step
from coterie.training.flatten import ModelArrays
from coterie.transports.faults import Faults


class Additive:
    """Rounds in which the members add by secret sharing; a dropout in any step ends the round before it reveals."""

    def __init__(
        self,
        rounds: Coordinator[ModelArrays],
        contributions: Contributions,
        memories: Mapping[str, ClientMemory],
    ) -> None:
        self._rounds, self._contributions, self._memories = rounds, contributions, memories
        self._round: PeerRound[ModelArrays] | None = None
        self._terms: SharingTerms | None = None

    def select(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> None:
        """Open the round; it is over if too few members are selected, or if one drops out."""
        opened = self._round = self._rounds.open_peers(number, available, rng, resuming=resuming)
        self._terms = None
        if opened.over:
            return
        staying = opened.selected
        for step in (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL):
            staying = still_present(faults, step, staying)
        gone = without(opened.selected, staying)
        try:
            self._terms = self._make_terms(opened.selected, gone)
        except RoundAborted as error:
            opened.abort(error, missing=gone)

    def train(self) -> None:
        """Let all members train."""
        self._contributions.begin(self._open.number, self._open.selected if self._terms else ())

    def aggregate(self) -> Aggregated:
        """Compute the sum; the ledger is written before the members see it."""
        opened, terms, contributions = self._open, self._terms, self._contributions
        if terms is None:
            return opened.result, RoundCosts()
        began = time.perf_counter()
        vectors = {name: contributions.encode(name, self._memories[name]) for name in opened.selected}
        additions: list[Addition] = []

        def add() -> RingVector:
            additions.append(add_in_process(terms, vectors))
            return additions[0].total

        opened.add(add)
        seconds = time.perf_counter() - began
        up, down = (sum(getattr(one, size) for one in additions) for size in ("upload_bytes", "download_bytes"))
        return opened.result, contributions.costs(seconds, up, down)

    @property
    def _open(self) -> PeerRound[ModelArrays]:
        if self._round is None:
            raise LocalProtocolError("a round begins by selecting its clients")
        return self._round

    def _make_terms(self, selected: tuple[str, ...], gone: tuple[str, ...]) -> SharingTerms:
        """Return the terms of a sum; :class:`RoundAborted` if a member dropped out, or too few are certainly honest."""
        if gone:
            raise RoundAborted(f"{', '.join(gone)} left, and additive sharing tolerates no dropout")
        session = self._rounds.settings
        colluders = session.shape(len(selected)).colluders or 0
        return SharingTerms(os.urandom(SESSION_BYTES), selected, session.bits, session.length, colluders)
