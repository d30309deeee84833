"""The operations of a planned session, measured on this machine."""

import math
import os

from coterie.arithmetic.ring import Ring
from coterie.bench.machine import SOME, best_seconds, several, verification_seconds
from coterie.crypto import shamir
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.keystream import SEED_BYTES
from coterie.crypto.sealing import seal
from coterie.planning.seconds import OperationSeconds
from coterie.planning.session import Plan
from coterie.secagg.masking import mask_vector
from coterie.secagg.messages import checksum

_LONGEST = 1 << 16  # numbers of a vector that are measured; the time of more is computed


def operation_seconds(plan: Plan) -> OperationSeconds:
    """Measure the operations of a planned session on this machine, for a second or two.

    Long vectors are measured in part: masks and checksums take time in proportion to their length.
    """
    ring, entropy = Ring(plan.bits), SystemEntropy()
    part = min(plan.length, _LONGEST)
    whole = plan.length / part
    key, peer = (PrivateKey.generate(entropy, "key") for _ in range(2))
    vector, packed = ring.zeros(part), bytes(ring.packed_size(part))
    seeds = [os.urandom(SEED_BYTES) for _ in range(SOME)]
    points, threshold = range(1, math.ceil(plan.guarantee.degree) + 2), plan.guarantee.threshold
    secret, sealing_key = os.urandom(SEED_BYTES), os.urandom(32)

    def share() -> list[tuple[bytes, ...]]:
        return shamir.split([secret], threshold, points, entropy, "share")

    shares = [share for (share,) in share()[:threshold]]
    agreeing, expanding, checking, sealing, sharing, opening = best_seconds(
        several(lambda: key.agree(peer.public, b"", SEED_BYTES)),
        lambda: mask_vector(vector, seeds, ()),
        several(lambda: checksum(packed)),
        several(lambda: seal(sealing_key, secret, b"", entropy, "seal")),
        share,
        lambda: shamir.combine_many([points[:threshold]], [shares]),
    )
    return OperationSeconds(
        agreement=agreeing / SOME,
        verification=verification_seconds(),
        expansion=whole * expanding / SOME,
        checksum=whole * checking / SOME,
        sealing=sealing / SOME,
        sharing=sharing,
        opening=opening,
    )
