"""The end of a two-trip session: the data of the server, and the removal of masks from the sum."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from coterie.arithmetic.ring import RingVector
from coterie.crypto.keystream import SEED_BYTES
from coterie.secagg.masking import Map, adds, unmask_circles
from coterie.secagg.prekeys.book import PrekeyBook
from coterie.secagg.prekeys.client import pad_stream, xor
from coterie.secagg.prekeys.messages import MaskedContribution

Secrets = Mapping[tuple[int, int], bytes]
"""Secrets by client, and by their position among those that the client dealt."""

#: Shares by dealer, then by the position of the secret among those it dealt, then by holder.
PrekeyShares = Mapping[int, Mapping[int, Mapping[int, bytes]]]


@dataclass(frozen=True, repr=False)
class PrekeyView:
    """Everything that the server of a two-trip session holds; clients are numbers."""

    book: PrekeyBook
    contributions: Mapping[int, MaskedContribution]
    """Without their masked vectors, which are added up as they arrive."""
    sums: Mapping[int, RingVector]
    """The sum of the masked vectors of each circle; without circles, all in circle 0."""
    aggregated: frozenset[int]
    signatures: Mapping[int, bytes]
    """Signatures on the survivor list."""
    revealers: frozenset[int]
    """Clients that answered in the last trip."""
    shares: PrekeyShares

    def __repr__(self) -> str:
        return f"<PrekeyView of session {self.book.terms.session.hex()[:8]} (secret)>"


def remove_masks(view: PrekeyView, secrets: Secrets, parallel: Map | None = None) -> RingVector:
    """Return the sum of the aggregated inputs, given all secrets that the survivor list opens."""
    book = view.book
    added: list[bytes] = []
    subtracted: list[bytes] = []
    for (client, place), secret in secrets.items():
        if place == 0:
            subtracted.append(secret)
            continue
        for peer, seed in _masks(view, client, book.foreign_circles(client)[place - 1], secret):
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
