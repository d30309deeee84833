"""The secrets of a two-trip session, reconstructed from revealed shares, and the clients at fault if shares are wrong.

Dealers commit to their secrets, not to single shares. So a secret is checked when it is reconstructed, and other sets
of shares are tried if it does not fit its mark. A secret that fits does not prove that its shares are right, because
holders can choose errors that cancel. Suppose that at most f clients break the protocol. Then all shares of an honest
dealer except at most f are on one polynomial. A share counts as wrong only if no other polynomial is possible
(:func:`coterie.crypto.shamir.prove_wrong_points`).

A share that is wrong, malformed or missing from an answer is a *dispute*: the dealer sealed something wrong for the
holder, or the holder sent something else than it received. The server cannot see which. But it can count. A client has
provably broken the protocol if

* it is in dispute with more than f others, because at most f of these broke the protocol;
* its own share of its own secret is wrong;
* no set of shares opens its secret, although so many holders answered that at least t of them are honest.

A proven client is removed with its disputes, f becomes smaller, and the rest is counted again. f is the number of
colluders that the terms withstand, and at least 1. If more than f clients would be at fault, no client is proven.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from coterie.crypto import shamir
from coterie.errors import Blame, ThresholdError, VerificationError, WrongShares
from coterie.secagg.prekeys import rules
from coterie.secagg.prekeys.unmasking import PrekeyView, Secrets

MOST_TRIES = 1000
"""The most sets of shares that are tried for one secret, besides the two most promising ones."""

Dispute = tuple[int, int]
"""The dealer and the holder of a share that does not fit or is missing."""

Held = Mapping[int, bytes]
"""The shares of one secret that were revealed, by holder."""


@dataclass(frozen=True, repr=False)
class _Opened:
    """A secret that fits its mark, and the holders from whose shares it was reconstructed."""

    secret: bytes
    holders: Sequence[int]
    at_once: bool
    """Whether it came from the first shares that were tried."""


def recover_secrets(view: PrekeyView) -> tuple[Secrets, Blame]:
    """Return all secrets that the survivor list opens, and the clients that dealt or sent wrong shares.

    Raises :class:`WrongShares` if a secret cannot be reconstructed from the answers, and :class:`ThresholdError` if
    there are too few answers.
    """
    book, names = view.book, view.book.terms.clients
    if len(view.revealers) < book.threshold:
        shortfall = {names[client]: (len(view.revealers), book.threshold) for client in sorted(view.aggregated)}
        raise ThresholdError(f"too few shares were revealed to remove the masks of {len(shortfall)} clients", shortfall)
    shares, disputes = _revealed(view)
    opened: dict[tuple[int, int], _Opened] = {}
    failed: list[tuple[int, int]] = []
    good: Sequence[int] = ()  # holders whose shares fitted before are tried first
    doubtful = bool(disputes)
    for (client, place), held in shares.items():
        found = _open(view, client, place, held, good)
        if found is None:
            failed.append((client, place))
            continue
        doubtful |= not found.at_once
        opened[client, place], good = found, found.holders
    blame = _assign_blame(view, shares, disputes, opened, failed) if failed or doubtful else Blame()
    if failed:
        raise WrongShares([names[client] for client in sorted({client for client, _ in failed})], blame)
    return {secret: found.secret for secret, found in opened.items()}, blame


def _revealed(view: PrekeyView) -> tuple[dict[tuple[int, int], Held], set[Dispute]]:
    """Return the shares of every secret that is to be opened, and disputes about those that are missing."""
    shares: dict[tuple[int, int], Held] = {}
    disputes: set[Dispute] = set()
    for client in sorted(view.aggregated):
        for place in rules.opened_secrets(view.book, client, view.aggregated):
            sent = view.shares.get(client, {}).get(place, {})
            disputes |= {(client, holder) for holder in view.revealers - sent.keys()}
            shares[client, place] = sent
    return shares, disputes


def _open(view: PrekeyView, client: int, place: int, held: Held, good: Sequence[int]) -> _Opened | None:
    """Reconstruct a secret from any set of shares that fits its mark; None if no set that was tried does."""
    made = view.contributions[client]
    mark = (made.seed_mark, *made.key_marks)[place]
    for number, holders in enumerate(_candidates(held, view.book.threshold, good)):
        try:
            secret = shamir.combine([holder + 1 for holder in holders], [held[holder] for holder in holders])
        except VerificationError:
            continue
        if rules.secret_mark(view.book.digest, client, place, secret) == mark:
            return _Opened(secret, holders, number == 0)
    return None


def _best(held: Held, good: Sequence[int]) -> list[int]:
    """Return all holders, those that are known to be good first."""
    first = dict.fromkeys(holder for holder in good if holder in held)
    return [*first, *(holder for holder in sorted(held) if holder not in first)]


def _candidates(held: Held, threshold: int, good: Sequence[int]) -> Iterator[list[int]]:
    """Yield sets of ``threshold`` holders: the most promising one, the one that a decoder finds, then many others."""
    if len(held) < threshold:
        return
    yield _best(held, good)[:threshold]
    held = _well_formed(held)
    holders = _best(held, good)
    if len(holders) < threshold:
        return
    if decoded := _decode(held, holders, threshold):
        yield decoded
    if _all_tried(len(holders), threshold):
        yield from map(list, combinations(holders, threshold))
        return
    rng = np.random.default_rng(0)  # the choice of sets need not be secret
    for _ in range(MOST_TRIES):
        yield rng.permutation(holders)[:threshold].tolist()


def _decode(held: Held, holders: Sequence[int], threshold: int) -> list[int]:
    """Return ``threshold`` holders whose shares are right according to a decoder; none if too many are wrong."""
    points = [holder + 1 for holder in holders]
    try:
        wrong = shamir.find_wrong_points(points, [held[holder] for holder in holders], threshold)
    except VerificationError:
        return []
    return [holder for holder in holders if holder + 1 not in wrong][:threshold]


def _well_formed(held: Held) -> Held:
    return {holder: share for holder, share in held.items() if shamir.is_share(share)}


def _all_tried(holders: int, threshold: int) -> bool:
    """Return whether every set of shares is tried."""
    return comb(holders, threshold) <= MOST_TRIES


def _assign_blame(
    view: PrekeyView,
    shares: Mapping[tuple[int, int], Held],
    disputes: Set[Dispute],
    opened: Mapping[tuple[int, int], _Opened],
    failed: Collection[tuple[int, int]],
) -> Blame:
    threshold, most, names = view.book.threshold, max(1, view.book.terms.tolerated), view.book.terms.clients
    found = set(disputes)
    for (client, place), secret in opened.items():
        held = _well_formed(shares[client, place])
        unusable = view.revealers - held.keys()  # if the dealer is honest, these are liars, and fewer are left to lie
        wrong = _wrong_holders(held, secret, most - len(unusable))
        found |= {(client, holder) for holder in unusable | wrong}
    dealers = set()
    if len(view.revealers) - most >= threshold:  # t honest holders answered, and their shares open what was dealt well
        for client, place in failed:
            usable = len(_well_formed(shares[client, place]))
            if _all_tried(usable, threshold) or 2 * most <= usable - threshold:
                dealers.add(client)
    proven = prove(found, dealers, most)
    left = sorted({dispute for dispute in found if proven.isdisjoint(dispute)})
    return Blame(
        tuple(names[client] for client in sorted(proven)),
        tuple((names[dealer], names[holder]) for dealer, holder in left),
    )


def _wrong_holders(held: Held, opened: _Opened, most: int) -> frozenset[int]:
    """Return the holders of wrong shares of a secret, if at most ``most`` are wrong; empty if undecidable."""
    points, shares, threshold = [holder + 1 for holder in held], list(held.values()), len(opened.holders)
    for holders in (opened.holders, _decode(held, list(held), threshold)):
        trusted = [holder + 1 for holder in holders]
        try:
            if holders and shamir.combine(trusted, [held[holder] for holder in holders]) == opened.secret:
                wrong = shamir.prove_wrong_points(points, shares, trusted, most)
                return frozenset(point - 1 for point in wrong)
        except VerificationError:
            continue
    return frozenset()


def prove(disputes: Collection[Dispute], dealers: Collection[int], most: int) -> frozenset[int]:
    """Return the clients that must have broken the protocol, if at most ``most`` did; empty if more did.

    ``dealers`` are at fault regardless of disputes.
    """
    proven = {*dealers, *(dealer for dealer, holder in disputes if dealer == holder)}
    while len(proven) <= most:
        left = {frozenset(dispute) for dispute in disputes if proven.isdisjoint(dispute)}
        counts = Counter(client for dispute in left for client in dispute)
        more = {client for client, count in counts.items() if count > most - len(proven)}
        if not more:
            return frozenset(proven)
        proven |= more
    return frozenset()
