"""A forecast: the number of rounds until the first and the last client are exposed, if rounds continue as in the log.

The rounds to come are simulated many times, with cohorts like those in the log. The model is simple and is stated with
every forecast:

* The size of a cohort is that of a round of the log, drawn at random; skipped rounds have size 0.
* Its members are drawn independently of earlier rounds, by Pareto sampling, which keeps the size of the cohort. Each
  client has a fixed probability, drawn from the Beta distribution that fits its frequency, so that short logs give wide
  intervals.
* Usually single *clients* are drawn. But if the log has far fewer groups of clients that always took part together than
  this model would produce, the groups are no coincidence. Then whole *groups* are drawn. Drawing single clients would
  predict that circles are split, although the log shows that they are not.

Every simulated history continues the real one, with the clients that took part in it. Exposure is computed modulo a
prime (:mod:`coterie.auditing.elimination`), which is wrong with a probability of about one in a million. That is enough
for a simulation, while an audit proves its results.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coterie.auditing.elimination import FIRST_PRIME, eliminate
from coterie.auditing.findings import AuditReport
from coterie.cohorts.participation import Label, Participation
from coterie.errors import ConfigError, InputError
from coterie.reports.words import count, printable

MOST_CLIENTS = 2_000
_MOST, _LEAST, _WORK = 100, 20, 10_000  # bounds of the number of histories, and of clients times histories
_CHECKS = 100  # histories simulated to see how many groups single clients would form
_SPARE = 50  # rounds beyond the number of clients after which all are exposed in most histories
_QUANTILES = (0.05, 0.5, 0.95)

Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class Expectation:
    """When an event is expected, in rounds from now: the median, and a 90% interval."""

    since: Label | None
    """The round in which the event has already happened; None if it has not."""
    low: int | None
    median: int | None
    high: int | None
    """None if it does not happen within the simulated rounds."""
    share: float
    """The share of simulated histories in which it happens within these rounds."""


@dataclass(frozen=True)
class Forecast:
    """The result of the simulated histories."""

    units: Literal["clients", "groups"]
    """The units of cohorts: single clients, or groups that always take part together."""
    first: Expectation
    """When the first client is exposed."""
    last: Expectation
    """When all clients that ever took part are exposed."""
    horizon: int
    """The number of rounds that were simulated in each history."""
    histories: int
    seed: int

    def words(self) -> str:
        """Return the forecast as text."""
        if self.first.since is not None and self.last.since is not None:
            first, last = printable(self.first.since), printable(self.last.since)
            when = f"in round {first}" if first == last else f"the first in round {first}, the last in round {last}"
            return f"Nothing is left to forecast: every client that took part is exposed already, {when}."
        return f"{self._sentence('The first exposure', self.first)} {self._sentence('The last exposure', self.last)}"

    def model(self) -> str:
        """Return the model as text."""
        who = (
            "client by client, each as often as it took part so far"
            if self.units == "clients"
            else "in whole groups of clients, since the log separates fewer clients than chance would"
        )
        return (
            "This assumes that rounds go on as before, with the same clients: cohorts have the sizes in the log "
            f"and are drawn at random, {who}. "
            f"{count(self.histories, 'simulated history', 'simulated histories')} (seed {self.seed})."
        )

    def _sentence(self, what: str, when: Expectation) -> str:
        if when.since is not None:
            return f"{what} was in round {printable(when.since)}."
        if when.low is None:
            return f"{what} is not expected within {count(self.horizon, 'further round')}."
        middle = f"after about {count(when.median, 'further round')}" if when.median else "possible"
        high = f"{when.high:,}" if when.high is not None else f"more than {self.horizon:,}"
        never = f" (in {when.share:.0%} of the simulated histories)" if when.share < 1 else ""
        return f"{what} is {'expected ' if when.median else ''}{middle}; 90% interval: {when.low:,} to {high}{never}."


def check_size(participation: Participation) -> None:
    """Refuse a log with too many clients for a forecast."""
    clients = len(participation.clients)
    if clients > MOST_CLIENTS:
        raise InputError(f"a forecast is for up to {MOST_CLIENTS:,} clients, and the log has {clients:,}")


def forecast(
    participation: Participation, report: AuditReport, *, seed: int = 0, histories: int | None = None
) -> Forecast:
    """Simulate how the history ``participation``, whose audit is ``report``, continues.

    ``seed`` decides the random numbers: the same log and seed give the same forecast. ``histories`` is the number of
    simulated histories; by default 100, and fewer for more than 100 clients.
    """
    if histories is not None and histories < 1:
        raise ConfigError(f"a forecast needs at least one simulated history, not {histories}")
    check_size(participation)
    matrix = participation.matrix.astype(np.bool_)
    matrix = matrix[:, matrix.any(axis=0)]
    if not matrix.size:
        raise InputError("there is nothing to forecast from: no client was ever aggregated")
    rng = np.random.default_rng(seed)
    histories = histories or min(_MOST, max(_LEAST, _WORK // matrix.shape[1]))
    units: Literal["clients", "groups"] = "groups" if _keeps_groups(matrix, rng) else "clients"
    columns, sizes = _groups(matrix) if units == "groups" else (matrix, np.ones(matrix.shape[1], dtype=np.int64))
    horizon = 4 * columns.shape[1] + 200
    past = columns[_independent(columns, rng)]
    soon = columns.shape[1] + _SPARE
    parts = (soon, horizon - soon)  # the first part is usually enough
    first, last = np.full(histories, np.inf), np.full(histories, np.inf)
    for number in range(histories):
        history, odds = past, _odds(columns, rng)
        for more in parts:
            history = np.concatenate([history, _draw(odds, rng.choice(columns.sum(axis=1), more), rng)])
            rounds = _exposed_after(history, sizes, rng) - len(past)
            if len(rounds) == matrix.shape[1]:
                break
        if len(rounds):
            first[number] = max(0, rounds.min())
        if len(rounds) == matrix.shape[1]:
            last[number] = max(0, rounds.max())
    found = report.exposed
    return Forecast(
        units,
        _expect(first, found[0].round if found else None),
        _expect(last, found[-1].round if len(found) == matrix.shape[1] else None),
        horizon,
        histories,
        seed,
    )


def _expect(rounds: NDArray[np.float64], since: Label | None) -> Expectation:
    if since is not None:
        return Expectation(since, 0, 0, 0, 1.0)
    values = np.quantile(rounds, _QUANTILES, method="inverted_cdf")
    low, median, high = (int(value) if np.isfinite(value) else None for value in values)
    return Expectation(None, low, median, high, float(np.isfinite(rounds).mean()))


def _groups(matrix: Bits) -> tuple[Bits, NDArray[np.int64]]:
    """Return a column for each group of clients with equal columns, and the sizes of the groups."""
    columns, sizes = np.unique(matrix, axis=1, return_counts=True)
    return columns, sizes.astype(np.int64)


def _keeps_groups(matrix: Bits, rng: np.random.Generator) -> bool:
    """Return whether the log has fewer groups than any of some simulated logs with the same rounds."""
    observed = _groups(matrix)[0].shape[1]
    if observed == matrix.shape[1]:
        return False
    sizes = matrix.sum(axis=1)
    simulated = (_draw(_odds(matrix, rng), sizes, rng) for _ in range(_CHECKS))
    return all(observed < _groups(log)[0].shape[1] for log in simulated)


def _odds(columns: Bits, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw for each column the log-odds to be in a cohort, from the distribution that fits its frequency."""
    rounds, often = len(columns), columns.sum(axis=0)
    chance = np.clip(rng.beta(often + 0.5, rounds - often + 0.5), 1e-9, 1 - 1e-9)
    odds: NDArray[np.float64] = np.log(chance / (1 - chance))
    return odds


