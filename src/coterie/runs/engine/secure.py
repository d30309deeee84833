"""Rounds of secure aggregation, each through the real protocol."""

import numpy as np

from coterie.cohorts.circles import Mask
from coterie.errors import LocalProtocolError
from coterie.rounds import Coordinator, Member, Round
from coterie.runs.algorithms.base import Aggregated
from coterie.runs.engine.contributions import Contributions
from coterie.runs.engine.lazy_map import LazyMap
from coterie.runs.engine.presence import training_clients
from coterie.secagg.server import Step
from coterie.training.flatten import ModelArrays
from coterie.transports.faults import Faults
from coterie.transports.memory import Carrier


class Secure:
    """Rounds of secure aggregation: the server sees sums over whole circles, and nothing else.

    Without noise, an entry of the mean is within :meth:`Quantizer.error_bound` of that of
    :class:`~coterie.runs.engine.plain.Plain`.
    """

    def __init__(
        self,
        rounds: Coordinator[ModelArrays],
        members: LazyMap[Member],
        carrier: Carrier,
        contributions: Contributions,
    ) -> None:
        self._rounds, self._members, self._carrier, self._contributions = rounds, members, carrier, contributions
        self._round: Round[ModelArrays] | None = None

    def select(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> None:
        """Open the round; the coordinator selects its clients."""
        content = self._contributions.updates.content(number)
        self._round = self._rounds.open(number, available, rng, content=content, resuming=resuming)
        self._members.keep(self._round.selected)
        self._carrier.faults = faults

    def train(self) -> None:
        """Start training now; the exchange of keys does not depend on updates and runs at the same time."""
        opened, contributions = self._open, self._contributions
        training = () if opened.step is Step.DONE else training_clients(self._carrier.faults, opened.selected)
        contributions.begin(opened.number, training)
        for name in opened.selected:
            self._members[name].content = contributions.updates.given.get(name)

    def aggregate(self) -> Aggregated:
        """Deliver the messages of the round; the ledger is written before anything is revealed."""
        opened = self._open
        report = self._carrier.play(opened, self._members)
        up = sum(sum(step.upload_bytes) for step in report.steps.values())
        down = sum(sum(step.download_bytes) for step in report.steps.values())
        return opened.result, self._contributions.costs(report.seconds, up, down)

    @property
    def _open(self) -> Round[ModelArrays]:
        if self._round is None:
            raise LocalProtocolError("a round begins by selecting its clients")
        return self._round
