"""Privacy accounting: (epsilon, delta), composed over rounds by the ``dp-accounting`` library.

A :class:`Release` is one opened sum, as data. For each kind of noise a theorem bounds the Rényi divergence of order a
between the sums with and without one client's update by xi + rho a. ``dp-accounting`` composes these bounds and
converts them; this module does neither.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from coterie.errors import ConfigError, InputError
from coterie.privacy.distributions import DISTRIBUTIONS, Concentrated
from coterie.privacy.noise import Noise
from coterie.privacy.sensitivity import Sensitivity

ASSUMPTIONS = (
    "The unit of privacy is a client with all its data: epsilon and delta bound how well anybody who sees the sums "
    "can tell its updates from zeros. That it took part, and when, is not hidden.",
    "Parties who cannot break the cryptography of secure aggregation, or that of the noise, see nothing of an update "
    "but the sums. A sum counts from the moment it could be opened, also if the round failed afterwards.",
    "Clients add their noise and clip as agreed. In every opened sum at least the stated number of them are honest "
    "and keep their noise to themselves; sessions refuse to open smaller sums.",
    "A client is counted as part of every round spent, without amplification by selection: cohorts are unions of "
    "fixed circles, not independent samples of the population.",
    "Who takes part, and what is chosen before training (model, norm, rounds), does not depend on private data.",
    "Anything else that is published, such as metrics measured on the clients' data, is not covered. Test examples are "
    "assumed to belong to no client; if they are those of clients, scores on them are such metrics.",
)
"""The assumptions behind every number computed here."""

#: Orders tried in the conversion; the best one is used. Larger ones serve smaller epsilons.
INTEGER_ORDERS = (*range(2, 65), *(2**i for i in range(7, 17)))
FRACTIONAL_ORDERS = tuple(1 + i / 20 for i in range(1, 20))


@lru_cache(maxsize=1024)
def sampled_gaussian_epsilon(rate: float, multiplier: float, steps: int, delta: float) -> float:
    """Return the epsilon of ``steps`` noisy sums over examples sampled with probability ``rate`` (DP-SGD).

    ``multiplier`` is the noise's deviation in units of the clipping norm (Abadi et al. 2016). The unit of privacy is
    one example, present or not.
    """
    if steps == 0:
        return 0.0
    import dp_accounting  # slow to load, and only needed here

    accountant = dp_accounting.rdp.RdpAccountant()
    event = dp_accounting.GaussianDpEvent(multiplier)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, event), steps)
    return float(accountant.get_epsilon(delta))


@dataclass(frozen=True)
class Release:
    """One opened sum: the minimum noise in it, and the maximum influence of one client."""

    noise: Noise
    sensitivity: Sensitivity

    @property
    def bound(self) -> Concentrated:
        """The privacy of the sum of ``noise.least`` shares; it holds for larger sums too (post-processing)."""
        return self.noise.distribution.bound(self.noise.least, self.sensitivity)

    @property
    def for_an_example(self) -> "Release":
        """The same sum, for one example of a client that is replaced by another, added or left out.

        The update is clipped as a whole, and not the share of each example in it. So another example can turn it
        around: it moves by up to twice the clipping norm, whatever the client computed it from.
        """
        return Release(self.noise, self.sensitivity.replaced)


@dataclass(frozen=True)
class PrivacySpending:
    """All releases so far, equal ones counted together. It is a value that is stored with a run and read back.

    A round must be spent before its sum is opened, because a sum cannot be taken back. Spending every round bounds the
    loss of all clients. Spending only the rounds in which one client was aggregated bounds the loss of that client.
    """

    releases: tuple[tuple[Release, int], ...] = ()

    def __post_init__(self) -> None:
        if any(rounds < 1 for _, rounds in self.releases):
            raise ConfigError("a release counts for at least one round")

    @property
    def rounds(self) -> int:
        """The number of rounds spent."""
        return sum(rounds for _, rounds in self.releases)

    def spend(self, release: Release, rounds: int = 1) -> "PrivacySpending":
        """Return the spending after ``rounds`` more rounds with this release."""
        counts = dict(self.releases)
        counts[release] = counts.get(release, 0) + rounds
        return PrivacySpending(tuple(counts.items()))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon for which everything so far is (epsilon, ``delta``)-differentially private."""
        _check_delta(delta)
        return float(self._accountant().get_epsilon(delta)) if self.releases else 0.0

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions behind the numbers, as text."""
        kinds = sorted({release.noise.kind for release, _ in self.releases})
        least = min((release.noise.least for release, _ in self.releases), default=None)
        counted = () if least is None else (f"The stated number of honest clients in an opened sum is {least}.",)
        return ASSUMPTIONS + counted + tuple(DISTRIBUTIONS[kind].theorem for kind in kinds)

    def encode(self) -> bytes:
        """Return the spending as JSON; floats survive exactly."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> "PrivacySpending":
        """Parse what :meth:`encode` wrote; :class:`InputError` for anything else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a record of privacy spending: {error}") from None

    def _accountant(self) -> Any:  # noqa: ANN401 - the library has no type annotations
        integer = any(release.noise.distribution.integer_orders for release, _ in self.releases)
        return _compose(((release.bound, rounds) for release, rounds in self.releases), integer_orders=integer)


def composed_epsilon(bound: Concentrated, rounds: int, delta: float) -> float:
    """Return the least epsilon for which ``rounds`` releases within this bound are (epsilon, ``delta``)-private.

    The bound already contains the definition of neighbours: it limits how far apart their releases can be.
    """
    _check_delta(delta)
    return float(_compose([(bound, rounds)], integer_orders=False).get_epsilon(delta))


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigError(f"delta must be between 0 and 1, not {delta}")


def _compose(bounds: Iterable[tuple[Concentrated, int]], *, integer_orders: bool) -> Any:  # noqa: ANN401 - an accountant of dp_accounting, which has no types
    import dp_accounting  # slow to load, and only needed here

    orders = INTEGER_ORDERS if integer_orders else FRACTIONAL_ORDERS + INTEGER_ORDERS
    # Zeros instead of a client's update: the library's name for this is "replace special".
    accountant = dp_accounting.rdp.RdpAccountant(orders, dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    for bound, rounds in bounds:
        accountant.compose(dp_accounting.ZCDpEvent(bound.rho, bound.xi), rounds)
    return accountant
