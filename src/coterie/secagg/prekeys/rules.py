"""The rules of the two-trip protocol: every refusal that protects a client, each under its own name.

Each is one line of defence against one attack; the adversary tests switch them off one by one.
"""

from collections.abc import Collection, Mapping

from coterie.crypto import signing
from coterie.crypto.context import bind, digest, fingerprint
from coterie.errors import PeerProtocolError, ThresholdError, VerificationError
from coterie.secagg.messages import SERVER, encode_members
from coterie.secagg.prekeys.book import PrekeyBook
from coterie.secagg.prekeys.messages import Prekey, SurvivorSignature
from coterie.secagg.rules import check_quorum

Marks = Mapping[int, bytes]
"""Survivors by number, with the mark of each one's self seed: the V of the papers, with names for contributions."""


def prekey_context(population: bytes, client: str, key: bytes, issued: int) -> bytes:
    """What a client signs when it makes a prekey: for whom, by whom, and when.

    ``population`` is the digest of the first roster, not of the latest: prekeys outlive changes of the roster.
    """
    return bind("prekey", population, client.encode(), key, issued)


def check_prekey(identity: bytes, population: bytes, client: str, prekey: Prekey) -> None:
    """A prekey must be signed by the client it is said to belong to (against a server that swaps keys)."""
    if prekey.signature is None:
        raise VerificationError("a prekey is not signed")
    signing.verify(identity, prekey.signature, prekey_context(population, client, prekey.key, prekey.issued))


def check_prekeys(book: PrekeyBook, population: bytes) -> None:
    """Against an active server, every prekey of the book is its owner's."""
    terms = book.terms
    if not terms.active:
        return
    for name, identity, prekey in zip(terms.clients, terms.identities, book.prekeys, strict=True):
        try:
            check_prekey(identity, population, name, prekey)
        except VerificationError:
            raise PeerProtocolError(SERVER, f"sent a prekey that client {name} did not sign") from None


def check_age(book: PrekeyBook, oldest: int) -> None:
    """No prekey was made before this moment: old ones may have leaked with a forgotten disk."""
    for name, prekey in zip(book.terms.clients, book.prekeys, strict=True):
        if prekey.issued < oldest:
            raise PeerProtocolError(SERVER, f"sent a prekey of client {name} that is too old")


def check_distinct(book: PrekeyBook) -> None:
    """No two clients have the same prekey: a colluder may copy another client's so that masks cancel.

    They would not cancel (:func:`pair_context`), but the attempt is refused.
    """
    if len({prekey.key for prekey in book.prekeys}) != len(book.prekeys):
        raise PeerProtocolError(SERVER, "sent a book in which a prekey stands twice")


def check_threshold(book: PrekeyBook) -> None:
    """Against an active server a quorum of shares opens a secret: any two opened secrets share an honest holder.

    That holder answered for one survivor list only, which keeps two stories about who survived apart.
    """
    terms, size = book.terms, len(book.terms.clients)
    least = terms.quorum if terms.active else 1
    if not least <= book.threshold <= size:
        raise PeerProtocolError(
            SERVER, f"proposed that {book.threshold} of {size} shares open a secret; {least} are needed at least"
        )


def pair_context(book: bytes, one: int, other: int) -> bytes:
    """What two clients agree on keys for: the book, and both their numbers.

    The numbers keep apart what one client agrees on with two peers that show one key, the book what is agreed in one
    session from what is agreed in any other.
    """
    return bind("prekey-pair", book, *sorted((one, other)))


def envelope_context(book: bytes, dealer: int, holder: int, mark: bytes) -> bytes:
    """What an envelope is sealed for: one holder, and one contribution of the dealer, named by its mark."""
    return bind("prekey-envelope", book, dealer, holder, mark)


def secret_mark(book: bytes, client: int, place: int, secret: bytes) -> bytes:
    """The fingerprint of one of a client's shared secrets, by its place: 0 is the self seed, then the circle keys.

    That of the self seed is also the name of the contribution.
    """
    return fingerprint(bind("prekey-secret", book, client, place), secret)


def contribution_context(book: bytes, client: int, seed_mark: bytes, body: bytes) -> bytes:
    """What a client signs of its contribution: all of it, by a digest of its encoding."""
    return bind("contribute", book, client, seed_mark, digest(body))


def check_survivors(book: PrekeyBook, client: int, mark: bytes, survivors: Marks) -> frozenset[int]:
    """Return whom an announced survivor list would aggregate, if it is one that this client can answer.

    It has this client's own contribution in it, and enough whole circles to hide among.
    """
    if survivors.get(client) != mark:
        raise PeerProtocolError(SERVER, "announced survivors without this client's contribution")
    aggregated = book.terms.aggregated(survivors)
    if len(aggregated) < book.terms.fewest:
        raise ThresholdError(f"{len(aggregated)} clients would be aggregated; the minimum is {book.terms.fewest}")
    return aggregated


def check_direct(book: PrekeyBook, aggregated: Collection[int]) -> None:
    """An unsigned survivor list is opened only if few clients are missing.

    Then, whatever list others get, the clients whose secrets are opened are whole circles with at least ``M - c``
    honest members (the module docstring of :mod:`coterie.secagg.prekeys` has the argument).
    """
    if len(aggregated) < book.direct_floor:
        raise ThresholdError(
            f"{len(aggregated)} clients would be aggregated; below {book.direct_floor} the survivors must be confirmed"
        )


def survivors_context(book: PrekeyBook, survivors: Marks) -> bytes:
    """What a client signs of an announced survivor list: who is on it, and which contribution of each."""
    members = encode_members(survivors, len(book.terms.clients))
    return bind("prekey-survivors", book.digest, members, b"".join(survivors[client] for client in sorted(survivors)))


def check_proof(book: PrekeyBook, survivors: Marks, signatures: Collection[SurvivorSignature]) -> None:
    """A quorum must have signed exactly the survivor list that was announced to this client."""
    check_quorum(book.terms, survivors_context(book, survivors), survivors, signatures)


def opened_secrets(book: PrekeyBook, dealer: int, aggregated: Collection[int]) -> tuple[int, ...]:
    """Which of an aggregated dealer's secrets a holder may open, as positions among those that were dealt.

    The first is its self seed; then one key for each circle but its own. Only the keys of circles that are *not*
    aggregated are opened, so that the masks among those aggregated stay closed for ever.
    """
    lost = set(book.lost_circles(aggregated))
    if not lost:
        return (0,)
    foreign = book.foreign_circles(dealer)
    return (0, *(1 + place for place, circle in enumerate(foreign) if circle in lost))
