"""The rules a client insists on before it answers: every refusal that protects it, each under its own name.

The server is not trusted with any of this; it computes the same things only to fail early. Each rule
here is one line of defence against one attack, and the adversary tests switch them off one by one.
"""

from collections.abc import Collection, Set
from functools import lru_cache

from coterie.crypto import signing
from coterie.crypto.context import bind, digest, fingerprint
from coterie.errors import PartialSumRisk, PeerProtocolError, ThresholdError, VerificationError
from coterie.graphs.topology import Topology, build
from coterie.secagg.messages import (
    SERVER,
    Advertisement,
    Confirmation,
    Fingerprints,
    SignedMessage,
    Statement,
    encode_members,
)
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


def check_distinct(advertisements: Collection[Advertisement], known: Set[bytes] = frozenset()) -> None:
    """No key is advertised twice: whoever advertises another client's key as its own wants their masks to cancel.

    They would not (:func:`pair_context`); this refuses the attempt where it shows.
    """
    keys = [key for entry in advertisements for key in (entry.sealing_key, entry.masking_key)]
    if len(set(keys)) != len(keys) or not known.isdisjoint(keys):
        raise VerificationError("a key is advertised twice")


def graph_seed(terms: Terms, advertisements: Collection[Advertisement]) -> bytes:
    """The seed of the assignment graph.

    Against an active server it depends on every signed advertisement, so that neither the server nor any client
    can fix who is whose neighbour before all keys are on the table. It is also a name for the whole key book, and
    whatever clients derive, seal or sign from then on is bound to it: what was said under one book does not count
    under another.
    """
    signed = sorted(advertisements, key=lambda entry: entry.sender) if terms.active else []
    parts = [advertisement_context(terms, entry.sender, entry.sealing_key, entry.masking_key) for entry in signed]
    return digest(bind("graph", terms.digest, *parts))


def pair_context(purpose: str, terms: bytes, seed: bytes, client: int, peer: int) -> bytes:
    """What two clients agree on a key for: the purpose, the session, the key book, and both of them.

    Their numbers keep apart what one client agrees on with two peers that advertise one key, the book what it agrees on
    with a peer that joined twice.
    """
    return bind(purpose, terms, seed, *sorted((client, peer)))


def envelope_context(terms: bytes, seed: bytes, dealer: int, holder: int) -> bytes:
    """What an envelope is sealed for."""
    return bind("share", terms, seed, dealer, holder)


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
    """Enough clients to hide among, in one piece, and none of them among colluders only."""
    if len(aggregated) < terms.minimum:
        raise ThresholdError(f"{len(aggregated)} clients would be aggregated; the minimum is {terms.minimum}")
    check_company(terms, seed, aggregated)
    size = len(terms.clients)
    if not _connected(terms.topology, size, seed, encode_members(aggregated, size)):
        raise PartialSumRisk("the graph of the clients to be aggregated falls apart; a partial sum would be exposed")


def check_company(terms: Terms, seed: bytes, aggregated: frozenset[int]) -> None:
    """Against an active server, every aggregated client has an honest neighbour among them.

    At most ``c`` of its neighbours collude, and fewer than ``threshold``, or its secrets were theirs already. On the
    complete graph this is ``|aggregated| >= c + 2``: a sum of one honest input and the colluders' own is that input.
    """
    if not terms.active:
        return
    graph = terms.graph(seed)
    beside = graph.degrees_within(aggregated)
    for client in sorted(aggregated):
        colluding = min(terms.tolerated, terms.threshold_for(graph.degree(client) + 1) - 1)
        if beside[client] <= colluding:
            raise PartialSumRisk(
                f"client {terms.clients[client]} would be aggregated with {beside[client]} neighbours, "
                f"and {colluding} may collude"
            )


@lru_cache(maxsize=4)
def _connected(topology: Topology, size: int, seed: bytes, members: bytes) -> bool:
    number = int.from_bytes(members, "little")
    return build(topology, size, seed).connected([node for node in range(size) if number >> node & 1])


def masks_context(terms: Terms, seed: bytes, client: int, carried: Collection[int]) -> bytes:
    """What a client signs when it sends its masked input: which neighbours' masks the input carries."""
    return bind("masks", terms.digest, seed, client, encode_members(carried, len(terms.clients)))


def check_statement(terms: Terms, seed: bytes, client: int, sharers: Collection[int], signature: bytes | None) -> bytes:
    """A masked input must carry the masks of exactly those neighbours that shared their keys, and its owner say so.

    Returns the signature that says it.
    """
    if signature is None:
        raise VerificationError("a masked input comes without a statement of its masks")
    carried = set(sharers).intersection(terms.graph(seed).neighbours(client))
    signing.verify(terms.identities[client], signature, masks_context(terms, seed, client, carried))
    return signature


def check_statements(
    terms: Terms,
    seed: bytes,
    peers: Collection[int],
    aggregated: frozenset[int],
    sharers: frozenset[int],
    statements: Collection[Statement],
) -> None:
    """Nobody helps to open the self mask of a client without its own word on which masks lie beneath it.

    Each of the ``peers``, this client's neighbours, that is to be aggregated must have signed that its input carries
    the masks of all its aggregated neighbours. Otherwise a server that delivers too few envelopes, then says
    that those who sent them were lost, has every mask of an input but the self mask, and the holders open that.

    Peers whose shares this client does not hold are asked for their word too: one that gives none under this key book
    may not be there at all, and its key may be known from another session or another book.
    """
    graph = terms.graph(seed)
    signed = {entry.client: entry.signature for entry in statements}
    for peer in sorted(aggregated.intersection(peers)):
        name = terms.clients[peer]
        if not aggregated.intersection(graph.neighbours(peer)) <= sharers:
            raise PeerProtocolError(SERVER, f"aggregates client {name} with neighbours whose masks it does not carry")
        try:
            check_statement(terms, seed, peer, sharers, signed.get(peer))
        except VerificationError:
            raise PeerProtocolError(SERVER, f"has no word of client {name} that it carries these masks") from None


def survivors_context(terms: Terms, seed: bytes, survivors: Collection[int]) -> bytes:
    """What a client signs when it is told who survived."""
    return bind("survivors", terms.digest, seed, encode_members(survivors, len(terms.clients)))


def check_testimony(
    terms: Terms, seed: bytes, survivors: frozenset[int], confirmations: Collection[Confirmation]
) -> None:
    """A quorum of the roster must have signed the very survivor set this client was told of."""
    check_quorum(terms, survivors_context(terms, seed, survivors), survivors, confirmations)


def check_quorum(
    terms: Terms, context: bytes, survivors: Collection[int], confirmations: Collection[SignedMessage]
) -> None:
    """Enough survivors, each once, must have signed ``context``, which names one survivor set."""
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
    if len({entry.sender for entry in confirmations}) < terms.quorum:
        raise ThresholdError(f"{len(confirmations)} clients confirmed the survivors; {terms.quorum} are needed")


def kinds_of_share(dealers: Collection[int], aggregated: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
    """The dealers whose *self* share may be opened, and those whose *key* share may; nobody is ever among both.

    Decided by the client alone from the survivors and the circle map: a stranded survivor of a broken circle is
    treated as dropped, so its self mask stays on and its input stays hidden.
    """
    return aggregated.intersection(dealers), frozenset(dealers) - aggregated
