"""The rules that a client checks before it answers. Each refusal that protects a client is one function here.

The server is not trusted with any of this. It computes the same only to fail early. Each rule prevents one attack, and
the adversary tests switch the rules off one by one.
"""

from collections.abc import Collection, Container, Set
from functools import lru_cache

import numpy as np

from coterie.crypto import signing
from coterie.crypto.context import bind, digest, fingerprint
from coterie.errors import PartialSumRisk, PeerProtocolError, ThresholdError, VerificationError
from coterie.graphs.topology import Topology, build
from coterie.secagg.members import Members
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
    """Return what a client signs when it advertises its keys."""
    return bind("advertise", terms.digest, client, sealing_key, masking_key)


def check_advertisement(terms: Terms, advertisement: Advertisement) -> None:
    """Refuse keys that their owner did not sign: the server may have replaced them."""
    context = advertisement_context(terms, advertisement.sender, advertisement.sealing_key, advertisement.masking_key)
    if advertisement.signature is None:
        raise VerificationError("an advertisement is not signed")
    signing.verify(terms.identities[advertisement.sender], advertisement.signature, context)


def check_distinct(advertisements: Collection[Advertisement], known: Set[bytes] = frozenset()) -> None:
    """Refuse a key that is advertised twice. A colluder may copy another client's key, so that their masks cancel.

    The masks would not cancel (:func:`pair_context`); this rule refuses the attempt.
    """
    keys = [key for entry in advertisements for key in (entry.sealing_key, entry.masking_key)]
    if len(set(keys)) != len(keys) or not known.isdisjoint(keys):
        raise VerificationError("a key is advertised twice")


def graph_seed(terms: Terms, advertisements: Collection[Advertisement]) -> bytes:
    """Return the seed of the assignment graph.

    Against an active server it depends on every signed advertisement. So neither the server nor a client can choose
    neighbours before all keys are known. The seed also names the whole key book. Everything that clients derive, seal
    or sign afterwards is bound to it, and is worthless under another book.
    """
    signed = sorted(advertisements, key=lambda entry: entry.sender) if terms.active else []
    parts = [advertisement_context(terms, entry.sender, entry.sealing_key, entry.masking_key) for entry in signed]
    return digest(bind("graph", terms.digest, *parts))


def pair_context(purpose: str, terms: bytes, seed: bytes, client: int, peer: int) -> bytes:
    """Return what a key between two clients is bound to: the purpose, the session, the key book, and both clients.

    With their numbers, one client derives different keys with two peers that advertise the same key. With the book, it
    derives different keys with a peer that joined twice.
    """
    return bind(purpose, terms, seed, *sorted((client, peer)))


def envelope_context(terms: bytes, seed: bytes, dealer: int, holder: int) -> bytes:
    """Return what an envelope is bound to."""
    return bind("share", terms, seed, dealer, holder)


def self_share_mark(terms: bytes, dealer: int, holder: int, share: bytes) -> bytes:
    """Return the fingerprint of the self share that ``dealer`` gave to ``holder``; anyone can compare it."""
    return fingerprint(bind("self-share", terms, dealer, holder), share)


def key_share_mark(terms: bytes, dealer: int, holder: int, share: bytes) -> bytes:
    """Return the fingerprint of the share of the dealer's masking key."""
    return fingerprint(bind("key-share", terms, dealer, holder), share)


def share_marks(terms: bytes, dealer: int, holder: int, self_share: bytes, key_share: bytes) -> Fingerprints:
    """Return both fingerprints."""
    return Fingerprints(
        self_share_mark(terms, dealer, holder, self_share), key_share_mark(terms, dealer, holder, key_share)
    )


def self_seed_mark(terms: bytes, dealer: int, seed: bytes) -> bytes:
    """Return the fingerprint of a client's self seed, which the server compares."""
    return fingerprint(bind("self-seed", terms, dealer), seed)


