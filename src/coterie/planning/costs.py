"""The costs of a session: its bytes and operations, and the cost of withstanding colluders."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from coterie.arithmetic.ring import Ring
from coterie.crypto.agreement import KEY_BYTES
from coterie.crypto.context import FINGERPRINT_BYTES
from coterie.crypto.signing import SIGNATURE_BYTES
from coterie.errors import ConfigError
from coterie.graphs.guarantees import majority_threshold, quorum_of
from coterie.graphs.tails import log_binomial
from coterie.secagg import messages
from coterie.secagg.steps import TABLE, Step
from coterie.secagg.terms import default_colluders

#: The probabilities of leaving in a step for which the cost of withstanding colluders is shown.
LEAVING = (0.05, 0.1)
_LARGEST_VECTOR = 2**32 - 1  # largest size of one msgpack value, in bytes
_WRITTEN = 2**16  # the length field of longer vectors takes no more bytes


@dataclass(frozen=True)
class Costs:
    """Bytes and X25519 agreements of a session without dropouts.

    The bytes are lengths of real messages, filled with zeros; of a long vector only the beginning is written, and the
    rest is added. The server also makes an agreement for each pair of a client that dropped out after sharing and a
    surviving neighbour: ``server_key_agreements`` is their expected number.
    """

    client_upload_bytes: int
    client_download_bytes: int
    masked_vector_bytes: int
    key_agreements: int
    signature_checks: int
    server_upload_bytes: int
    server_download_bytes: int
    server_key_agreements: int

    @property
    def client_bytes(self) -> int:
        """Everything one client sends and receives."""
        return self.client_upload_bytes + self.client_download_bytes


@dataclass(frozen=True)
class Price:
    """The cost of withstanding a number of colluders: more clients must stay to sign, so rounds fail more often."""

    colluders: int
    quorum: int
    failed_rounds: dict[float, float]
    """The probability of a failed round, by the probability that a client leaves in a step (complete graph)."""


def session_costs(
    clients: int,
    degree: float,
    bits: int,
    length: int,
    *,
    lost: float = 0.0,
    active: bool = False,
    colluders: int = 0,
) -> Costs:
    """Count the bytes and the operations of a session, for a client of this degree, if no client is lost.

    ``lost`` and ``colluders`` change one number each: the key agreements of the server, and the signatures that a
    client verifies, because more of them make a quorum.
    """
    if length < 1:
        raise ConfigError(f"a vector has at least 1 number, not {length:,}")
    neighbours = math.ceil(degree)
    last = clients - 1  # the largest client number takes the most bytes to write
    terms, key, mark, signature = bytes(32), bytes(KEY_BYTES), bytes(FINGERPRINT_BYTES), bytes(SIGNATURE_BYTES)
    advertisement = messages.Advertisement(terms, last, key, key, signature if active else None)
    marks = messages.Fingerprints(mark, mark)
    envelopes = (messages.Envelope(last, bytes(messages.SEALED_BYTES), marks),) * neighbours
    vector = Ring(bits).packed_size(length)
    if vector > _LARGEST_VECTOR:
        raise ConfigError(
            f"a vector of {length:,} numbers of {bits} bits has {vector:,} bytes, and a message holds at most "
            f"{_LARGEST_VECTOR:,}: lower the length, or sum the vector in several sessions"
        )
    written = bytes(min(vector, _WRITTEN))
    confirmation = messages.Confirmation(terms, last, signature)
    share = messages.SelfShareOf(last, bytes(messages.SELF_SHARE_BYTES))
    uploads: list[messages.Message] = [
        advertisement,
        messages.SharedKeys(terms, last, envelopes, marks, mark),
        messages.MaskedInput(terms, last, memoryview(written), signature if active else None),
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
    up, down = _size(uploads) + vector - len(written), _size(downloads)
    return Costs(
        client_upload_bytes=up,
        client_download_bytes=down,
        masked_vector_bytes=vector,
        key_agreements=2 * neighbours,
        # The keys of all others, the statements of neighbours, and the confirmations of a quorum except its own.
        signature_checks=last + neighbours + quorum_of(clients, colluders) - 1 if active else 0,
        server_upload_bytes=clients * down,
        server_download_bytes=clients * up,
        server_key_agreements=round(lost * clients * degree * (1 - lost)),
    )


def _size(sent: list[messages.Message]) -> int:
    return sum(len(messages.encode(message)) for message in sent)


def price_colluders(clients: int, planned: int) -> tuple[Price, ...]:
    """Return the cost of several numbers of colluders, including 0, the ``planned`` number and the default."""
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
    """Return the probability that a round against a malicious server fails on the complete graph.

    Each client leaves with probability ``leaving`` in each step, independently. A quorum must stay to confirm, and of
    those, a threshold must stay to reveal.
    """
    quorum = quorum_of(clients, colluders)
    threshold = max(majority_threshold(clients), colluders + 1)
    before = [row.step for row in TABLE].index(Step.CONFIRM) + 1
    enough = np.arange(max(quorum, threshold), clients + 1)
    confirming = np.exp(log_binomial(clients, (1 - leaving) ** before)[enough])
    revealing = bdtrc(threshold - 1, enough, 1 - leaving)  # P(Bin(enough, 1 - leaving) >= threshold)
    return max(0.0, 1 - float(confirming @ revealing))
