"""All that follows from what a lying server holds, by linear algebra: no way to compute more is overlooked.

Each masked input is one equation, input plus signed masks; a mask whose seed the server can compute is known, every
other one is an unknown. What cancels all unknowns, it learns.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.attacks.malicious_server.world import World
from coterie.secagg.masking import adds

PRIME = (1 << 31) - 1
Combinations: TypeAlias = npt.NDArray[np.int64]


def leaks(world: World) -> bool:
    """Whether anything follows but sums over those aggregated, of at least two honest clients each.

    Two sums that were opened may be allowed by themselves and yet tell one client apart.
    """
    permitted, found = allowed(world), learned(world)
    beyond = _rank(np.vstack([permitted, found])) > _rank(permitted)
    return beyond or bool(((found != 0).sum(axis=1) == 1).any())


def exposes(world: World, number: int) -> bool:
    """Whether one client's input follows: what is learned is in reduced form, so it is then a row of its own."""
    alone = np.array([honest == number for honest in world.honest], np.int64)
    return any((row == alone).all() for row in learned(world))


def learned(world: World) -> Combinations:
    """Return a basis of what the server can compute: one row of coefficients of the honest inputs for each."""
    known = _known_seeds(world)
    seeds: dict[bytes, int] = {}
    masks: list[tuple[int, dict[bytes, int]]] = []
    for person in world.persons:
        if person.carried is None or person.shared is None:
            continue
        signed = {person.shared.self_seed: 1}
        for peer in person.shared.peers:
            if peer.client in person.carried:
                sign = 1 if adds(person.client, peer.client) else -1
                signed[peer.pair_seed] = signed.get(peer.pair_seed, 0) + sign
        unknown = {seed: sign for seed, sign in signed.items() if seed not in known}
        masks.append((world.honest.index(person.client), unknown))
        for seed in unknown:
            seeds.setdefault(seed, len(seeds))
    equations = np.zeros((len(masks), len(seeds) + len(world.honest)), np.int64)
    for row, (client, unknown) in enumerate(masks):
        for seed, sign in unknown.items():
            equations[row, seeds[seed]] = sign % PRIME
        equations[row, len(seeds) + client] = 1
    reduced = _echelon(equations)
    return reduced[~reduced[:, : len(seeds)].any(axis=1), len(seeds) :]


def allowed(world: World) -> Combinations:
    """Return sums over the honest parts of every set that clients helped to open; a part of one is not allowed."""
    rows = [np.zeros(len(world.honest), np.int64)]
    for seed, survivors in world.answered:
        graph = world.terms.graph(seed)
        left = set(world.terms.aggregated(survivors)) - world.colluders
        while left:
            part, frontier = set(), [left.pop()]
            while frontier:
                node = frontier.pop()
                part.add(node)
                found = left.intersection(graph.neighbours(node))
                left -= found
                frontier.extend(found)
            if len(part) > 1:
                rows.append(np.array([number in part for number in world.honest], np.int64))
    return np.array(rows)


def _known_seeds(world: World) -> set[bytes]:
    keys = world.masking_keys()
    found = [world.self_seed(person) for person in world.persons]
    for person in world.persons:
        peers = (entry for entry in person.book if entry.sender != person.client)
        found += [world.pair_seed(keys, person, entry) for entry in peers]
    return {seed for seed in found if seed is not None}


def _echelon(matrix: Combinations) -> Combinations:
    """Return the row echelon form over a prime field; zero rows are left out."""
    rows, rank = matrix % PRIME, 0
    for column in range(rows.shape[1]):
        pivots = np.flatnonzero(rows[rank:, column])
        if len(pivots) == 0:
            continue
        rows[[rank, rank + pivots[0]]] = rows[[rank + pivots[0], rank]]
        rows[rank] = rows[rank] * pow(int(rows[rank, column]), -1, PRIME) % PRIME
        others = np.arange(len(rows)) != rank
        rows[others] = (rows[others] - rows[others, column, None] * rows[rank]) % PRIME
        rank += 1
    return rows[:rank]


def _rank(matrix: Combinations) -> int:
    return len(_echelon(matrix))
