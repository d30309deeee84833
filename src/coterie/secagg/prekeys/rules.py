"""The rules of the two-trip protocol. Each refusal that protects a client is one function here.

Each rule prevents one attack, and the adversary tests switch the rules off one by one.
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
"""The survivors by number, with the mark of each one's self seed, which names its contribution (V in the papers)."""


def prekey_context(population: bytes, client: str, key: bytes, issued: int) -> bytes:
    """Return what a client signs when it makes a prekey: the population, its name, the key, and the time.

    ``population`` is the digest of the first roster. It stays the same when the roster changes, and so prekeys stay
    valid.
    """
    return bind("prekey", population, client.encode(), key, issued)


def check_prekey(identity: bytes, population: bytes, client: str, prekey: Prekey) -> None:
    """Refuse a prekey that its owner did not sign: the server may have replaced it."""
    if prekey.signature is None:
        raise VerificationError("a prekey is not signed")
    signing.verify(identity, prekey.signature, prekey_context(population, client, prekey.key, prekey.issued))


def check_prekeys(book: PrekeyBook, population: bytes) -> None:
    """Against an active server, refuse a book with a prekey that its owner did not sign."""
    terms = book.terms
    if not terms.active:
        return
    for name, identity, prekey in zip(terms.clients, terms.identities, book.prekeys, strict=True):
        try:
            check_prekey(identity, population, name, prekey)
        except VerificationError:
            raise PeerProtocolError(SERVER, f"sent a prekey that client {name} did not sign") from None


def check_age(book: PrekeyBook, oldest: int) -> None:
    """Refuse prekeys that were made before this moment: their secrets may have leaked from an old disk."""
    for name, prekey in zip(book.terms.clients, book.prekeys, strict=True):
        if prekey.issued < oldest:
            raise PeerProtocolError(SERVER, f"sent a prekey of client {name} that is too old")


def check_distinct(book: PrekeyBook) -> None:
    """Refuse a prekey that is in the book twice. A colluder may copy another client's prekey, so that masks cancel.

    The masks would not cancel (:func:`pair_context`); this rule refuses the attempt.
    """
    if len({prekey.key for prekey in book.prekeys}) != len(book.prekeys):
        raise PeerProtocolError(SERVER, "sent a book in which a prekey stands twice")


def check_threshold(book: PrekeyBook) -> None:
    """Against an active server, refuse a threshold below the quorum.

    With a quorum, any two opened secrets have an honest holder in common. That holder answered for one survivor list
    only, so secrets of two different lists are not both opened.
    """
    terms, size = book.terms, len(book.terms.clients)
    least = terms.quorum if terms.active else 1
    if not least <= book.threshold <= size:
        raise PeerProtocolError(
            SERVER, f"proposed that {book.threshold} of {size} shares open a secret; {least} are needed at least"
        )


def pair_context(book: bytes, one: int, other: int) -> bytes:
    """Return what the keys between two clients are bound to: the book, and both clients.

    With their numbers, one client derives different keys with two peers that show the same prekey. With the book, it
    derives different keys in every session.
    """
    return bind("prekey-pair", book, *sorted((one, other)))


def envelope_context(book: bytes, dealer: int, holder: int, mark: bytes) -> bytes:
    """Return what an envelope is bound to: one holder, and one contribution of the dealer, named by its mark."""
    return bind("prekey-envelope", book, dealer, holder, mark)


def secret_mark(book: bytes, client: int, place: int, secret: bytes) -> bytes:
    """Return the fingerprint of one of a client's shared secrets: place 0 is the self seed, then come the circle keys.

    The fingerprint of the self seed is also the name of the contribution.
    """
    return fingerprint(bind("prekey-secret", book, client, place), secret)


def contribution_context(book: bytes, client: int, seed_mark: bytes, body: bytes) -> bytes:
    """Return what a client signs with its contribution: a digest of the whole contribution."""
    return bind("contribute", book, client, seed_mark, digest(body))


def check_survivors(book: PrekeyBook, client: int, mark: bytes, survivors: Marks) -> frozenset[int]:
    """Return the clients that an announced survivor list would aggregate; refuse a list that must not be answered.

    The list must have this client's own contribution, and enough clients in whole circles.
    """
    if survivors.get(client) != mark:
        raise PeerProtocolError(SERVER, "announced survivors without this client's contribution")
    aggregated = book.terms.aggregated(survivors)
    if len(aggregated) < book.terms.fewest:
        raise ThresholdError(f"{len(aggregated)} clients would be aggregated; the minimum is {book.terms.fewest}")
    return aggregated


def check_direct(book: PrekeyBook, aggregated: Collection[int]) -> None:
    """Refuse to reveal for an unsigned survivor list if many clients are missing.

    If few are missing, then, whatever lists others get, the clients whose secrets are opened are whole circles with at
    least ``M - c`` honest members (the module docstring of :mod:`coterie.secagg.prekeys` has the argument).
    """
    if len(aggregated) < book.direct_floor:
        raise ThresholdError(
            f"{len(aggregated)} clients would be aggregated; below {book.direct_floor} the survivors must be confirmed"
        )


def survivors_context(book: PrekeyBook, survivors: Marks) -> bytes:
    """Return what a client signs when survivors are announced: the list, and the contribution of each survivor."""
    members = encode_members(survivors, len(book.terms.clients))
    return bind("prekey-survivors", book.digest, members, b"".join(survivors[client] for client in sorted(survivors)))


def check_proof(book: PrekeyBook, survivors: Marks, signatures: Collection[SurvivorSignature]) -> None:
    """Refuse to reveal unless a quorum signed exactly the survivor list that was announced to this client."""
    check_quorum(book.terms, survivors_context(book, survivors), survivors, signatures)


def opened_secrets(book: PrekeyBook, dealer: int, aggregated: Collection[int]) -> tuple[int, ...]:
    """Return which secrets of an aggregated dealer a holder may open, as positions among those that were dealt.

    The first position is the self seed; then comes one key for each circle except the dealer's own. Only the keys of
    circles that are *not* aggregated are opened, so the masks between aggregated clients are never opened.
    """
    lost = set(book.lost_circles(aggregated))
    if not lost:
        return (0,)
    foreign = book.foreign_circles(dealer)
    return (0, *(1 + place for place, circle in enumerate(foreign) if circle in lost))