def check_enough(terms: Terms, present: int, shares: int, what: str) -> None:
    """Refuse to continue if too few share holders are left to recover this client's own secrets.

    Then at least a threshold of neighbours share a mask with it. A server that pretends that everybody else has dropped
    out cannot remove a client's pairwise masks.
    """
    needed = terms.threshold_for(shares)
    if present < needed:
        raise ThresholdError(f"only {present} of {shares} share holders {what}; {needed} are needed")


def check_survivors(terms: Terms, seed: bytes, client: int, sharers: Collection[int], announced: Members) -> None:
    """Refuse a survivor set that this client must not answer.

    The set must contain the client itself, and no neighbour that never shared a mask with it. The clients to be
    aggregated must be enough, and their graph connected: otherwise a partial sum would be revealed.
    """
    if client not in announced:
        raise PeerProtocolError(SERVER, "announced survivors without this client")
    if not announced.among(terms.graph(seed).neighbours(client)) <= set(sharers):
        raise PeerProtocolError(SERVER, "announced a survivor that never shared its keys")
    check_aggregate(terms, seed, terms.summed(announced))


def check_aggregate(terms: Terms, seed: bytes, aggregated: Set[int]) -> None:
    """Refuse a sum over too few clients, over a graph that is not connected, or with a client among colluders only."""
    if len(aggregated) < terms.minimum:
        raise ThresholdError(f"{len(aggregated)} clients would be aggregated; the minimum is {terms.minimum}")
    members = Members.of(aggregated, len(terms.clients))
    check_company(terms, seed, members)
    if not _connected(terms.topology, members.size, seed, members.bits):
        raise PartialSumRisk(
            "the graph of the clients to be aggregated is disconnected; a partial sum would be exposed"
        )


def check_company(terms: Terms, seed: bytes, aggregated: Members) -> None:
    """Against an active server, refuse a sum in which a client may have no honest neighbour.

    At most ``c`` of a client's neighbours collude, and fewer than its threshold: otherwise they would hold its secrets.
    On the complete graph the rule is ``|aggregated| >= c + 2``, because a sum of one honest input and the colluders'
    inputs reveals the honest one.
    """
    if not terms.active:
        return
    graph, inside = terms.graph(seed), aggregated.flags
    beside = graph.degrees_within(np.flatnonzero(inside))
    degrees, places = np.unique(graph.degrees(), return_inverse=True)
    most = [min(terms.tolerated, terms.threshold_for(degree + 1) - 1) for degree in degrees.tolist()]
    colluding = np.array(most)[places]
    lonely = np.flatnonzero(inside & (beside <= colluding))
    if lonely.size:
        client = int(lonely[0])
        raise PartialSumRisk(
            f"client {terms.clients[client]} would be aggregated with {beside[client]} neighbours, "
            f"and {colluding[client]} may collude"
        )


@lru_cache(maxsize=4)
def _connected(topology: Topology, size: int, seed: bytes, members: bytes) -> bool:
    """Return whether the clients of a bitmap are connected; in one process many clients ask for the same."""
    return build(topology, size, seed).connected(np.flatnonzero(Members(members, size).flags))


def masks_context(terms: Terms, seed: bytes, client: int, carried: Collection[int]) -> bytes:
    """Return what a client signs with its masked input: which neighbours' masks the input carries."""
    return bind("masks", terms.digest, seed, client, encode_members(carried, len(terms.clients)))


def check_statement(terms: Terms, seed: bytes, client: int, sharers: Members, signature: bytes | None) -> bytes:
    """Refuse a masked input unless its owner signed that it carries the masks of exactly the neighbours that shared.

    Returns the signature.
    """
    if signature is None:
        raise VerificationError("a masked input comes without a statement of its masks")
    carried = Members.flagged(terms.graph(seed).neighbourhood(client) & sharers.flags)
    signing.verify(terms.identities[client], signature, masks_context(terms, seed, client, carried))
    return signature


