"""Scripted strategies of a lying server: for each rule, the shortest session found that needs it.

The judge is the same as in the search. Each strategy returns the session that is judged, and the sessions before it.
The victim is client 0 unless stated otherwise. A person is an honest client; a client that joined twice is two persons.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec
from tests.support.cast import make_terms
from tests.support.world import Scene

from coterie.attacks.malicious_server.server import Person, announce, deliver, show_book
from coterie.attacks.malicious_server.sessions import mask_all
from coterie.graphs.topology import Harary
from coterie.secagg.messages import Advertisement, Confirmation

Sessions = tuple[Scene, ...]
Pad = Callable[[Scene, list[Confirmation], list[Confirmation]], list[Confirmation]]
"""Makes a testimony from the confirmations of one story and of the other."""


def scene(size: int, colluders: Collection[int] = (), **terms: Any) -> Scene:  # noqa: ANN401  (any of the terms)
    return Scene(make_terms(size, active=True, **({"colluders": len(colluders)} | terms)), colluders)


def confirm_and_reveal(
    place: Scene,
    told: Mapping[Person, frozenset[int]],
    sharers: Iterable[int],
    pad: Pad | None = None,
    borrowed: Mapping[int, bytes] | None = None,
) -> None:
    """Tell each person its own survivors, then show each the confirmations of its story, padded.

    Statements are those of the same book, except for borrowed ones.
    """
    masked = [person for person in place.persons if person.carried is not None]
    signed: dict[Person, Confirmation] = {}
    for person, story in told.items():
        if person.carried is None:
            continue
        statements = {other.client: other.statement for other in masked if other.seed == person.seed}
        statements |= {number: place.statement(number, person.seed, set(sharers)) for number in place.colluders}
        confirmation = place.confirm(person, story, set(sharers), statements | dict(borrowed or {}))
        if confirmation is not None:
            signed[person] = confirmation
    for person in signed:
        own = [place.confirmation(number, person.seed, told[person]) for number in sorted(place.colluders)]
        same = own + [entry for other, entry in signed.items() if told[other] == told[person]]
        others = [entry for other, entry in signed.items() if told[other] != told[person]]
        place.reveal(person, told[person], pad(place, same, others) if pad else same)


# Masks left out.


def _strand(circles: tuple[int, ...], few: set[int]) -> Sessions:
    """Clients 0 and 1 have the masks of only a few clients, whose circles are then broken and whose keys are opened."""
    place = scene(len(circles), circles=circles)
    strangers = set(range(len(circles))) - few
    everybody = mask_all(place, {0: strangers, 1: strangers})
    for sharers in everybody, few:
        announce(place, place.persons, few | {0, 1}, sharers)
    return (place,)


def strand() -> Sessions:
    return _strand((0, 0, 1, 1, 1, 1, 2, 2, 2, 2), {3, 4, 5, 7, 8, 9})


def strand_signers() -> Sessions:
    """The same, where a quorum takes the victims' own signatures."""
    return _strand((0, 0, 1, 1, 1, 2, 2, 2), {3, 4, 6, 7})


def borrow_statement() -> Sessions:
    """The victim joined twice. One person has few masks; the other, under another book, states that it has all."""
    circles, few = (0, 0, 1, 1, 1, 1, 2, 2, 2, 2), {3, 4, 5, 7, 8, 9}
    place = scene(len(circles), circles=circles)
    everybody = mask_all(place, {0: set(range(10)) - few})
    book = {person.client: person.advertisement for person in place.persons}
    again = place.enter(0)
    place.share(again, (book | {0: again.advertisement}).values())
    deliver(place, [again])
    told = dict.fromkeys(place.persons[:-1], frozenset(few | {0, 1}))
    confirm_and_reveal(place, told, everybody, borrowed={0: again.statement})
    return (place,)


def repeat_envelopes() -> Sessions:
    """In a ring of two elements, a mask that is added twice cancels out."""
    place = scene(7, bits=1, length=40)
    for number in place.honest:
        place.enter(number)
    show_book(place, place.persons)
    victim, *others = place.persons
    deliver(place, others)
    place.mask(victim, [place.envelope(dealer.client, victim, dealer) for dealer in others for _ in range(2)])
    announce(place, place.persons, range(7), range(7))
    return (place,)


# Two stories about who survived.


def _equivocate(pad: Pad | None = None) -> Sessions:
    """Of seven clients, half are told that the victim survived, the others that it was lost; one colludes."""
    place = scene(7, [6])
    everybody = mask_all(place)
    told = {person: everybody if person.client < 3 else everybody - {0} for person in place.persons}
    confirm_and_reveal(place, told, everybody, pad)
    return (place,)


