"""The end of a session: the server recovers secrets from revealed shares, and removes the masks of the sum.

Everything is computed from a :class:`View`, which contains all data of a server.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from coterie.arithmetic.ring import RingVector
from coterie.crypto import shamir
from coterie.crypto.agreement import PrivateKey
from coterie.errors import PeerProtocolError, ThresholdError, VerificationError
from coterie.graphs.topology import Graph
from coterie.secagg import rules
from coterie.secagg.masking import Map, adds, pair_seed, unmask_circles
from coterie.secagg.messages import Advertisement, Confirmation, Fingerprints
from coterie.secagg.terms import Terms

#: Shares by dealer, then by holder.
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
    """The sum of the masked inputs of each circle; without circles, all in circle 0."""
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
        """The number of shares that reconstruct this client's secrets."""
        return self.terms.threshold_for(self.graph.degree(client) + 1)

    def thresholds(self, clients: Collection[int]) -> dict[int, int]:
        """The number of shares that reconstruct the secrets of each of these clients."""
        degrees = self.graph.degrees().tolist()
        needed = {degree: self.terms.threshold_for(degree + 1) for degree in set(degrees)}
        return {client: needed[degrees[client]] for client in clients}

    def opened(self, shares: SharesOf, client: int) -> bool:
        """Whether enough shares of one of this client's secrets have arrived."""
        return len(shares.get(client, ())) >= self.threshold(client)


def remove_masks(view: View, parallel: Map | None = None) -> RingVector:
    """Return the sum of the aggregated inputs.

    Raises :class:`ThresholdError` if too few shares are revealed of an aggregated client, or of another client that
    left a mask on an aggregated one. The error names all such clients. By Theorem 1 of Choi et al. (2020) these are
    exactly the cases in which the sum cannot be computed.
    """
    terms, graph, aggregated = view.terms, view.graph, view.aggregated
    marked = {client: aggregated.intersection(graph.neighbours(client)) for client in view.sharers - aggregated}
    left = {client: peers for client, peers in marked.items() if peers}
    _check_informative(view, aggregated, left)
    added: list[bytes] = []
    subtracted = list(_recover_seeds(view, aggregated))
    for key, (client, peers) in zip(_recover_keys(view, left), left.items(), strict=True):
        for peer in peers:
            seeds = subtracted if adds(peer, client) else added
            seeds.append(pair_seed(key, client, view.advertisements[peer], terms.digest, view.seed))
    return unmask_circles(terms, view.sums, aggregated, added, subtracted, parallel)


def wrong_shares(view: View, committed: Mapping[int, Mapping[int, Fingerprints]]) -> dict[int, str]:
    """Return the holders that revealed shares that do not fit the dealers' commitments, with the reasons.

    The reason names the first dealer whose share is wrong.
    """
    found: dict[int, str] = {}
    for dealer, holder, share in _each(view.self_shares):
        if rules.self_share_mark(view.terms.digest, dealer, holder, share) != committed[holder][dealer].self_share:
            found.setdefault(holder, f"revealed a wrong self share of client {dealer}")
    for dealer, holder, share in _each(view.key_shares):
        if rules.key_share_mark(view.terms.digest, dealer, holder, share) != committed[holder][dealer].key_share:
            found.setdefault(holder, f"revealed a wrong key share of client {dealer}")
    return dict(sorted(found.items()))


def _each(shares: SharesOf) -> Iterator[tuple[int, int, bytes]]:
    for dealer, held in sorted(shares.items()):
        for holder, share in held.items():
            yield dealer, holder, share


def _check_informative(view: View, aggregated: Collection[int], left: Collection[int]) -> None:
    shortfall = {
        view.terms.clients[client]: (len(shares.get(client, ())), threshold)
        for clients, shares in ((aggregated, view.self_shares), (left, view.key_shares))
        for client, threshold in view.thresholds(clients).items()
        if len(shares.get(client, ())) < threshold
    }
    if shortfall:
        raise ThresholdError(f"too few shares were revealed to remove the masks of {len(shortfall)} clients", shortfall)


def _recover_seeds(view: View, clients: Collection[int]) -> Iterator[bytes]:
    for client, seed in zip(clients, _combine(view, clients, view.self_shares), strict=True):
        if rules.self_seed_mark(view.terms.digest, client, seed) != view.seed_marks[client]:
            raise PeerProtocolError(
                view.terms.clients[client], "dealt shares of its self seed that do not fit together"
            )
        yield seed


def _recover_keys(view: View, clients: Collection[int]) -> Iterator[PrivateKey]:
    for client, secret in zip(clients, _combine(view, clients, view.key_shares), strict=True):
        key = PrivateKey(secret)
        if key.public != view.advertisements[client].masking_key:
            raise PeerProtocolError(view.terms.clients[client], "dealt shares of another key than it advertised")
        yield key


def _combine(view: View, clients: Collection[int], shares: SharesOf) -> list[bytes]:
    """Return the secrets of these clients, in order; those with the same threshold are recovered together."""
    alike: dict[int, list[int]] = {}
    for client, threshold in view.thresholds(clients).items():
        alike.setdefault(threshold, []).append(client)
    secrets: dict[int, bytes] = {}
    for threshold, some in alike.items():
        holders = [sorted(shares[client])[:threshold] for client in some]
        points = [[holder + 1 for holder in chosen] for chosen in holders]
        opened = [[shares[client][holder] for holder in chosen] for client, chosen in zip(some, holders, strict=True)]
        try:
            secrets |= zip(some, shamir.combine_many(points, opened), strict=True)
        except VerificationError:
            _blame(view, some, points, opened)
            raise
    return [secrets[client] for client in clients]


def _blame(
    view: View, clients: Sequence[int], points: Sequence[Sequence[int]], shares: Sequence[Sequence[bytes]]
) -> None:
    """Blame the first client whose shares do not combine: the holders sent the shares that it committed to."""
    for client, at, opened in zip(clients, points, shares, strict=True):
        try:
            shamir.combine(at, opened)
        except VerificationError as error:
            raise PeerProtocolError(view.terms.clients[client], str(error)) from None
