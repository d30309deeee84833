"""The end of a session: secrets are put together from revealed shares, and the masks of the sum come off.

It takes nothing but a :class:`View`, all that a server holds: what cannot be computed from it, no server can compute.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from coterie.arithmetic.ring import RingVector
from coterie.crypto import shamir
from coterie.crypto.agreement import PrivateKey
from coterie.errors import PeerProtocolError, ThresholdError, VerificationError
from coterie.graphs.topology import Graph
from coterie.secagg import rules
from coterie.secagg.masking import Map, adds, pair_seed, unmask_circles
from coterie.secagg.messages import Advertisement, Confirmation
from coterie.secagg.terms import Terms

#: By dealer, then by holder.
SharesOf = Mapping[int, Mapping[int, bytes]]


@dataclass(frozen=True, repr=False)
class View:
    """Everything that the server of a session holds; clients are numbers."""

    terms: Terms
    seed: bytes
    """The graph's seed, which names the key book; empty until the first step is closed."""
    advertisements: Mapping[int, Advertisement]
    sharers: frozenset[int]
    seed_marks: Mapping[int, bytes]
    """Commitments to the sharers' self seeds."""
    survivors: frozenset[int]
    statements: Mapping[int, bytes]
    """Signatures of the survivors over the masks that their inputs carry."""
    sums: Mapping[int, RingVector]
    """For each circle, or 0 where there are none, the sum of its masked inputs."""
    aggregated: frozenset[int]
    confirmations: Mapping[int, Confirmation]
    self_shares: SharesOf
    key_shares: SharesOf

    def __repr__(self) -> str:
        return f"<View of session {self.terms.session.hex()[:8]} (secret)>"

    @property
    def graph(self) -> Graph:
        """The assignment graph."""
        return self.terms.graph(self.seed)

    def threshold(self, client: int) -> int:
        """How many shares open this client's secrets."""
        return self.terms.threshold_for(self.graph.degree(client) + 1)

    def opened(self, shares: SharesOf, client: int) -> bool:
        """Whether enough shares of one of this client's secrets are there."""
        return len(shares.get(client, ())) >= self.threshold(client)


def remove_masks(view: View, parallel: Map | None = None) -> RingVector:
    """Return the sum of the aggregated inputs.

    Raises :class:`ThresholdError`, naming every client concerned, where a client that is aggregated, or one that left a
    mask on somebody who is, has fewer revealed shares than its threshold: exactly when Theorem 1 of Choi et al. (2020)
    says that the sum cannot be had.
    """
    terms, graph, aggregated = view.terms, view.graph, view.aggregated
    marked = {client: aggregated.intersection(graph.neighbours(client)) for client in view.sharers - aggregated}
    left = {client: peers for client, peers in marked.items() if peers}
    _check_informative(view, aggregated, left)
    added: list[bytes] = []
    subtracted = [_recover_seed(view, client) for client in aggregated]
    for client, peers in left.items():
        key = _recover_key(view, client)
        for peer in peers:
            seeds = subtracted if adds(peer, client) else added
            seeds.append(pair_seed(key, client, view.advertisements[peer], terms.digest, view.seed))
    return unmask_circles(terms, view.sums, aggregated, added, subtracted, parallel)


def _check_informative(view: View, aggregated: Collection[int], left: Collection[int]) -> None:
    shortfall = {
        view.terms.clients[client]: (len(shares.get(client, ())), view.threshold(client))
        for clients, shares in ((aggregated, view.self_shares), (left, view.key_shares))
        for client in clients
        if not view.opened(shares, client)
    }
    if shortfall:
        raise ThresholdError(f"too few shares were revealed to remove the masks of {len(shortfall)} clients", shortfall)


def _recover_seed(view: View, client: int) -> bytes:
    seed = _combine(view, client, view.self_shares[client])
    if rules.self_seed_mark(view.terms.digest, client, seed) != view.seed_marks[client]:
        raise PeerProtocolError(view.terms.clients[client], "dealt shares of its self seed that do not fit together")
    return seed


def _recover_key(view: View, client: int) -> PrivateKey:
    key = PrivateKey(_combine(view, client, view.key_shares[client]))
    if key.public != view.advertisements[client].masking_key:
        raise PeerProtocolError(view.terms.clients[client], "dealt shares of another key than it advertised")
    return key


def _combine(view: View, client: int, shares: Mapping[int, bytes]) -> bytes:
    holders = sorted(shares)[: view.threshold(client)]
    try:
        return shamir.combine([holder + 1 for holder in holders], [shares[holder] for holder in holders])
    except VerificationError as error:
        raise PeerProtocolError(view.terms.clients[client], str(error)) from None
