"""Masks, as clients add them and the server removes them: their seeds, their signs, and slices of long vectors."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from coterie.arithmetic.ring import RingVector
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.keystream import BLOCK_BYTES, SEED_BYTES, apply_masks
from coterie.secagg import rules
from coterie.secagg.messages import Advertisement
from coterie.secagg.terms import Terms

#: A function that runs another one over slices, such as the ``map`` of an executor, to use several cores.
Map = Callable[[Callable[[slice], None], Sequence[slice]], Iterable[Any]]

#: The largest number of slices of a vector, and the least length of a slice: each slice has to set up every cipher.
MOST_SLICES = 8
LEAST_SLICE = 1 << 15


def pair_seed(key: PrivateKey, me: int, peer: Advertisement, terms: bytes, seed: bytes) -> bytes:
    """Return the seed of the mask between two clients; each computes it from its own key and the other's public key."""
    context = rules.pair_context("pair-mask", terms, seed, me, peer.sender)
    return key.agree(peer.masking_key, context, SEED_BYTES)


def adds(client: int, peer: int) -> bool:
    """Return whether ``client`` adds the mask in common with ``peer``: the smaller number adds, the other subtracts."""
    return client < peer


def mask_vector(
    vector: RingVector, added: Sequence[bytes], subtracted: Sequence[bytes], parallel: Map | None = None
) -> None:
    """Add and subtract the masks of many seeds, in place. With ``parallel``, slices are processed at the same time."""

    def mask(part: slice) -> None:
        apply_masks(vector[part], added, subtracted, start=part.start)

    if parallel is None:
        mask(slice(0, len(vector)))
        return
    blocks = -(-len(vector) // (MOST_SLICES * BLOCK_BYTES))
    size = max(blocks * BLOCK_BYTES, LEAST_SLICE)
    for _ in parallel(mask, [slice(first, first + size) for first in range(0, len(vector), size)]):
        pass


def unmask_circles(
    terms: Terms,
    sums: Mapping[int, RingVector],
    aggregated: Collection[int],
    added: Sequence[bytes],
    subtracted: Sequence[bytes],
    parallel: Map | None = None,
) -> RingVector:
    """Add up the masked sums of the aggregated clients' circles, and add and subtract the masks of these seeds."""
    total = terms.ring.zeros(terms.length)
    for circle in {terms.circle_of(client) for client in aggregated}:
        total += sums[circle]
    mask_vector(total, added, subtracted, parallel)
    terms.ring.reduce(total)
    return total
