"""Every error Coterie raises on purpose.

The tree tells a caller who is at fault and therefore what to do:

* :class:`ConfigError` and :class:`InputError`: the values given are wrong; nothing was sent.
* :class:`LocalProtocolError`: our own caller used the protocol wrongly; fix the program.
* :class:`PeerProtocolError`: the other side broke the protocol; drop it and go on.
* :class:`RoundAborted`: nobody is at fault or nobody can be named, but this round yields no result.

No message of any error ever contains key material, a share, a mask or an input.
"""

from collections.abc import Mapping


class CoterieError(Exception):
    """Base of everything Coterie raises on purpose."""


class ConfigError(CoterieError, ValueError):
    """Parameters that contradict each other or cannot be met."""


class InputError(CoterieError, ValueError):
    """A vector, weight or array that cannot be encoded; raised before anything is sent."""


class OverflowRisk(ConfigError):
    """The ring is too small for the sum: aggregation could wrap around unnoticed."""


class LocalProtocolError(CoterieError):
    """The caller asked for something this state of the protocol does not allow."""


class PeerProtocolError(CoterieError):
    """The other side sent something the protocol does not allow."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer = peer
        self.reason = reason


class VerificationError(CoterieError):
    """A ciphertext, signature, key or share that does not check out; says what, never its content."""


class RoundAborted(CoterieError):
    """The round ends without a result; the model stays as it was."""


class ThresholdError(RoundAborted):
    """Too few clients are left to remove every mask (Theorem 1 of the CCESA paper).

    ``shortfall`` names every client whose masks could not be removed, with the number of shares that
    arrived and the number needed; it is empty where the round ended before any share was asked for.
    """

    def __init__(self, reason: str, shortfall: Mapping[str, tuple[int, int]] | None = None) -> None:
        super().__init__(reason)
        self.shortfall = dict(shortfall or {})


class PartialSumRisk(RoundAborted):
    """The survivors' graph falls apart, so unmasking would expose a partial sum (Theorem 2, CCESA)."""
