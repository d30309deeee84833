"""Published parameter rules and bounds for secure aggregation on sparse graphs.

Choi et al. 2020 (CCESA) join ``n`` clients by an Erdős–Rényi graph G(n, p). Each client drops out with
probability ``q`` in each of the four steps of a session, independently of everything else, so that it drops
out of the session with probability ``q_total = 1 - (1 - q)^4``; ``dropout`` below is this ``q_total``. Their
adversary sees all traffic but colludes with no client. Parameters for an adversary that does, and for other
graphs, come from :mod:`coterie.graphs.search`.

*Reliable* means that the server obtains the sum; *private*, that all traffic together is independent of every
proper partial sum. Logarithms inside the formulas are natural, as in the paper's tables; the bounds are returned
as base-2 logarithms of probabilities, rounded up, 0.0 where a theorem promises nothing.
"""

import math
from dataclasses import dataclass

import numpy as np

from coterie.errors import ConfigError
from coterie.graphs.tails import log_binomial, log_cuts, log_sum, rounded_up, to_log2

_PRODUCT = 2.0**-50
"""The most that rounding changes a product or a power of two probabilities, relative to it."""


def step_dropout(dropout: float) -> float:
    """Return the dropout per step ``q = 1 - (1 - q_total)^(1/4)``."""
    _check(3, dropout)
    return -math.expm1(math.log1p(-dropout) / 4)


def majority_threshold(shares: int) -> int:
    """Return ``floor(shares / 2) + 1``, the least threshold ``t`` with ``2 t > shares``.

    With it no party can collect ``t`` shares of both secrets of a client from holders that reveal one each. On the
    complete graph (``shares = n``) this is the threshold of SecAgg (Bonawitz et al. 2017).
    """
    return shares // 2 + 1


def quorum_of(clients: int, colluders: int) -> int:
    """Return the least ``q`` with ``2 q > n + c``: any two sets of ``q`` signers then share an honest client.

    If ``q`` of ``n`` clients signed one statement, no other statement has as many signatures: ``2 q - n > c`` clients
    would have signed both, and one of them is honest.
    """
    return (clients + colluders) // 2 + 1


def reliable_probability(clients: int, dropout: float) -> float:
    """Return the right-hand side of Theorem 3 of CCESA: above it, G(n, p) is reliable.

    That is, with a probability that tends to one with the number of clients.

    ``(3 sqrt((n-1) log(n-1)) - 1) / ((n-1) (2 (1-q)^4 - 1))``; infinite from ``q_total = 1/2`` on, where the
    theorem has nothing to offer.
    """
    _check(clients, dropout)
    others = clients - 1
    margin = 2 * (1 - dropout) - 1
    return (3 * math.sqrt(others * math.log(others)) - 1) / (others * margin) if margin > 0 else math.inf


def private_probability(clients: int, dropout: float) -> float:
    """Return the right-hand side of Theorem 4 of CCESA: above it, G(n, p) is private.

    That is, with a probability that tends to one with the number of clients.

    ``log(a) / a`` with ``a = ceil(n (1-q)^3 - sqrt(n log n))``; infinite where ``a < 1``.
    """
    _check(clients, dropout)
    survivors = math.ceil(clients * (1 - dropout) ** 0.75 - math.sqrt(clients * math.log(clients)))
    return math.log(survivors) / survivors if survivors >= 1 else math.inf


def paper_threshold(clients: int, probability: float) -> int:
    """Return the threshold of Remark 4 of CCESA, ``ceil(((n-1) p + sqrt((n-1) log(n-1)) + 1) / 2)``.

    It keeps the probability that a server could ask for both secrets of some client below ``n / (n-1)^2``.
    """
    _check(clients, 0.0, probability)
    others = clients - 1
    return math.ceil((others * probability + math.sqrt(others * math.log(others)) + 1) / 2)


@dataclass(frozen=True, slots=True)
class PaperParameters:
    """What CCESA's own rule (Remarks 1 and 4) recommends.

    ``connection_probability`` is ``p*`` as computed, even where it is 1 or more. The rule gives no sparse graph
    then: ``complete`` is set, and ``threshold`` is that of the complete graph.
    """

    connection_probability: float
    threshold: int
    complete: bool


