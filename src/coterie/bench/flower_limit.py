"""The shortest time of a secure round without its trips: cryptography, and writing answers to disk before sending them.

The number of expensive operations follows from the protocol; the time of each operation is measured separately.
"""

import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from coterie.arithmetic.ring import Ring
from coterie.bench.machine import SOME, best_seconds, several
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.keystream import SEED_BYTES, generate
from coterie.crypto.signing import Identity, verify
from coterie.deployment.node import Node, NodeSettings
from coterie.deployment.sessions import STALE, Parked
from coterie.graphs.guarantees import quorum_of
from coterie.rounds.floor import Floor
from coterie.secagg.protocols import SessionProtocol
from coterie.secagg.terms import default_colluders

_RUN = 1


@dataclass(frozen=True)
class Operations:
    """The number of expensive operations of all parties in a secure round, on the complete graph without dropouts."""

    keys: int
    """X25519 keys made from their secrets, when they are drawn and again by the process that agrees with them."""
    agreements: int
    """On a key with each of the others, twice in the papers' protocol."""
    signatures: int
    verifications: int
    masks: int
    """Seeds expanded to the length of the vector."""
    answers: int

    @classmethod
    def of_round(
        cls, nodes: int, workers: int | None, protocol: SessionProtocol = SessionProtocol.PAPERS, *, active: bool
    ) -> "Operations":
        """Count the operations of a round. ``workers`` play all nodes in a simulation; None if each is on its own.

        Against an active server every node signs three messages. A node on its own verifies the keys and the mask
        statements of all others, and the confirmations of a quorum except its own. A worker verifies each signature
        once for all nodes that it plays. The server verifies all. In two trips, nodes verify only the prekeys of all
        nodes, and the server also verifies the new prekey that comes with a contribution.
        """
        if protocol is SessionProtocol.TWO_TRIPS:
            alone = nodes * nodes if active else 0
            checked = alone if workers is None else min(alone, workers * nodes)
            return cls(
                keys=2 * nodes,
                agreements=nodes * (nodes - 1),
                signatures=(3 if active else 1) * nodes,
                verifications=checked + (3 if active else 1) * nodes,
                masks=nodes * nodes + nodes,
                answers=2 * nodes,
            )
        signatures = 3 * nodes if active else 0
        quorum = quorum_of(nodes, default_colluders(nodes))
        alone = nodes * (2 * (nodes - 1) + quorum - 1) if active else 0
        checked = alone if workers is None else min(alone, workers * (2 * nodes + quorum))
        return cls(
            keys=4 * nodes,
            agreements=2 * nodes * (nodes - 1),
            signatures=signatures,
            verifications=checked + signatures,
            masks=nodes * nodes + nodes,
            answers=(5 if active else 4) * nodes,
        )

    def cryptography(self, ring: Ring, length: int) -> float:
        """Return the processor seconds of all operations except the answers on this machine, one after the other."""
        secret, context = os.urandom(32), os.urandom(64)
        key, other = PrivateKey(secret), PrivateKey.generate(SystemEntropy(), "other").public
        identity = Identity.generate(SystemEntropy())
        signature = identity.sign(context)
        seeds = [os.urandom(SEED_BYTES)] * SOME
        times = best_seconds(
            several(lambda: PrivateKey(secret)),
            several(lambda: key.agree(other, context)),
            several(lambda: identity.sign(context)),
            several(lambda: verify(identity.public, signature, context)),
            lambda: generate(seeds, ring.zeros(length).nbytes),
        )
        counts = (self.keys, self.agreements, self.signatures, self.verifications, self.masks)
        return sum(count * seconds / SOME for count, seconds in zip(counts, times, strict=True))

    def storage(self, folder: Path, size: int) -> float:
        """Return the seconds to write answers of ``size`` bytes to the disk of this folder, one by one."""
        folder.mkdir()
        node = Node(NodeSettings("limit", folder, Floor()))
        parked = Parked(os.urandom(32), os.urandom(size))
        times = []
        for _ in range(SOME):
            with node.session(_RUN) as place, node.memory() as file:
                memory = file.of(node.client)
                began = time.perf_counter()
                memory.enter(os.urandom(32))
                place.write(parked, time.time() + STALE)
                times.append(time.perf_counter() - began)
        return self.answers * statistics.median(times)