def _draw(odds: NDArray[np.float64], sizes: NDArray[np.int64], rng: np.random.Generator) -> Bits:
    """Draw a cohort of each of these sizes by Pareto sampling (Rosén 1997)."""
    keys = rng.logistic(size=(len(sizes), len(odds))) - odds
    drawn = np.zeros(keys.shape, dtype=np.bool_)
    np.put_along_axis(drawn, keys.argsort(axis=1), np.arange(len(odds)) < sizes[:, None], axis=1)
    return drawn


def _independent(rows: Bits, rng: np.random.Generator) -> NDArray[np.int64]:
    return eliminate(sp.csr_matrix(rows.astype(np.float64)), FIRST_PRIME, rng).rows


def _exposed_after(rows: Bits, sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return for each exposed client the number of rows after which it is exposed, modulo a prime."""
    found = eliminate(sp.csr_matrix(rows.astype(np.float64)), FIRST_PRIME, rng)
    kernel = found.random_null_vectors(2, rng)
    exposed = np.flatnonzero(~kernel[found.pivots].any(axis=1) & (sizes[found.pivots] == 1))
    last = [np.flatnonzero(found.inverse[at])[-1] for at in exposed.tolist()]
    return found.rows[last] + 1 if last else np.zeros(0, dtype=np.int64)
