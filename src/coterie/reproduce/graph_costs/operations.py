"""What a session needs, counted from its graph and from who drops out, without playing it.

The time of a session depends on the machine, and constant parts hide how it grows. These numbers do not.
``tests/unit/reproduce/test_graph_costs.py`` compares them with what real sessions do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache

import msgspec
import numpy as np

from coterie.planning.costs import session_costs
from coterie.secagg import rules
from coterie.secagg.terms import Terms


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """The operations of a session. Those of a client are means over all clients if nobody drops out."""

    client_bytes: float
    """What a client sends and receives of keys and shares, in our messages: everything but its masked vector."""
    client_products: float
    """Products of field elements with which a client makes its shares: holders times threshold, for each word of 16
    bits that it shares."""
    client_stream: float
    """Numbers that a client takes from key streams to mask its vector."""
    server_bytes: float
    """What the server receives and sends without vectors: that of all clients."""
    server_products: float
    """Products of field elements with which the server makes the weights of shares: the square of the threshold for
    each secret that it recovers."""
    server_stream: float
    """Numbers that the server takes from key streams to remove masks."""


def count_operations(terms: Terms, sharers: Collection[int], survivors: Collection[int]) -> Operations:
    """Count the operations of a session in which these clients share secrets, and these of them send their vector."""
    graph = terms.graph(rules.graph_seed(terms, ()))
    degrees, clients = graph.degrees(), len(terms.clients)
    thresholds = np.array([terms.threshold_for(degree + 1) for degree in degrees.tolist()], np.float64)
    near = graph.degrees_within(survivors)  # how many survivors carry a mask of each client
    left = [client for client in set(sharers) - set(survivors) if near[client]]
    opened = thresholds[[*survivors, *left]]
    sent = [
        number * _bytes_without_vector(clients, degree, terms.bits, terms.length)
        for degree, number in Counter(degrees.tolist()).items()
    ]
    return Operations(
        client_bytes=sum(sent) / clients,
        client_products=float(((degrees + 1) * thresholds).mean()),
        client_stream=terms.length * float((degrees + 1).mean()),
        server_bytes=float(sum(sent)),
        server_products=float((opened**2).sum()),
        server_stream=terms.length * float(len(survivors) + near[left].sum()),
    )


def mean_operations(found: Sequence[Operations]) -> Operations:
    """Return the mean of several sessions."""
    names = Operations.__struct_fields__
    return Operations(**{name: sum(getattr(one, name) for one in found) / len(found) for name in names})


@lru_cache(maxsize=4096)
def _bytes_without_vector(clients: int, degree: int, bits: int, length: int) -> int:
    costs = session_costs(clients, degree, bits, length)
    return costs.client_bytes - costs.masked_vector_bytes
