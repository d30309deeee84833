"""What a malicious server knows at the end of an attack, compared with what SECURITY.md allows.

This module does not use the rules that are tested. A witness at the primitives records what a client did
(:mod:`~coterie.attacks.malicious_server.witness`). What the server holds follows from its own private keys, the shares
that were revealed to it, the envelopes that it can open, and everything that can be computed from these. What it may
know is implemented here independently, from the table in SECURITY.md.

Each masked input is one equation: input plus signed masks. A mask is known if the server holds its seed, otherwise it
is an unknown. The server learns every combination of equations in which all unknowns cancel. For rings of one bit the
algebra is that of the ring itself; for larger rings it is over a large prime field, which gives the same result if no
mask is counted twice.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.arithmetic.ring import RingVector
from coterie.attacks.malicious_server.server import LyingServer, Person
from coterie.crypto import shamir
from coterie.crypto.agreement import KEY_BYTES, PrivateKey
from coterie.crypto.keystream import apply_masks
from coterie.graphs.table import is_complete

PRIME = (1 << 31) - 1
FIELD = 2**255 - 19
Combinations: TypeAlias = npt.NDArray[np.int64]
Book: TypeAlias = frozenset[tuple[int, bytes, bytes]]
"""A key book by its content: who advertises which keys."""

# The points of order 1, 2, 4 and 8 on the curve and its twist: agreement with one of them gives zero.
LOW_ORDER = frozenset(
    {
        0,
        1,
        FIELD - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    }
)


def leaks(server: LyingServer, *earlier: LyingServer) -> bool:
    """Return whether the server learns anything but the sums that SECURITY.md allows, one for each session."""
    found = learned(server, *earlier)
    if not len(found):
        return False
    modulus = _modulus(server)
    return not any(
        _rank(np.vstack([permitted, found]), modulus) == _rank(permitted, modulus)
        for permitted in allowed(server, *earlier)
    )


def exposes(server: LyingServer, number: int) -> bool:
    """Return whether the server learns one client's input; it is then a single row of the reduced form."""
    own = [person.client == number for person in server.persons]
    return any(np.count_nonzero(row) == 1 and row[own].any() for row in learned(server))


def learned(server: LyingServer, *earlier: LyingServer) -> Combinations:
    """Return a basis of what the server can compute: one row of coefficients of the honest clients' inputs for each."""
    return _derive([server, *earlier])[1]


def recovered(server: LyingServer, *earlier: LyingServer) -> list[tuple[Combinations, RingVector]]:
    """Return what the server learns as it would compute it: coefficients of inputs, and the vector they add up to.

    The vectors are made from the masked inputs it received and from the expansion of seeds it holds.
    """
    servers = [server, *earlier]
    ways, rows = _derive(servers)
    known, modulus, ring = held_secrets(servers), _modulus(server), server.terms.ring
    maskings = [masking for place in servers for masking in place.witness.maskings]
    results = []
    for way, row in zip(ways, rows, strict=True):
        total = ring.zeros(server.terms.length)
        for factor, masking in zip(_lift(way, modulus), maskings, strict=True):
            for _ in range(abs(factor)):
                part = masking.result.copy()
                apply_masks(
                    part, [s for s in masking.subtracted if s in known], [s for s in masking.added if s in known]
                )
                total = total + part if factor > 0 else total - part
        ring.reduce(total)
        results.append((np.array(_lift(row, modulus)), total))
    return results


def _derive(servers: Sequence[LyingServer]) -> tuple[Combinations, Combinations]:
    """Return how the server combines masked inputs, and the combinations of inputs that result."""
    known, modulus = held_secrets(servers), _modulus(servers[0])
    columns = {person: place for place, person in enumerate(_persons(servers))}
    maskings = [masking for server in servers for masking in server.witness.maskings]
    masks: list[Counter[bytes]] = []
    for masking in maskings:
        times = Counter(masking.added)
        times.subtract(Counter(masking.subtracted))
        masks.append(Counter({seed: count for seed, count in times.items() if seed not in known}))
    wrap = servers[0].terms.ring.modulus
    places = {seed: place for place, seed in enumerate(dict.fromkeys(seed for times in masks for seed in times))}
    equations = np.zeros((len(masks), len(places) + len(columns) + len(masks)), np.int64)
    for row, (masking, times) in enumerate(zip(maskings, masks, strict=True)):
        for seed, count in times.items():
            if count % wrap:  # a mask that is added as often as the ring has elements vanishes
                equations[row, places[seed]] = count % modulus
        equations[row, len(places) + columns[masking.who]] = 1  # type: ignore[index]  # the witness was given the clients' numbers
        equations[row, len(places) + len(columns) + row] = 1
    reduced = _echelon(equations, modulus, len(places) + len(columns))
    inputs = slice(len(places), len(places) + len(columns))
    free = ~reduced[:, : len(places)].any(axis=1) & reduced[:, inputs].any(axis=1)
    return reduced[free, inputs.stop :], reduced[free, inputs]


# What the server holds.


