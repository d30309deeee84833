"""Sources of secret randomness: the operating system, or a labelled stream for reproducible test vectors."""

import hashlib
import os
from typing import Protocol

from coterie.crypto.context import bind
from coterie.errors import LocalProtocolError


class Entropy(Protocol):
    """A source of secret random bytes. It is passed explicitly to the code that needs it."""

    def draw(self, label: str, size: int) -> bytes:
        """Return ``size`` fresh bytes for the purpose ``label``."""
        ...


class SystemEntropy:
    """The operating system's generator. Use it for real data."""

    def draw(self, label: str, size: int) -> bytes:
        """Return ``size`` bytes from the operating system; the label is ignored."""
        return os.urandom(size)


class LabelledStream:
    """Bytes that depend on a seed and the label only; they are secret if the seed is.

    Labels may be drawn in any order, each once: a second draw would return the same "random" bytes again.
    """

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._drawn: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    def draw(self, label: str, size: int) -> bytes:
        """Return the first ``size`` bytes of the stream named ``label``."""
        if label in self._drawn:
            raise LocalProtocolError(f"deterministic entropy for {label!r} was already drawn")
        self._drawn.add(label)
        return hashlib.shake_256(bind("entropy", self._seed, label.encode())).digest(size)


class DeterministicEntropy(LabelledStream):
    """A stream with a public seed, for test vectors and replays. Never use it for real data."""
