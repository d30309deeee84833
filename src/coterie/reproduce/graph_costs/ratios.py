"""Sessions of SA and CCESA side by side: the same clients, the same dropouts, the same machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coterie.cohorts.circles import Reals
from coterie.graphs.guarantees import paper_parameters
from coterie.reproduce.graph_costs.settings import CCESA, SA, TimedSession


class Pair(NamedTuple):
    """All trials with one number of clients and one dropout; ratios are of trials, CCESA's number by SA's."""

    clients: int
    dropout: float
    sa: Sequence[TimedSession]
    ccesa: Sequence[TimedSession]

    @property
    def name(self) -> str:
        """The number of clients, and how many drop out."""
        return f"n = {self.clients}, q_total = {self.dropout:g}"

    @property
    def probability(self) -> float:
        """p*."""
        return paper_parameters(self.clients, self.dropout).connection_probability

    @property
    def threshold(self) -> int:
        """CCESA's t."""
        return paper_parameters(self.clients, self.dropout).threshold

    def client_ms(self, scheme: str) -> Reals:
        """Return the time of a client: trials x steps."""
        return np.array([one.client_ms for one in self._of(scheme)])

    def server_ms(self, scheme: str) -> Reals:
        """Return the time of the server in each trial."""
        return np.array([one.server_ms for one in self._of(scheme)])

    def ratios(self, *steps: int) -> Reals:
        """Return the ratio of a client's time in these steps together."""
        ccesa, sa = (self.client_ms(scheme)[:, list(steps)].sum(axis=1) for scheme in (CCESA, SA))
        ratios: Reals = ccesa / sa
        return ratios

    @property
    def server_ratios(self) -> Reals:
        """The ratio of the server's times."""
        return self.server_ms(CCESA) / self.server_ms(SA)

    @property
    def byte_ratios(self) -> Reals:
        """The ratio of what a client sends and receives."""
        ccesa, sa = (np.array([one.client_bytes for one in self._of(scheme)]) for scheme in (CCESA, SA))
        ratios: Reals = ccesa / sa
        return ratios

    def _of(self, scheme: str) -> Sequence[TimedSession]:
        return self.sa if scheme == SA else self.ccesa


def pairs_of(played: Sequence[TimedSession]) -> list[Pair]:
    """Return the pairs in the order in which they were played."""
    keys = dict.fromkeys((one.clients, one.dropout) for one in played)

    def of(scheme: str, key: tuple[int, float]) -> list[TimedSession]:
        found = [one for one in played if one.scheme == scheme and (one.clients, one.dropout) == key]
        return sorted(found, key=lambda one: one.trial)

    return [Pair(*key, of(SA, key), of(CCESA, key)) for key in keys]
