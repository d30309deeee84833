"""The work that is measured: clients, vectors, graph and dropouts, all of which follow from a seed."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coterie.arithmetic.quantize import Quantizer
from coterie.bench.settings import SecaggSettings
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.signing import Identity
from coterie.errors import ConfigError
from coterie.graphs.failures import ThreatModel
from coterie.graphs.guarantees import majority_threshold, paper_parameters, paper_threshold
from coterie.graphs.table import searches
from coterie.graphs.topology import Complete, ErdosRenyi, Harary, Topology
from coterie.secagg.terms import Terms, ThreatMode, default_colluders

CLIP = 1.0
#: The weights that Flower is measured with; the default precision is also the one of Flower.
MIN_WEIGHT, MAX_WEIGHT = 64, 128
#: The setting for the comparison with Flower: 30 neighbours, and of the 31 shares 17, a little more than half.
DEGREE, SHARE_FRACTION = 30, 0.55


def choose(
    kind: str,
    clients: int,
    dropout: float,
    degree: int | None = None,
    probability: float | None = None,
    threshold: int | None = None,
) -> tuple[Topology, int]:
    """Return the topology and threshold; parameters that are not given have their published values.

    Topologies without an entry in :data:`PUBLISHED` take the parameters that a search finds for this dropout.
    """
    known = searches()
    if kind not in known:
        raise ConfigError(f"the topology is one of {', '.join(known)}, not {kind!r}")
    if clients < 3:
        raise ConfigError(f"a benchmark needs at least 3 clients, not {clients}")
    given = {name: value for name, value in (("degree", degree), ("probability", probability)) if value is not None}
    for parameter in given:
        takers = [name for name, rule in PUBLISHED.items() if parameter in inspect.signature(rule).parameters]
        if kind not in takers:
            raise ConfigError(f"a {parameter} is chosen for {' and '.join(takers)} graphs, not for {kind}")
    if kind in PUBLISHED:
        topology, published = PUBLISHED[kind](clients, dropout, **given)
    else:
        found = known[kind](ThreatModel(clients, dropout))
        topology, published = found.topology, found.threshold
    return topology, published if threshold is None else threshold


def choose_complete(clients: int, _dropout: float) -> tuple[Topology, int]:
    """Take a strict majority of all clients (Bonawitz et al. 2017)."""
    return Complete(), majority_threshold(clients)


def choose_erdos_renyi(clients: int, dropout: float, probability: float | None = None) -> tuple[Topology, int]:
    """Take the connection probability p* and the threshold rule of CCESA (Choi et al. 2020, Remarks 1 and 4)."""
    if probability is None:
        rule = paper_parameters(clients, dropout)
        if rule.complete:
            raise ConfigError(
                f"for {clients} clients with dropout {dropout:g}, CCESA's rule gives the complete graph: "
                "choose that graph, more clients, or a probability of your own"
            )
        probability = rule.connection_probability
    return ErdosRenyi(probability), paper_threshold(clients, probability)


def choose_harary(clients: int, _dropout: float, degree: int | None = None) -> tuple[Topology, int]:
    """Take 30 neighbours, or as many as there are, and 55% of the shares.

    A Harary graph gives each client an odd number of shares 2j + 1, of which 1.1 j + .55 rounds to at least j + 1, so
    this is a strict majority too.
    """
    if degree is None:
        degree = min(DEGREE, (clients - 1) // 2 * 2)
    elif degree >= clients:
        raise ConfigError(f"a client has at most {clients - 1} neighbours, not {degree}")
    return Harary(degree), round(SHARE_FRACTION * (degree + 1))


PUBLISHED: dict[str, Callable[..., tuple[Topology, int]]] = {
    "complete": choose_complete,
    "erdos-renyi": choose_erdos_renyi,
    "harary": choose_harary,
}
"""The published parameters of topologies, as functions of the clients, their dropout and one parameter."""


@dataclass(frozen=True)
class Workload:
    """One session to be measured: weighted means of random vectors, with some dropouts.

    Exactly ``round(dropout * clients)`` clients drop out after sharing their keys and before masking. This costs the
    server most, because it must undo every mask they left on others. ``seed`` fixes the vectors, the graph and the
    dropouts; keys come from the operating system.
    """

    clients: int
    length: int
    dropout: float
    topology: Topology
    threshold: int
    precision: int = SecaggSettings.precision
    seed: int = 0
    room: int = 0
    """The ring has room for a sum of this many clients, if that is more than ``clients``. So sessions of several sizes
    can have the same ring: elements of more than 32 bits take twice the keystream."""
    active: bool = False
    """Whether the session is played against an active server, for as many colluders as the threshold allows."""

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ConfigError(f"a vector has at least 1 number, not {self.length}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must be at least 0 and below 1, not {self.dropout}")
        shares = int(getattr(self.topology, "degree", self.clients - 1)) + 1
        if not 1 <= self.threshold <= shares:
            raise ConfigError(f"the threshold lies between 1 and the {shares} shares of a secret, not {self.threshold}")
        if self.seed < 0:
            raise ConfigError(f"a seed is at least 0, not {self.seed}")

    @classmethod
    def of(cls, settings: SecaggSettings) -> "Workload":
        """Return the work that settings describe; graph and threshold are the published ones if not given."""
        clients, dropout = settings.clients, settings.dropout
        topology, threshold = choose(
            settings.topology, clients, dropout, settings.degree, settings.probability, settings.threshold
        )
        return cls(
            clients,
            settings.length,
            dropout,
            topology,
            threshold,
            settings.precision,
            settings.seed,
            active=settings.active,
        )

    @property
    def quantizer(self) -> Quantizer:
        """The encoding of the vectors."""
        return Quantizer(CLIP, self.precision, max(self.clients, self.room), MAX_WEIGHT)

    @cached_property
    def terms(self) -> Terms:
        """The terms of the session; one ring element more than the vector has numbers carries the weight."""
        return Terms(
            session=np.random.default_rng((self.seed, 0)).bytes(16),
            clients=tuple(map(str, range(self.clients))),
            bits=self.quantizer.ring.bits,
            length=self.length + 1,
            topology=self.topology,
            threshold=self.threshold,
            mode=ThreatMode.ACTIVE_SERVER if self.active else ThreatMode.HONEST_BUT_CURIOUS,
            colluders=min(self.threshold - 1, default_colluders(self.clients)),
            identities=tuple(identity.public for identity in self.identities.values()),
        )

    @cached_property
    def identities(self) -> dict[str, Identity]:
        """The clients' signing keys, against an active server."""
        names = map(str, range(self.clients)) if self.active else ()
        return {name: Identity.generate(SystemEntropy()) for name in names}

    @cached_property
    def vanishing(self) -> tuple[str, ...]:
        """The clients that drop out."""
        count = round(self.dropout * self.clients)
        chosen = np.random.default_rng((self.seed, 1)).choice(self.clients, count, replace=False)
        return tuple(self.terms.clients[client] for client in sorted(chosen))

    def vector(self, client: str) -> tuple[NDArray[np.float64], int, np.random.Generator]:
        """Return a client's numbers, its weight and the generator that rounds them; the same in every call."""
        rng = np.random.default_rng((self.seed, 2, self.terms.index[client]))
        weight = int(rng.integers(MIN_WEIGHT, MAX_WEIGHT, endpoint=True))
        return rng.uniform(-CLIP, CLIP, self.length), weight, rng
