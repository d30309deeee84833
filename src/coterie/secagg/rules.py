"""What a client insists on before it answers: every refusal that protects it, each under its own name.

The server is not trusted with any of this; it computes the same things only to fail early. Each rule
here is one line of defence against one attack, and the adversary tests switch them off one by one.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache

from coterie.crypto import signing
from coterie.crypto.context import bind, digest, fingerprint
from coterie.errors import PartialSumRisk, PeerProtocolError, ThresholdError, VerificationError
from coterie.graphs.topology import Topology, build
from coterie.secagg.messages import SERVER, Advertisement, Confirmation, Fingerprints, encode_members
from coterie.secagg.terms import Terms


def advertisement_context(terms: Terms, client: int, sealing_key: bytes, masking_key: bytes) -> bytes:
    """What a client signs when it advertises its keys."""
    return bind("advertise", terms.digest, client, sealing_key, masking_key)


def check_advertisement(terms: Terms, advertisement: Advertisement) -> None:
    """Keys must be signed by the client they are said to belong to (against a server that swaps keys)."""
    context = advertisement_context(terms, advertisement.sender, advertisement.sealing_key, advertisement.masking_key)
    if advertisement.signature is None:
        raise VerificationError("an advertisement is not signed")
    signing.verify(terms.identities[advertisement.sender], advertisement.signature, context)


def graph_seed(terms: Terms, advertisements: Collection[Advertisement]) -> bytes:
    """The seed of the assignment graph.

    Against an active server it depends on every signed advertisement, so that neither the server nor any client
    can fix who is whose neighbour before all keys are on the table.
    """
    signed = sorted(advertisements, key=lambda entry: entry.sender) if terms.active else []
    parts = [advertisement_context(terms, entry.sender, entry.sealing_key, entry.masking_key) for entry in signed]
    return digest(bind("graph", terms.digest, *parts))


def self_share_mark(terms: bytes, dealer: int, holder: int, share: bytes) -> bytes:
    """The fingerprint by which anyone recognises the self share that ``dealer`` gave to ``holder``."""
    return fingerprint(bind("self-share", terms, dealer, holder), share)


def key_share_mark(terms: bytes, dealer: int, holder: int, share: bytes) -> bytes:
    """The same for the share of the dealer's masking key."""
    return fingerprint(bind("key-share", terms, dealer, holder), share)


def share_marks(terms: bytes, dealer: int, holder: int, self_share: bytes, key_share: bytes) -> Fingerprints:
    """Both fingerprints together."""
    return Fingerprints(
        self_share_mark(terms, dealer, holder, self_share), key_share_mark(terms, dealer, holder, key_share)
    )


def self_seed_mark(terms: bytes, dealer: int, seed: bytes) -> bytes:
    """The fingerprint by which the server recognises a client's self seed."""
    return fingerprint(bind("self-seed", terms, dealer), seed)


def check_enough(terms: Terms, present: int, shares: int, what: str) -> None:
    """A client goes on only if its own secrets could be recovered from the holders still there.

    It also means that at least a threshold of neighbours really share a mask with it: a server that pretends
    everybody else has left cannot strip a client's pairwise masks.
    """
    needed = terms.threshold_for(shares)
    if present < needed:
        raise ThresholdError(f"only {present} of {shares} share holders {what}; {needed} are needed")


def check_survivors(terms: Terms, seed: bytes, client: int, sharers: Collection[int], told: frozenset[int]) -> None:
    """An announced survivor set must be one that this client can answer to without harm.

    It contains the client itself; no neighbour that never shared a mask with it; enough clients to hide among;
    and a connected graph of those aggregated, without which a partial sum would come to light.
    """
    if client not in told:
        raise PeerProtocolError(SERVER, "announced survivors without this client")
    if not told.intersection(terms.graph(seed).neighbours(client)) <= set(sharers):
        raise PeerProtocolError(SERVER, "announced a survivor that never shared its keys")
    check_aggregate(terms, seed, terms.aggregated(told))


def check_aggregate(terms: Terms, seed: bytes, aggregated: frozenset[int]) -> None:
    """Enough clients to hide among, in one piece."""
    if len(aggregated) < terms.minimum:
        raise ThresholdError(f"{len(aggregated)} clients would be aggregated; the minimum is {terms.minimum}")
    size = len(terms.clients)
    if not _connected(terms.topology, size, seed, encode_members(aggregated, size)):
        raise PartialSumRisk("the graph of the clients to be aggregated falls apart; a partial sum would be exposed")


@lru_cache(maxsize=4)
def _connected(topology: Topology, size: int, seed: bytes, members: bytes) -> bool:
    number = int.from_bytes(members, "little")
    return build(topology, size, seed).connected([node for node in range(size) if number >> node & 1])


def survivors_context(terms: Terms, seed: bytes, survivors: Collection[int]) -> bytes:
    """What a client signs when it is told who survived."""
    return bind("survivors", terms.digest, seed, encode_members(survivors, len(terms.clients)))


def check_testimony(
    terms: Terms, seed: bytes, survivors: frozenset[int], confirmations: Collection[Confirmation]
) -> None:
    """A majority of the roster must have signed the very survivor set this client was told of."""
    context = survivors_context(terms, seed, survivors)
    for entry in confirmations:
        if entry.sender not in survivors:
            raise PeerProtocolError(SERVER, "forwarded the confirmation of a client that did not survive")
        try:
            signing.verify(terms.identities[entry.sender], entry.signature, context)
        except VerificationError:
            raise PeerProtocolError(
                SERVER,
                f"told client {terms.clients[entry.sender]} of other survivors, or forged its confirmation",
            ) from None
    if len(confirmations) < terms.quorum:
        raise ThresholdError(f"{len(confirmations)} clients confirmed the survivors; {terms.quorum} are needed")


def kinds_of_share(dealers: Collection[int], aggregated: frozenset[int]) -> Mapping[int, bool]:
    """For each dealer whether its *self* share may be opened; its *key* share otherwise; never both.

    Decided by the client alone from the survivors and the batch map: a stranded survivor of a broken batch is
    treated as dropped, so its self mask stays on and its input stays hidden.
    """
    return {dealer: dealer in aggregated for dealer in dealers}
