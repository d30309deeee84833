"""The end of a two-trip session: secrets are put together from revealed shares, and the masks of the sum come off."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.crypto import shamir
from coterie.crypto.keystream import SEED_BYTES
from coterie.errors import PeerProtocolError, ThresholdError, VerificationError
from coterie.secagg.masking import Map, adds, unmask_circles
from coterie.secagg.prekeys import rules
from coterie.secagg.prekeys.book import PrekeyBook
from coterie.secagg.prekeys.client import pad_stream, xor
from coterie.secagg.prekeys.messages import MaskedContribution

MOST_TRIES = 256
"""Sets of shares that are tried for one secret, where some holders answered with wrong ones."""

#: By dealer, then by the position of the secret among those it dealt, then by holder.
PrekeyShares = Mapping[int, Mapping[int, Mapping[int, bytes]]]


@dataclass(frozen=True, repr=False)
class PrekeyView:
    """Everything that the server of a two-trip session holds; clients are numbers."""

    book: PrekeyBook
    contributions: Mapping[int, MaskedContribution]
    """Without their masked vectors, which are added up as they arrive."""
    sums: Mapping[int, RingVector]
    """For each circle, or 0 where there are none, the sum of its masked vectors."""
    aggregated: frozenset[int]
    signatures: Mapping[int, bytes]
    """On the survivor list."""
    shares: PrekeyShares

    def __repr__(self) -> str:
        return f"<PrekeyView of session {self.book.terms.session.hex()[:8]} (secret)>"


def remove_masks(view: PrekeyView, parallel: Map | None = None) -> RingVector:
    """Return the sum of the aggregated inputs; :class:`ThresholdError` names every client with too few shares."""
    book = view.book
    _check_shares(view)
    added: list[bytes] = []
    subtracted: list[bytes] = []
    good: list[int] = []  # holders whose shares fitted before are tried first
    for client in sorted(view.aggregated):
        foreign = book.foreign_circles(client)
        for place in rules.opened_secrets(book, client, view.aggregated):
            secret = _recover(view, client, place, good)
            if place == 0:
                subtracted.append(secret)
                continue
            for peer, seed in _masks(view, client, foreign[place - 1], secret):
                (subtracted if adds(client, peer) else added).append(seed)
    return unmask_circles(book.terms, view.sums, view.aggregated, added, subtracted, parallel)


def _masks(view: PrekeyView, client: int, circle: int, key: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the members of one other circle, each with the seed of the mask it shares with ``client``."""
    book, members = view.book, view.book.circles[circle]
    before = sum(len(book.circles[place]) for place in book.foreign_circles(client) if place < circle)
    hidden = view.contributions[client].pads[SEED_BYTES * before : SEED_BYTES * (before + len(members))]
    seeds = xor(hidden, pad_stream(book, client, circle, key))
    for place, peer in enumerate(members):
        yield peer, seeds[SEED_BYTES * place : SEED_BYTES * (place + 1)]


def _check_shares(view: PrekeyView) -> None:
    shortfall = {}
    for client in sorted(view.aggregated):
        shares = view.shares.get(client, {})
        fewest = min(len(shares.get(place, ())) for place in rules.opened_secrets(view.book, client, view.aggregated))
        if fewest < view.book.threshold:
            shortfall[view.book.terms.clients[client]] = fewest, view.book.threshold
    if shortfall:
        raise ThresholdError(f"too few shares were revealed to remove the masks of {len(shortfall)} clients", shortfall)


def _recover(view: PrekeyView, client: int, place: int, good: list[int]) -> bytes:
    """Return a secret that fits its mark, from whichever of the shares make it.

    One holder's wrong share must not spoil the sum, nor put the blame on an honest dealer, so other sets of shares are
    tried. The holders that fitted are put first for the next secret.
    """
    shares, threshold, made = view.shares[client][place], view.book.threshold, view.contributions[client]
    mark = (made.seed_mark, *made.key_marks)[place]
    for holders in _subsets(shares, threshold, good):
        try:
            secret = shamir.combine([holder + 1 for holder in holders], [shares[holder] for holder in holders])
        except VerificationError:
            continue
        if rules.secret_mark(view.book.digest, client, place, secret) == mark:
            good[:] = holders
            return secret
    name = view.book.terms.clients[client]
    raise PeerProtocolError(name, "dealt shares that do not fit together, or too many holders sent wrong ones")


def _subsets(shares: Mapping[int, bytes], threshold: int, good: list[int]) -> Iterator[list[int]]:
    """Yield sets of ``threshold`` holders: the one that looks best first, then others in a fixed random order."""
    first = [holder for holder in good if holder in shares]
    holders = first + [holder for holder in sorted(shares) if holder not in set(first)]
    yield holders[:threshold]
    if len(holders) > threshold:
        rng = np.random.default_rng(0)  # which sets are tried is no secret
        for _ in range(MOST_TRIES):
            yield rng.permutation(holders)[:threshold].tolist()
