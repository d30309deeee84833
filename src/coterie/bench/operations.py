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

_LONGEST = 1 << 16  # length of the measured vector; the time of longer ones is extrapolated
_MOST_HOLDERS = 512  # the same for the number of shares


def operation_seconds(plan: Plan) -> OperationSeconds:
    """Measure the operations of a planned session on this machine, for a second or two.

    Long vectors are measured in part: masks and checksums take time in proportion to their length. So are secrets with
    many holders: dealing n shares with a threshold of t is a product of matrices with n t numbers, and t shares have t
    Lagrange weights of t factors each.
    """
    ring, entropy = Ring(plan.bits), SystemEntropy()
    part = min(plan.length, _LONGEST)
    whole = plan.length / part
    key, peer = (PrivateKey.generate(entropy, "key") for _ in range(2))
    vector, packed = ring.zeros(part), bytes(ring.packed_size(part))
    seeds = [os.urandom(SEED_BYTES) for _ in range(SOME)]
    all_holders = math.ceil(plan.guarantee.degree) + 1
    holders = min(all_holders, _MOST_HOLDERS)
    threshold = max(1, plan.guarantee.threshold * holders // all_holders)
    more_holders, more_shares = all_holders / holders, plan.guarantee.threshold / threshold
    points = range(1, holders + 1)
    secret, sealing_key = os.urandom(SEED_BYTES), os.urandom(32)

    def share() -> list[tuple[bytes, ...]]:
        return shamir.split([secret] * SOME, threshold, points, entropy, "share")

    shares = [of_secrets[0] for of_secrets in share()[:threshold]]
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
        sharing=more_holders * more_shares * sharing / SOME,
        opening=more_shares**2 * opening,
    )