def equivocate() -> Sessions:
    return _equivocate()


def repeat_confirmations() -> Sessions:
    """One signature, repeated until it is a quorum."""
    return _equivocate(lambda place, same, _: same[:1] * place.terms.quorum)


def forge_confirmations() -> Sessions:
    """Made-up signatures of all clients in the story."""
    return _equivocate(
        lambda place, same, _: [msgspec.structs.replace(same[0], sender=number) for number in range(1, 7)]
    )


def pool_confirmations() -> Sessions:
    """Signatures on both stories."""
    return _equivocate(lambda _, same, others: same + [entry for entry in others if entry.sender])


def both_shares() -> Sessions:
    place = scene(5)
    everybody = mask_all(place)
    announce(place, place.persons, everybody, everybody)
    return (place,)


# Keys under the names of other clients.


def _substitute(swap: Callable[[Advertisement, Advertisement], Advertisement]) -> Sessions:
    """Show the victim a book in which all other keys are the server's."""
    place = scene(5)
    victim, *others = (place.enter(number) for number in place.honest)
    entries = [swap(other.advertisement, place.forge(other.client)) for other in others]
    if place.share(victim, [victim.advertisement, *entries]):
        place.mask(victim, [place.envelope(other.client, victim, None) for other in others])
    return (place,)


def substitute_keys() -> Sessions:
    return _substitute(lambda _, forged: forged)


def substitute_sealing_keys() -> Sessions:
    return _substitute(lambda real, forged: msgspec.structs.replace(real, sealing_key=forged.sealing_key))


def _haunt(place: Scene, ghost: Advertisement) -> None:
    """Client 1, the only other client of the victim's circle, is absent; all are shown a key of the server in its name.

    Of the other circle one is lost, so the sum is that of the victim and the ghost.
    """
    persons = [place.enter(number) for number in place.honest if number != 1]
    for person in persons:
        place.share(person, [*(other.advertisement for other in persons), ghost])
    deliver(place, persons)
    everybody = frozenset(range(7))
    announce(place, persons, everybody - {2}, everybody)


HAUNTED = (0, 0, 1, 1, 1, 1, 1)


def replay_key() -> Sessions:
    """The ghost's key is that of an earlier session, in which it was lost and its key opened."""
    earlier = scene(7, circles=HAUNTED, session=b"an earlier session")
    everybody = mask_all(earlier)
    announce(earlier, earlier.persons, everybody - {1}, everybody)
    place = scene(7, circles=HAUNTED)
    old = earlier.persons[1].advertisement
    _haunt(place, msgspec.structs.replace(old, terms=place.terms.digest))
    return place, earlier


def swap_masking_key() -> Sessions:
    """The ghost's keys are its own except for the masking key."""
    place = scene(7, circles=HAUNTED)
    absent = place.enter(1)
    _haunt(place, msgspec.structs.replace(absent.advertisement, masking_key=place.forge(1).masking_key))
    return (place,)


def copy_key() -> Sessions:
    """A colluder advertises client 0's masking key: client 1 adds a mask for one and subtracts it for the other."""
    place = scene(3, [2])
    persons = [place.enter(number) for number in place.honest]
    copied = place.collude(2, persons[0].advertisement.masking_key)
    show_book(place, persons, [*(person.advertisement for person in persons), copied])
    deliver(place, persons)
    announce(place, persons, range(3), range(3))
    return (place,)


# A client that joined twice.


def _twin(books: Callable[[list[Person], Person, list[Advertisement]], list[Iterable[Advertisement]]]) -> Sessions:
    """Client 2 joined twice, and signs two stories: in one client 0 survived, in the other it was lost."""
    place = scene(5, [3, 4])
    persons = [place.enter(number) for number in place.honest]
    again = place.enter(2)
    colluding = [place.collude(number) for number in (3, 4)]
    for person, book in zip(place.persons, books(persons, again, colluding), strict=True):
        place.share(person, book)
    selves = {person.client: person for person in place.persons if person.shared}
    for person in place.persons:
        if person.shared:
            peers = [number for number in range(5) if number != person.client]
            given = [place.envelope(number, person, selves.get(number)) for number in peers]
            empty = [place.envelope(number, person, None) for number in peers]
            place.mask(person, [found or nothing for found, nothing in zip(given, empty, strict=True)])
    everybody = frozenset(range(5))
    zero, one, two = persons
    told = {zero: everybody, again: everybody, one: everybody - {0}, two: everybody - {0}}
    if again.shared and two.shared and again.seed != two.seed:
        told |= {two: everybody, again: everybody - {0}}
    confirm_and_reveal(place, told, everybody)
    return (place,)


