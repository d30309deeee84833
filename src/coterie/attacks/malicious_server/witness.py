"""A record of what honest clients compute: agreed keys, dealt shares, sealed envelopes, applied masks.

It is taken at the primitives, below every rule of the protocol.
:mod:`~coterie.attacks.malicious_server.knowledge` reads it, so it does not depend on the rules to know what a client
did. The server never sees it. While one client answers, functions are replaced as in
:mod:`~coterie.attacks.malicious_server.ablation`: for demonstrations and tests only.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from coterie.arithmetic.ring import RingVector
from coterie.crypto import shamir
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.sealing import seal
from coterie.secagg import client, envelopes
from coterie.secagg.masking import mask_vector


@dataclass(frozen=True, eq=False, repr=False)
class AgreedKey:
    """Bytes that a client derived from its own private key and a public key it was shown."""

    own: bytes
    peer: bytes
    derived: bytes


@dataclass(frozen=True, eq=False, repr=False)
class Dealing:
    """Secrets that a client shared, and all shares of each."""

    threshold: int
    points: Sequence[int]
    shares: Sequence[tuple[bytes, ...]]


@dataclass(frozen=True, eq=False, repr=False)
class Masking:
    """An input and its masks, as the client sent it."""

    who: object
    added: Sequence[bytes]
    subtracted: Sequence[bytes]
    result: RingVector


@dataclass(eq=False, repr=False)
class Witness:
    """The records of one session."""

    agreed: list[AgreedKey] = field(default_factory=list)
    dealings: list[Dealing] = field(default_factory=list)
    sealed: list[tuple[bytes, bytes]] = field(default_factory=list)
    """The key and the content of each envelope."""
    maskings: list[Masking] = field(default_factory=list)

    @contextmanager
    def watch(self, who: object) -> Iterator[None]:
        """Record what the code within the block computes for ``who``; nothing is recorded if the message is refused."""
        notes = Witness()
        agree, split = PrivateKey.agree, shamir.split

        def noted_agree(key: PrivateKey, peer: bytes, *arguments: Any) -> bytes:  # noqa: ANN401 - passed on
            derived = agree(key, peer, *arguments)
            notes.agreed.append(AgreedKey(key.public, peer, derived))
            return derived

        def noted_split(secrets: Sequence[bytes], threshold: int, points: Sequence[int], *source: Any) -> Any:  # noqa: ANN401 - passed on
            shares = split(secrets, threshold, points, *source)
            notes.dealings.append(Dealing(threshold, points, shares))
            return shares

        def noted_seal(key: bytes, plaintext: bytes, *arguments: Any) -> bytes:  # noqa: ANN401 - passed on
            notes.sealed.append((key, plaintext))
            return seal(key, plaintext, *arguments)

        def noted_mask(vector: RingVector, added: Sequence[bytes], subtracted: Sequence[bytes], *how: Any) -> None:  # noqa: ANN401 - passed on
            mask_vector(vector, added, subtracted, *how)
            notes.maskings.append(Masking(who, added, subtracted, vector.copy()))

        places: list[tuple[Any, str, Any, Any]] = [
            (PrivateKey, "agree", agree, noted_agree),
            (shamir, "split", split, noted_split),
            (envelopes, "seal", seal, noted_seal),
            (client, "mask_vector", mask_vector, noted_mask),
        ]
        try:
            for owner, name, _, noted in places:
                setattr(owner, name, noted)
            yield
        finally:
            for owner, name, plain, _ in places:
                setattr(owner, name, plain)
        self.agreed += notes.agreed
        self.dealings += notes.dealings
        self.sealed += notes.sealed
        self.maskings += notes.maskings
