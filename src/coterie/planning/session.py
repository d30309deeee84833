"""The plan of a session: the cheapest topology for a threat model, what it promises, and its bytes and agreements."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from coterie.arithmetic.quantize import Quantizer
from coterie.arithmetic.ring import Ring
from coterie.crypto.agreement import KEY_BYTES
from coterie.crypto.context import FINGERPRINT_BYTES
from coterie.crypto.signing import SIGNATURE_BYTES
from coterie.errors import ConfigError
from coterie.graphs.failures import ThreatModel
from coterie.graphs.guarantees import (
    majority_threshold,
    paper_parameters,
    privacy_bound_log2,
    quorum_of,
    reliability_bound_log2,
)
from coterie.graphs.search import Guarantee, assess
from coterie.graphs.table import searches
from coterie.graphs.tails import log_binomial
from coterie.graphs.topology import Complete, ErdosRenyi
from coterie.secagg import messages
from coterie.secagg.steps import TABLE, Step
from coterie.secagg.terms import MOST_CLIENTS, default_colluders

#: With fewer clients the complete graph is cheap enough that nothing else is worth a thought.
FEW_CLIENTS = 20
#: What withstanding colluders costs is shown for clients that leave this often, in every step.
LEAVING = (0.05, 0.1)


@dataclass(frozen=True)
class Costs:
    """Bytes and X25519 agreements of a session in which nobody drops out.

    The bytes are lengths of real messages, filled with zeros. The server also makes an agreement for each pair of a
    client that dropped out after sharing and a surviving neighbour: ``server_key_agreements`` is their expected number.
    """

    client_upload_bytes: int
    client_download_bytes: int
    masked_vector_bytes: int
    key_agreements: int
    server_upload_bytes: int
    server_download_bytes: int
    server_key_agreements: int

    @property
    def client_bytes(self) -> int:
        """Everything one client sends and receives."""
        return self.client_upload_bytes + self.client_download_bytes


@dataclass(frozen=True)
class Price:
    """What it costs to withstand a number of colluders: more clients must stay to sign, so more rounds fail."""

    colluders: int
    quorum: int
    failed_rounds: dict[float, float]
    """By the probability that a client leaves in a step, that of a round that fails (on the complete graph)."""


@dataclass(frozen=True)
class Plan:
    """Parameters of a session, the bounds proven for them, and what it costs beside the complete graph."""

    clients: int
    dropout: float
    collusion: float
    active: bool
    colluders: int
    """The most clients that may collude with the server; what the terms of a session take."""
    quorum: int | None
    """Clients that must confirm who survived; nobody need where the server follows the protocol."""
    prices: tuple[Price, ...]
    """Against an active server, what other numbers of colluders would cost."""
    bits: int
    length: int
    guarantee: Guarantee
    costs: Costs
    complete: Costs
    notes: tuple[str, ...]

    @property
    def connection_probability(self) -> float:
        """The chance that two given clients are neighbours."""
        topology = self.guarantee.topology
        if isinstance(topology, ErdosRenyi):
            return topology.probability
        return min(1.0, self.guarantee.degree / (self.clients - 1))


def recommend(
    clients: int,
    dropout: float,
    *,
    collusion: float | None = None,
    topology: str = "auto",
    privacy_bits: float | None = None,
    reliability_bits: float | None = None,
    active: bool = False,
    length: int = 100_000,
    precision: int = 16,
) -> Plan:
    """Return the cheapest topology that meets the failure targets, or the best parameters of the one asked for.

    ``topology`` is ``auto`` or a name in the table of topologies. Without targets, Erdős-Rényi takes the rule of
    Choi et al. (2020), in which nobody colludes and the server does not lie, and the others take 40 bits of privacy
    and 20 of reliability. Without ``collusion`` nobody colludes with a server that follows the protocol, and with one
    that lies as many clients as a session's terms assume.
    """
    known = searches()
    if topology != "auto" and topology not in known:
        raise ConfigError(f"topology is auto, {', '.join(known)}, not {topology!r}")
    if clients > MOST_CLIENTS:
        raise ConfigError(f"a session has at most {MOST_CLIENTS:,} clients, not {clients:,}; plan several sessions")
    by_rule = topology == "erdos-renyi" and privacy_bits is None and reliability_bits is None
    by_rule = by_rule and not active and not collusion
    if collusion is None:
        collusion = default_colluders(clients) / clients if active else 0.0
    bits = Quantizer(clip=1.0, precision=precision, clients=clients).ring.bits
    model = ThreatModel(
        clients,
        dropout,
        collusion,
        privacy_bits=40 if privacy_bits is None else privacy_bits,
        reliability_bits=20 if reliability_bits is None else reliability_bits,
        active=active,
    )
    notes: list[str] = []
    if by_rule:
        candidates = [_by_the_papers_rule(model, notes)]
    elif topology == "auto":
        candidates = [search(model) for search in known.values()]
    else:
        candidates = [known[topology](model)]

    def price(found: Guarantee) -> Costs:
        return session_costs(clients, found.degree, bits, length, dropout=dropout, active=active)

    best = min(candidates, key=lambda found: price(found).client_bytes)
    complete = session_costs(clients, clients - 1, bits, length, dropout=dropout, active=active)
    return Plan(
        clients=clients,
        dropout=dropout,
        collusion=collusion,
        active=active,
        colluders=model.colluding,
        quorum=model.quorum if active else None,
        prices=price_colluders(clients, model.colluding) if active else (),
        bits=bits,
        length=length,
        guarantee=best,
        costs=price(best),
        complete=complete,
        notes=tuple(notes),
    )


def price_colluders(clients: int, planned: int) -> tuple[Price, ...]:
    """Say what several numbers of colluders cost, among them none, the ``planned`` one and the default."""
    default = default_colluders(clients)
    numbers = sorted({0, default // 2, default, planned})
    return tuple(
        Price(
            number,
            quorum_of(clients, number),
            {leaving: failed_rounds(clients, number, leaving) for leaving in LEAVING},
        )
        for number in numbers
    )


def failed_rounds(clients: int, colluders: int, leaving: float) -> float:
    """Return the probability that a round against an active server fails on the complete graph.

    Each client leaves with probability ``leaving`` in each step, independently. A quorum must be there to confirm, and
    of those who confirmed a threshold must be there to reveal.
    """
    quorum = quorum_of(clients, colluders)
    threshold = max(majority_threshold(clients), colluders + 1)
    before = [row.step for row in TABLE].index(Step.CONFIRM) + 1
    enough = np.arange(max(quorum, threshold), clients + 1)
    confirming = np.exp(log_binomial(clients, (1 - leaving) ** before)[enough])
    revealing = bdtrc(threshold - 1, enough, 1 - leaving)  # P(Bin(enough, 1 - leaving) >= threshold)
    return max(0.0, 1 - float(confirming @ revealing))


def _by_the_papers_rule(model: ThreatModel, notes: list[str]) -> Guarantee:
    """Connection probability and threshold as in Choi et al. (2020), with the bounds of their Theorems 5 and 6."""
    rule = paper_parameters(model.clients, model.dropout)
    if rule.complete:
        notes.append(
            f"CCESA's rule gives p* = {rule.connection_probability:.4f}, which is 1 or more: with "
            f"{model.clients} clients and this dropout it allows no sparse graph. The complete graph is used."
        )
        return assess(model, Complete(), rule.threshold)
    notes.append(
        "Parameters by CCESA's rule (Remarks 1 and 4), bounds by its Theorems 5 and 6; no client colludes there."
    )
    probability = rule.connection_probability
    return Guarantee(
        ErdosRenyi(probability),
        rule.threshold,
        probability * (model.clients - 1),
        privacy_bound_log2(model.clients, probability, model.dropout),
        reliability_bound_log2(model.clients, probability, model.dropout, rule.threshold),
    )


def session_costs(
    clients: int, degree: float, bits: int, length: int, *, dropout: float = 0.0, active: bool = False
) -> Costs:
    """Count the bytes of every message of a session, and its key agreements, for a client of this degree."""
    neighbours = math.ceil(degree)
    last = clients - 1  # the largest client number takes the most bytes to write
    terms, key, mark, signature = bytes(32), bytes(KEY_BYTES), bytes(FINGERPRINT_BYTES), bytes(SIGNATURE_BYTES)
    advertisement = messages.Advertisement(terms, last, key, key, signature if active else None)
    marks = messages.Fingerprints(mark, mark)
    envelopes = (messages.Envelope(last, bytes(messages.SEALED_BYTES), marks),) * neighbours
    vector = bytes(Ring(bits).packed_size(length))
    confirmation = messages.Confirmation(terms, last, signature)
    share = messages.SelfShareOf(last, bytes(messages.SELF_SHARE_BYTES))
    uploads: list[messages.Message] = [
        advertisement,
        messages.SharedKeys(terms, last, envelopes, marks, mark),
        messages.MaskedInput(terms, last, vector, signature if active else None),
        messages.Revelation(terms, last, (share,) * (neighbours + 1), ()),
    ]
    members = bytes((clients + 7) // 8)
    announcement = messages.Announcement(terms, members)
    if active:
        statements = (messages.Statement(last, signature),) * neighbours
        announcement = messages.Announcement(terms, members, members, statements)
    downloads: list[messages.Message] = [
        messages.KeyBook(terms, (advertisement,) * (clients if active else neighbours)),
        messages.Deliveries(terms, envelopes),
        announcement,
    ]
    if active:
        uploads.append(confirmation)
        downloads.append(messages.Testimony(terms, (confirmation,) * clients))
    up, down = _size(uploads), _size(downloads)
    return Costs(
        client_upload_bytes=up,
        client_download_bytes=down,
        masked_vector_bytes=len(vector),
        key_agreements=2 * neighbours,
        server_upload_bytes=clients * down,
        server_download_bytes=clients * up,
        server_key_agreements=round(dropout * clients * degree * (1 - dropout)),
    )


def _size(sent: list[messages.Message]) -> int:
    return sum(len(messages.encode(message)) for message in sent)
