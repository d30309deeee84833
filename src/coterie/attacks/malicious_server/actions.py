"""The moves that lies are made of: a book shown to many, envelopes delivered but for some, survivors announced."""

from collections.abc import Collection, Iterable, Mapping

from coterie.attacks.malicious_server.server import Person, World
from coterie.secagg.messages import Advertisement


def show_book(world: World, persons: Iterable[Person], book: Iterable[Advertisement] | None = None) -> None:
    """Show everybody the same book: by default the keys of all who entered, and the colluders'."""
    persons = list(persons)
    entries = list(book or [*(person.advertisement for person in persons), *map(world.collude, world.colluders)])
    for person in persons:
        world.share(person, entries)


def deliver(world: World, persons: Iterable[Person], withheld: Mapping[int, Collection[int]] | None = None) -> None:
    """Deliver to everybody the envelopes of all its neighbours, but for those withheld."""
    dealers = {person.client: person for person in reversed(world.persons) if person.shared}
    for person in persons:
        if person.shared is None:
            continue
        known = {entry.sender for entry in person.book} - set((withheld or {}).get(person.client, ()))
        peers = known.intersection(world.terms.graph(person.seed).neighbours(person.client))
        world.mask(person, [world.envelope(peer, person, dealers.get(peer)) for peer in sorted(peers)])


def announce(world: World, persons: Iterable[Person], survivors: Collection[int], sharers: Collection[int]) -> None:
    """Announce survivors with everybody's statement, then show to all who signed the signatures on the same set."""
    persons = [person for person in persons if person.carried and person.client in survivors]
    if not persons:
        return
    if not world.terms.active:
        for person in persons:
            world.reveal(person, survivors)
        return
    seed = persons[0].seed
    statements = {number: world.statement(number, seed, sharers) for number in world.colluders}
    masked = [person for person in world.persons if person.carried and person.seed == seed]
    statements |= {person.client: person.statement for person in masked}
    signed = {person: world.confirm(person, survivors, sharers, statements) for person in persons}
    for person, own in signed.items():
        if own is not None:
            same = [entry for other, entry in signed.items() if entry is not None and other.told == person.told]
            colluding = [world.confirmation(number, seed, person.told) for number in world.colluders & person.told]
            world.reveal(person, person.told, [*same, *colluding])
