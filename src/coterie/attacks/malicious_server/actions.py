"""The actions that lies consist of: show a key book, deliver or withhold envelopes, announce survivors."""

from collections.abc import Collection, Iterable, Mapping

from coterie.attacks.malicious_server.server import LyingServer, Person
from coterie.secagg.messages import Advertisement


def show_book(server: LyingServer, persons: Iterable[Person], book: Iterable[Advertisement] | None = None) -> None:
    """Show the same key book to all: by default the keys of all who joined, and of the colluders."""
    persons = list(persons)
    entries = list(book or [*(person.advertisement for person in persons), *map(server.collude, server.colluders)])
    for person in persons:
        server.share(person, entries)


def deliver(
    server: LyingServer, persons: Iterable[Person], withheld: Mapping[int, Collection[int]] | None = None
) -> None:
    """Deliver to all clients the envelopes of their neighbours, except those that are withheld."""
    dealers = {person.client: person for person in reversed(server.persons) if person.shared}
    for person in persons:
        if person.shared is None:
            continue
        known = {entry.sender for entry in person.book} - set((withheld or {}).get(person.client, ()))
        peers = known.intersection(server.terms.graph(person.seed).neighbours(person.client))
        server.mask(person, [server.envelope(peer, person, dealers.get(peer)) for peer in sorted(peers)])


def announce(
    server: LyingServer, persons: Iterable[Person], survivors: Collection[int], sharers: Collection[int]
) -> None:
    """Announce survivors with the statements of all, then show the signatures on that set to all who signed."""
    persons = [person for person in persons if person.carried and person.client in survivors]
    if not persons:
        return
    if not server.terms.active:
        for person in persons:
            server.reveal(person, survivors)
        return
    seed = persons[0].seed
    statements = {number: server.statement(number, seed, sharers) for number in server.colluders}
    masked = [person for person in server.persons if person.carried and person.seed == seed]
    statements |= {person.client: person.statement for person in masked}
    signed = {person: server.confirm(person, survivors, sharers, statements) for person in persons}
    for person, own in signed.items():
        if own is not None:
            same = [
                entry for other, entry in signed.items() if entry is not None and other.announced == person.announced
            ]
            colluding = [
                server.confirmation(number, seed, person.announced) for number in server.colluders & person.announced
            ]
            server.reveal(person, person.announced, [*same, *colluding])