def paper_parameters(clients: int, dropout: float) -> PaperParameters:
    """Return ``p*``, the larger of the bounds of Theorems 3 and 4 (Remark 1), and its threshold (Remark 4)."""
    probability = max(reliable_probability(clients, dropout), private_probability(clients, dropout))
    if math.isinf(probability):
        raise ConfigError(
            f"CCESA's rule has no answer for {clients} clients and a total dropout of {dropout}: it needs a "
            "dropout below 1/2, and more clients the closer it gets; state failure targets instead"
        )
    complete = probability >= 1
    threshold = majority_threshold(clients) if complete else paper_threshold(clients, probability)
    return PaperParameters(probability, threshold, complete)


def reliability_bound_log2(clients: int, probability: float, dropout: float, threshold: int) -> float:
    """Return log2 of Theorem 5 of CCESA, ``n exp(-(n-1) KL((t-1)/(n-1) || p (1-q)^4))``.

    It bounds the probability that the sum cannot be unmasked, and holds only for
    ``(t-1)/(n-1) < p (1-q)^4``; otherwise nothing is promised and the result is 0.0 (probability one).
    The theorem counts the client's own share too, which a client that drops out does not deliver;
    :mod:`coterie.graphs.failures` distinguishes the two cases.
    """
    _check(clients, dropout, probability, threshold)
    needed, reached = (threshold - 1) / (clients - 1), probability * (1 - dropout)
    if needed >= reached:
        return 0.0
    if reached == 1:
        return -math.inf
    stays, leaves = needed * math.log(needed / reached) if needed > 0 else 0.0, (1 - needed) / (1 - reached)
    leaving = (1 - needed) * math.log(leaves)
    exponent = (clients - 1) * (stays + leaving)
    # The last two parts are what rounding `needed` and `reached` themselves can change.
    rounding = [(clients - 1) * part for part in (stays, leaving, 1 - needed, leaves * reached)]
    return to_log2(rounded_up(math.log(clients) - exponent, *rounding))


def privacy_bound_log2(clients: int, probability: float, dropout: float) -> float:
    """Return log2 of Theorem 6 of CCESA, a bound on the probability that the survivors' graph is disconnected.

    ``sum_m C(n,m) (1-q)^(3m) (1-(1-q)^3)^(n-m) sum_{k=1..m/2} C(m,k) (1-p)^(k(m-k))``: given ``m`` survivors, a
    union bound over the ``k`` of them that no edge leaves.
    """
    _check(clients, dropout, probability)
    survivors = log_binomial(clients, (1 - dropout) ** 0.75, relative_error=_PRODUCT)
    terms = np.full(clients + 1, -math.inf)
    for size in range(2, clients + 1):
        part = np.arange(1, size // 2 + 1)
        terms[size] = survivors[size] + log_sum(log_cuts(size, part, probability))
    return to_log2(log_sum(terms))


def client_bits(
    neighbours: float, length: int, entry_bits: int, *, key_bits: int = 256, share_bits: int = 256
) -> float:
    """Return the bits one client sends and receives in a session without dropouts (CCESA, section on costs).

    ``2 (a+1) key_bits + (5a+1) share_bits + length * entry_bits`` with ``a`` neighbours; SecAgg is the case
    ``a = n - 1``, that is ``2n key_bits + (5n-4) share_bits``. Per neighbour, two keys arrive, two
    shares leave and two arrive when secrets are shared, and one share leaves for unmasking; the client's own two
    keys and one share are the rest.
    """
    return 2 * (neighbours + 1) * key_bits + (5 * neighbours + 1) * share_bits + length * entry_bits


def _check(clients: int, dropout: float, probability: float = 1.0, threshold: int = 1) -> None:
    if clients < 3:
        raise ConfigError(f"at least 3 clients are needed, not {clients}: of two, each can tell the other's input")
    if not 0 <= dropout < 1:
        raise ConfigError(f"a dropout fraction lies in [0, 1), not {dropout}")
    if not 0 < probability <= 1:
        raise ConfigError(f"a connection probability lies in (0, 1], not {probability}")
    if not 1 <= threshold <= clients:
        raise ConfigError(f"a threshold lies in 1..{clients}, the number of clients, not {threshold}")