def check_statements(
    terms: Terms,
    seed: bytes,
    peers: Collection[int],
    aggregated: Members,
    sharers: Members,
    statements: Collection[Statement],
) -> None:
    """Refuse to open self masks unless their owners signed which pairwise masks their inputs carry.

    Each of the ``peers``, this client's neighbours, that is to be aggregated must have signed that its input carries
    the masks of all its aggregated neighbours. Otherwise a server could deliver too few envelopes, and then announce
    that their senders dropped out. It would have every mask of an input except the self mask, which the holders open.

    The statement is also needed from peers whose shares this client does not hold. A peer that signed nothing under
    this key book may be absent, and its key may be known from another session or another book.
    """
    graph = terms.graph(seed)
    signed = {entry.client: entry.signature for entry in statements}
    covered = sharers.covers(aggregated)  # then so is everybody's neighbourhood
    for peer in sorted(aggregated.among(peers)):
        name = terms.clients[peer]
        if not covered and not aggregated.among(graph.neighbours(peer)) <= sharers:
            raise PeerProtocolError(SERVER, f"aggregates client {name} with neighbours whose masks it does not carry")
        try:
            check_statement(terms, seed, peer, sharers, signed.get(peer))
        except VerificationError:
            raise PeerProtocolError(SERVER, f"has no word of client {name} that it carries these masks") from None


def survivors_context(terms: Terms, seed: bytes, survivors: Collection[int]) -> bytes:
    """Return what a client signs when the survivors are announced to it."""
    return bind("survivors", terms.digest, seed, encode_members(survivors, len(terms.clients)))


def check_testimony(
    terms: Terms, seed: bytes, survivors: Members, confirmations: Collection[Confirmation], own: int
) -> None:
    """Refuse unless a quorum of all clients signed the survivor set that was announced to this client, ``own``."""
    check_quorum(terms, survivors_context(terms, seed, survivors), survivors, confirmations, own)


def check_quorum(
    terms: Terms,
    context: bytes,
    survivors: Container[int],
    confirmations: Collection[SignedMessage],
    own: int | None = None,
) -> None:
    """Refuse unless a quorum of survivors, each counted once, signed ``context``, which names one survivor set.

    ``own`` is this client, if it signed the context itself. Its signature is then not verified: it made it, and signs
    one set only. Of the others, as many are verified as a quorum takes. Two survivor sets that both have a quorum have
    an honest signer in common, whoever else signed either of them; so a signature beyond the quorum, true or forged,
    proves nothing that the quorum does not. Without ``own``, all are verified.
    """
    if not all(entry.sender in survivors for entry in confirmations):
        raise PeerProtocolError(SERVER, "forwarded the confirmation of a client that did not survive")
    signed = {entry.sender for entry in confirmations if entry.sender == own}
    for entry in confirmations:
        if own is not None and len(signed) >= terms.quorum:
            return
        if entry.sender == own:
            continue
        try:
            signing.verify(terms.identities[entry.sender], entry.signature, context)
        except VerificationError:
            raise PeerProtocolError(
                SERVER,
                f"told client {terms.clients[entry.sender]} of other survivors, or forged its confirmation",
            ) from None
        signed.add(entry.sender)
    if len(signed) < terms.quorum:
        raise ThresholdError(f"{len(confirmations)} clients confirmed the survivors; {terms.quorum} are needed")


def kinds_of_share(dealers: Collection[int], aggregated: Container[int]) -> tuple[frozenset[int], frozenset[int]]:
    """Return the dealers whose *self* share may be opened, and those whose *key* share may; no dealer is in both.

    The client decides this alone, from the survivors and the circle map. A survivor whose circle is broken is treated
    as dropped: its self mask is never removed, and its input stays hidden.
    """
    opens_self = frozenset(dealer for dealer in dealers if dealer in aggregated)
    return opens_self, frozenset(dealers) - opens_self
