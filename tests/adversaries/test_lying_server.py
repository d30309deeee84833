"""Seven attacks of a lying server against real clients, each with the rule that prevents it switched off and on.

What the server learns is decided by linear algebra over everything it holds
(:mod:`coterie.attacks.malicious_server.knowledge`). Each attack worked before its rule existed.
"""

from collections.abc import Callable
from itertools import count

import msgspec
import numpy as np
import pytest
from tests.support.cast import make_terms

from coterie.attacks.malicious_server.knowledge import exposes, leaks, learned
from coterie.attacks.malicious_server.server import LyingServer, announce, deliver, show_book
from coterie.crypto.context import bind
from coterie.graphs.table import TOPOLOGIES, TopologyKind
from coterie.graphs.topology import Graph, Harary
from coterie.secagg import Terms, rules

OFF_AND_ON = pytest.mark.parametrize("defended", [False, True])


# --- 1. Stranding: no colluder is needed if circles can be broken.


@OFF_AND_ON
@pytest.mark.parametrize("colluders", [0, None])
def test_the_stranding_attack(defended: bool, colluders: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The victim has masks only with clients that the server then declares stranded, so that their keys are opened."""
    if not defended:
        monkeypatch.setattr(rules, "check_statements", lambda *_: None)
    circles = tuple(number // 3 for number in range(15))
    server = LyingServer(make_terms(15, active=True, circles=circles, colluders=colluders))
    everybody, victim = set(range(15)), 0
    few = range(6, 6 + server.terms.threshold_for(15) - 1)  # of circles 2, 3 and 4
    persons = [server.enter(number) for number in server.honest]
    show_book(server, persons)
    deliver(server, persons, {victim: everybody - set(few)})
    survivors = everybody - {8, 11, 14}  # one of each of these circles
    for sharers in (everybody, set(few)):
        announce(server, persons, survivors, sharers)
    assert exposes(server, victim) is not defended
    assert leaks(server) is not defended


# --- 2. Stripping: without circles it takes holders who are neither silent nor said to be lost.


@OFF_AND_ON
@pytest.mark.parametrize("circles", [None, (0, 0, 1, 1, 2, 2, 1)])
def test_the_stripping_attack(defended: bool, circles: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one colluder more than the terms allow for, and the threshold is a majority: statements protect."""
    if not defended:
        monkeypatch.setattr(rules, "check_statements", lambda *_: None)
    server = LyingServer(make_terms(7, active=True, circles=circles, colluders=0), colluders=[6])
    everybody, victim = set(range(7)), 0
    persons = [server.enter(number) for number in server.honest]
    show_book(server, persons)
    deliver(server, persons, {victim: {1, 2, 3}})
    for sharers in (everybody, {4, 5, 6}):
        announce(server, persons, everybody - {4, 5}, sharers)
    assert exposes(server, victim) is not defended


# --- 3. Equivocation: a colluder signs both stories.


@OFF_AND_ON
@pytest.mark.parametrize("circles", [None, (0, 0, 0, 1, 1, 1, 1)])
def test_the_equivocation_attack(
    defended: bool, circles: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not defended:
        monkeypatch.setattr(Terms, "quorum", property(lambda terms: len(terms.clients) // 2 + 1))
    server = LyingServer(make_terms(7, active=True, circles=circles), colluders=[6])
    everybody, victim = set(range(7)), 0
    persons = [server.enter(number) for number in server.honest]
    show_book(server, persons)
    deliver(server, persons)
    announce(server, persons[:3], everybody, everybody)
    announce(server, persons[3:], everybody - {victim}, everybody)
    assert exposes(server, victim) is not defended


# --- 4. Copied keys: a client adds a mask for one peer and subtracts it for another.


@pytest.mark.parametrize("circles", [None, (0, 0, 0)])
@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("distinct", [False, True])
def test_the_copied_key_attack(
    numbered: bool, distinct: bool, circles: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Binding the clients' numbers is one defence, and refusing repeated keys is another."""
    if not numbered:
        monkeypatch.setattr(rules, "pair_context", lambda purpose, terms, seed, *_: bind(purpose, terms, seed))
    if not distinct:
        monkeypatch.setattr(rules, "check_distinct", lambda *_: None)
    server = LyingServer(make_terms(3, active=True, circles=circles, colluders=1), colluders=[2])
    persons = [server.enter(number) for number in server.honest]
    copied = server.collude(2, persons[0].advertisement.masking_key)
    show_book(server, persons, [*(person.advertisement for person in persons), copied])
    deliver(server, [person for person in persons if person.shared])
    announce(server, persons, {0, 1, 2}, {0, 1, 2})
    assert exposes(server, 1) is not (numbered or distinct)
    assert bool(server.answered) is not distinct


# --- 5. Cutting a sparse graph along a bridge.


class Barbell(msgspec.Struct, frozen=True, tag="barbell"):
    """Two cliques and one bridge between them, a topology that a user might add."""

    def graph(self, size: int, seed: bytes) -> Graph:
        half = size // 2
        adjacency = np.zeros((size, size), np.bool_)
        adjacency[:half, :half] = adjacency[half:, half:] = True
        adjacency[half - 1, half] = adjacency[half, half - 1] = True
        np.fill_diagonal(adjacency, False)
        return Graph(np.count_nonzero(adjacency, axis=1), np.nonzero(adjacency)[1])


@OFF_AND_ON
@pytest.mark.parametrize("circles", [None, tuple(number // 2 for number in range(12))])
def test_the_bridge_attack(defended: bool, circles: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends of the bridge refuse to confirm, but the server does not need them."""
    monkeypatch.setitem(TOPOLOGIES, "barbell", TopologyKind(Barbell))
    if not defended:
        monkeypatch.setattr(rules, "check_statements", lambda *_: None)
    server = LyingServer(make_terms(12, active=True, topology=Barbell(), circles=circles, colluders=0))
    everybody = set(range(12))
    persons = [server.enter(number) for number in server.honest]
    show_book(server, persons)
    deliver(server, persons, {5: {6}, 6: {5}})
    for sharers in (everybody, everybody - {6}, everybody - {5}):
        announce(server, persons, everybody, sharers)
    assert leaks(server) is not defended
    assert len(learned(server)) == (0 if defended else 2)  # the sum of either clique


# --- 6. Joining twice: two key books, each with its quorum.


@OFF_AND_ON
@pytest.mark.parametrize("circles", [None, (0, 1, 2, 3, 4)])
def test_the_attack_of_joining_twice(
    defended: bool, circles: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One book reveals the victim's self seed, the other its key, by shares that were dealt under the first."""
    if not defended:
        monkeypatch.setattr(rules, "pair_context", lambda purpose, terms, _, *pair: bind(purpose, terms, *sorted(pair)))
        monkeypatch.setattr(rules, "envelope_context", lambda terms, _, *pair: bind("share", terms, *pair))
    server = LyingServer(make_terms(5, active=True, circles=circles, colluders=2), colluders=[3, 4])
    victim, other, twin = (server.enter(number) for number in server.honest)
    again = server.enter(twin.client)
    colluding = [server.collude(number) for number in server.colluders]
    first = [victim.advertisement, other.advertisement, twin.advertisement, *colluding]
    second = [victim.advertisement, other.advertisement, again.advertisement, *colluding]
    for person in (victim, twin):
        server.share(person, first)
    for person in (other, again):
        server.share(person, second)
    for person in (victim, twin, other, again):
        dealers = {0: victim, 1: other, 2: twin if person in (victim, twin) else again, 3: None, 4: None}
        del dealers[person.client]
        server.mask(person, [server.envelope(peer, person, dealer) for peer, dealer in dealers.items()])
    announce(server, [victim, twin], {0, 2, 3, 4}, range(5))
    announce(server, [other, again], {1, 2, 3, 4}, range(5))
    assert exposes(server, victim.client) is not defended


# --- 7. Lonely sums: all other clients in the sum collude.


def lonely_by_circles() -> LyingServer:
    server = LyingServer(make_terms(9, active=True, circles=(0, 0, 0, 1, 1, 1, 2, 2, 2), colluders=2), colluders=[1, 2])
    persons = [server.enter(number) for number in server.honest]
    show_book(server, persons)
    deliver(server, persons)
    announce(server, persons, set(range(9)) - {3, 6}, range(9))
    return server


def lonely_by_the_graph() -> LyingServer:
    """Try sessions until the victim is between two colluders on a ring."""
    for attempt in count():
        session = attempt.to_bytes(16, "big")
        server = LyingServer(
            make_terms(6, active=True, topology=Harary(2), colluders=2, session=session), colluders=[4, 5]
        )
        persons = [server.enter(number) for number in server.honest]
        show_book(server, persons)
        if server.terms.graph(persons[0].seed).neighbours(0) == (4, 5):
            deliver(server, persons)
            announce(server, persons, range(6), range(6))
            return server
    raise AssertionError


@OFF_AND_ON
@pytest.mark.parametrize("make", [lonely_by_circles, lonely_by_the_graph])
def test_the_attack_on_clients_without_an_honest_neighbour(
    defended: bool, make: Callable[[], LyingServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not defended:
        monkeypatch.setattr(rules, "check_company", lambda *_: None)
    server = make()
    assert exposes(server, 0) is not defended
    assert leaks(server) is not defended


# --- Without a lie, the server learns the sum and nothing else.


@pytest.mark.parametrize("circles", [None, (0, 0, 0, 1, 1, 1, 1)])
def test_an_honest_server_learns_only_the_sum(circles: tuple[int, ...] | None) -> None:
    server = LyingServer(make_terms(7, active=True, circles=circles), colluders=[5, 6])
    persons = [server.enter(number) for number in server.honest]
    show_book(server, persons)
    deliver(server, persons)
    announce(server, persons, range(7), range(7))
    assert learned(server).tolist() == [[1] * 5]
    assert not leaks(server)
