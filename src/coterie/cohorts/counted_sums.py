"""Probability that a selected circle is in a sum that its session accepts.

Circles that lose a member in the round are left out of the sum. The rest may be too small: every sum needs a minimum
number of clients, and against a malicious server a quorum of the session's clients must confirm the survivors. A round
that falls short ends without a result, and no client is aggregated in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from coterie.cohorts.circles import Indices, Reals
from coterie.errors import ConfigError
from coterie.graphs.guarantees import quorum_of
from coterie.graphs.tails import log_binomial

Needs = Callable[[int], tuple[int, int]]
"""For a number of clients in a session: the clients needed in its sum, and the signatures needed (0 if none)."""

_RARE = 1e-13  # outcomes below this probability are ignored
_MANY = 64  # up to this number of selected circles, their sizes are enumerated


def active_needs(minimum: int, colluders: int) -> Needs:
    """Return the needs of sessions with a malicious server on a complete graph: max(minimum, c + 2), and a quorum."""
    return lambda clients: (max(minimum, colluders + 2), quorum_of(clients, colluders))


def sum_chances(sizes: Indices, selected: int, survival: float, needs: Needs | None, signing: float = 1.0) -> Reals:
    """Return each circle's probability of being in an accepted sum, given that it is one of ``selected`` circles.

    A client's masked input arrives with probability ``survival``, and then its signature on the survivors with
    probability ``signing``, independently of other clients. So circles of T stay complete independently, with
    probability s^T. A sum is accepted if its complete circles have enough clients for ``needs`` and there are enough
    signatures; survivors of broken circles sign too. Without ``needs`` every sum is accepted.

    The losses considered are those before the masked input arrived and, with ``signing`` below 1, those before the
    signature arrived. Later losses, when shares are revealed, are ignored: as far as they make a session fail, the
    result is an upper bound. A plan treats every loss as if it came before the masked input. The result is then a lower
    bound for clients that drop out later, whose input is in the sum, again as long as enough are left to open it.

    The result is exact for circles of one size, and for two sizes if both are selected equally often. It is an
    approximation if availability depends on size, or for more than two sizes, or for more than 64 selected circles of
    two sizes. In the last two cases all other circles are assumed to have the smallest size.
    """
    if not 0.0 < survival <= 1.0:
        raise ConfigError(f"the probability of surviving a round lies in (0, 1], not {survival}")
    whole = np.asarray(survival**sizes, dtype=np.float64)
    if needs is None:
        return whole
    kinds, inverse, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    held = np.zeros(kinds.size)
    for number, kind in enumerate(kinds.tolist()):
        others = counts - (np.arange(kinds.size) == number)
        for chance, drawn in _drawn(kinds, others, selected - 1):
            held[number] += chance * _counts(kind, dict(drawn), survival, signing, needs)
    return np.asarray(whole * held[inverse].clip(0.0, 1.0), dtype=np.float64)


def _drawn(kinds: Indices, counts: Indices, selected: int) -> Iterator[tuple[float, list[tuple[int, int]]]]:
    """Yield each possible number of circles of each size, drawn without replacement, with its probability."""
    if kinds.size != 2 or selected > _MANY:
        yield 1.0, [(int(kinds[0]), selected)]
        return
    (short, long), (small, large) = kinds.tolist(), counts.tolist()
    for number in range(max(0, selected - small), min(selected, large) + 1):
        ways = math.comb(large, number) * math.comb(small, selected - number)
        yield ways / math.comb(small + large, selected), [(short, selected - number), (long, number)]


def _counts(kind: int, others: dict[int, int], survival: float, signing: float, needs: Needs) -> float:
    """Return the probability that a sum is accepted in which a circle of size ``kind`` is complete."""
    clients = kind + sum(size * number for size, number in others.items())
    least, quorum = needs(clients)
    laws = {size: np.exp(log_binomial(number, survival**size)) for size, number in others.items()}
    likely = {size: np.flatnonzero(law > _RARE).tolist() for size, law in laws.items()}
    found = 0.0
    for outcome in product(*likely.values()):
        whole = dict(zip(others, outcome, strict=True))
        summed = kind + sum(size * number for size, number in whole.items())
        if summed >= least:
            broken = {size: others[size] - number for size, number in whole.items() if others[size] > number}
            chance = math.prod(float(laws[size][number]) for size, number in whole.items())
            found += chance * _signed(summed, broken, survival, signing, quorum)
    return found


def _signed(whole: int, broken: dict[int, int], survival: float, signing: float, quorum: int) -> float:
    """Return the probability of ``quorum`` signatures from ``whole`` clients and the ``broken`` circles."""
    most = whole + sum((size - 1) * number for size, number in broken.items())
    if most < quorum:
        return 0.0
    if quorum <= (whole if signing >= 1.0 else 0):
        return 1.0
    # By Hoeffding's inequality, sums far from their mean are rare: large sessions need no convolution.
    mean, spread = whole * signing, float(whole)
    for size, number in broken.items():
        intact = survival**size
        mean += number * size * signing * (survival - intact) / (1 - intact)
        spread += number * (size - 1) ** 2
    if 2 * (mean - quorum) ** 2 > -math.log(_RARE) * spread:
        return float(mean > quorum)
    law = np.fft.rfft(np.exp(log_binomial(whole, signing)), most + 2)
    for size, number in broken.items():
        # Signers of a circle, given that it is broken: the case of a complete circle is subtracted.
        intact = survival**size
        signers = np.exp(log_binomial(size, survival * signing)) - intact * np.exp(log_binomial(size, signing))
        signers = signers.clip(0.0)[: size + 1]
        law = law * np.fft.rfft(signers / signers.sum(), most + 2) ** number
    return float(np.fft.irfft(law, most + 2)[quorum:].sum().clip(0.0, 1.0))
