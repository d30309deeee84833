"""The secrets of simulated clients: their signing keys and their noise, derived from one secret of the run."""

import hashlib
from collections.abc import Sequence

from coterie.arithmetic import FloatArray
from coterie.arithmetic.ring import RingVector
from coterie.crypto.entropy import DeterministicEntropy, Entropy
from coterie.crypto.signing import Identity


class ClientSecrets:
    """The secrets of the clients of a run, which its server does not know."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return "<ClientSecrets (secret)>"

    def identity(self, name: str) -> Identity:
        """Return a client's signing key."""
        return Identity.generate(DeterministicEntropy(self._secret), f"identity of {name}")

    def noise(self, number: int, name: str, update: Sequence[FloatArray]) -> Entropy:
        """Return the entropy of a client's noise in a round, for exactly this update.

        A round that is repeated after a crash has the same noise. With new noise, the server would see the same sum
        twice and could average the noise away. A repeated round with *other* updates has other noise, because with the
        same noise the difference of the two sums would have none.
        """
        return DeterministicEntropy(self._secret + f"/noise/{number}/{name}/".encode() + digest_of(update))


def digest_of(arrays: Sequence[FloatArray | RingVector]) -> bytes:
    """Return a digest of exactly these arrays: their types, shapes and values."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.dtype}{array.shape}".encode())
        hashed.update(array.tobytes())
    return hashed.digest()