def twin_in_one_book() -> Sessions:
    """Both of its keys are in the book of every client."""
    return _twin(lambda persons, again, c: [[*(p.advertisement for p in (*persons, again)), *c]] * 4)


def twin_under_the_other_key() -> Sessions:
    """The first person is shown the book with the key of the second."""
    return _twin(lambda persons, again, c: [[*(p.advertisement for p in (*persons[:2], again)), *c]] * 4)


def twin_in_two_books() -> Sessions:
    """Only the second person is shown another book, and its signature is used under the first."""
    return _twin(
        lambda persons, again, c: [
            *[[*(p.advertisement for p in persons), *c]] * 3,
            [*(p.advertisement for p in (*persons[:2], again)), *c],
        ]
    )


def join_twice() -> Sessions:
    """Two books, each with a quorum; shares that were dealt under the first are opened under the second."""
    place = scene(5, [3, 4])
    victim, other, twin = (place.enter(number) for number in place.honest)
    again = place.enter(2)
    colluding = [place.collude(number) for number in (3, 4)]
    for group, self in ((victim, twin), twin), ((other, again), again):
        for person in group:
            place.share(person, [*(p.advertisement for p in (victim, other, self)), *colluding])
    for person in place.persons:
        dealers = {0: victim, 1: other, 2: twin if person in (victim, twin) else again}
        peers = [number for number in range(5) if number != person.client]
        place.mask(person, [place.envelope(number, person, dealers.get(number)) for number in peers])
    announce(place, [victim, twin], {0, 2, 3, 4}, range(5))
    announce(place, [other, again], {1, 2, 3, 4}, range(5))
    return (place,)


def lose_under_another_book() -> Sessions:
    """Clients 0 and 2 joined twice. Under the second book client 1 is lost, under the first it is aggregated.

    The mask between 0 and 1 is known from the key that the second book opens, and the sum is without client 1.
    """
    place = scene(5, [3, 4])
    zero, one, two = (place.enter(number) for number in place.honest)
    zero_again, two_again = place.enter(0), place.enter(2)
    colluding = [place.collude(number) for number in (3, 4)]
    groups = (zero, two), (one, zero_again, two_again)
    books = [zero, one, two], [zero_again, one, two_again]
    for group, book in zip(groups, books, strict=True):
        for person in group:
            place.share(person, [*(p.advertisement for p in book), *colluding])
    for group, book in zip(groups, books, strict=True):
        dealers = {person.client: person for person in book}
        for person in group:
            peers = [number for number in range(5) if number != person.client]
            place.mask(person, [place.envelope(number, person, dealers.get(number)) for number in peers])
    announce(place, [zero, two], range(5), range(5))
    announce(place, [zero_again, two_again], {0, 2, 3, 4}, range(5))
    return (place,)


# Sums that hide no client.


def lonely() -> Sessions:
    place = scene(9, [1, 2], circles=(0, 0, 0, 1, 1, 1, 2, 2, 2))
    everybody = mask_all(place)
    announce(place, place.persons, everybody - {3, 6}, everybody)
    return (place,)


def split_circle() -> Sessions:
    place = scene(6, circles=(0, 0, 1, 1, 2, 2))
    everybody = mask_all(place)
    announce(place, place.persons, everybody - {3}, everybody)
    return (place,)


def too_few() -> Sessions:
    place = scene(6, minimum=5)
    everybody = mask_all(place)
    announce(place, place.persons, {0, 1, 2, 3}, everybody)
    return (place,)


def cut_ring() -> Sessions:
    """Two clients are lost, and the ring falls into two arcs."""
    place = scene(8, topology=Harary(2))
    everybody = mask_all(place)
    graph = place.terms.graph(place.persons[0].seed)
    ring = [0]
    while len(ring) < 8:
        ring.append(next(peer for peer in graph.neighbours(ring[-1]) if peer not in ring))
    announce(place, place.persons, everybody - {ring[3], ring[7]}, everybody)
    return (place,)


def majority_of_colluders() -> Sessions:
    """Three of five collude, and hold three shares of everybody's secrets."""
    place = scene(5, [2, 3, 4])
    mask_all(place)
    return (place,)