def held_secrets(servers: Sequence[LyingServer]) -> set[bytes]:
    """Return every secret that the server can compute: agreed keys and seeds, and secrets reconstructed from shares.

    It can compute what two clients agreed on if it holds the private key of either, or if one of the two keys is a
    point of low order. Keys are compared as numbers, since several encodings of one point agree on the same secret.
    """
    points = set(LOW_ORDER) | {_point(public) for server in servers for public in server.keys}
    shown = {share for server in servers for share in server.revealed}
    known: set[bytes] = set()
    while True:
        before = len(points), len(known)
        for server in servers:
            for agreed in server.witness.agreed:
                if not points.isdisjoint((_point(agreed.own), _point(agreed.peer))):
                    known |= {agreed.derived, agreed.derived[:KEY_BYTES], agreed.derived[KEY_BYTES:]}
            opened = {content for key, content in server.witness.sealed if key in known}
            for dealing in server.witness.dealings:
                for kind in range(len(dealing.shares[0])):
                    there = [
                        (point, shares[kind])
                        for point, shares in zip(dealing.points, dealing.shares, strict=True)
                        if shares[kind] in shown or b"".join(shares) in opened
                    ][: dealing.threshold]
                    if len(there) == dealing.threshold:
                        known.add(shamir.combine(*zip(*there, strict=True)))
        points |= {_point(PrivateKey(secret).public) for secret in known if len(secret) == KEY_BYTES}
        if (len(points), len(known)) == before:
            return known


def _point(public: bytes) -> int:
    return (int.from_bytes(public, "little") & ((1 << 255) - 1)) % FIELD


# What the server may know.


def allowed(server: LyingServer, *earlier: LyingServer) -> Iterator[Combinations]:
    """Iterate over all that the server may know: sums over one survivor set in each session, or in each key book.

    Honest clients reveal one set in a session. If a client joined twice, which its memory prevents, each key book may
    have one.
    """
    servers = [server, *earlier]
    columns = {person: place for place, person in enumerate(_persons(servers))}
    choices: list[list[list[frozenset[Person]]]] = []
    for place in servers:
        twice = len({person.client for person in place.persons}) < len(place.persons)
        by_book: dict[Book | None, dict[tuple[Book, frozenset[int]], list[frozenset[Person]]]] = {}
        for person, survivors in place.answered:
            book = _book(person)
            by_book.setdefault(book if twice else None, {})[book, survivors] = permitted_sums(place, person, survivors)
        choices += [list(sums.values()) for sums in by_book.values()]
    for choice in product(*choices):
        parts: list[frozenset[Person]] = [frozenset(), *(part for sums in choice for part in sums)]
        yield np.array([[person in part for person in columns] for part in parts], np.int64)


def permitted_sums(server: LyingServer, revealer: Person, survivors: frozenset[int]) -> list[frozenset[Person]]:
    """Return the sums that may be revealed once a client reveals its shares for these survivors.

    The aggregated are all survivors, or those of whole circles. On the complete graph it is the sum of the honest
    ones, if as many as the terms ask for and ``c + 2`` are aggregated. On a sparse graph, the aggregated clients must
    be connected. The sums are then those over the components that are left without the colluders. A component of one
    client is never allowed.
    """
    terms, circles = server.terms, server.terms.circles
    aggregated = {
        number
        for number in survivors
        if circles is None or all(mate in survivors for mate, circle in enumerate(circles) if circle == circles[number])
    }
    graph = {number: set(terms.graph(revealer.seed).neighbours(number)) for number in range(len(terms.clients))}
    complete = is_complete(terms.topology, len(terms.clients))
    fewest = max(terms.minimum, terms.tolerated + 2) if complete else terms.minimum
    if len(aggregated) < fewest or len(_parts(aggregated, graph)) != 1:
        return []
    book = _book(revealer)
    same_book = {person.client: person for person in server.persons if person.shared and _book(person) == book}
    persons = {person.client: person for person in server.persons} | same_book
    return [
        frozenset(persons[number] for number in part)
        for part in _parts(aggregated - server.colluders, graph)
        if len(part) > 1 and part <= set(persons)
    ]


def _book(person: Person) -> Book:
    return frozenset((entry.sender, entry.sealing_key, entry.masking_key) for entry in person.book)


def _parts(nodes: set[int], graph: Mapping[int, set[int]]) -> list[set[int]]:
    left, parts = set(nodes), []
    while left:
        part, frontier = set(), {left.pop()}
        while frontier:
            part |= frontier
            frontier = {peer for node in frontier for peer in graph[node] & left}
            left -= frontier
        parts.append(part)
    return parts


# Linear algebra.


def _persons(servers: Sequence[LyingServer]) -> list[Person]:
    return [person for server in servers for person in server.persons]


def _modulus(server: LyingServer) -> int:
    return 2 if server.terms.bits == 1 else PRIME


def _lift(row: Combinations, modulus: int) -> list[int]:
    """Return the integers of smallest absolute value that represent these field elements."""
    return [int(value) - modulus * (2 * int(value) > modulus) for value in row]


def _echelon(matrix: Combinations, modulus: int, columns: int) -> Combinations:
    """Return the reduced row echelon form of the first ``columns``; rows that are zero there are left out."""
    rows, rank = matrix % modulus, 0
    for column in range(columns):
        pivots = np.flatnonzero(rows[rank:, column])
        if len(pivots) == 0:
            continue
        rows[[rank, rank + pivots[0]]] = rows[[rank + pivots[0], rank]]
        rows[rank] = rows[rank] * pow(int(rows[rank, column]), -1, modulus) % modulus
        others = np.arange(len(rows)) != rank
        rows[others] = (rows[others] - rows[others, column, None] * rows[rank]) % modulus
        rank += 1
    return rows[:rank]


def _rank(matrix: Combinations, modulus: int) -> int:
    return len(_echelon(matrix, modulus, matrix.shape[1]))
