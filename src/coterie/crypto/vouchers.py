"""Vouchers: signatures by a machine's authentication key on its identity key.

Deployments give each machine an ECDSA key on P-384 for authentication, made by OpenSSH or as PEM. A machine signs its
identity with that key. Anyone who has the public keys can then verify a roster.
"""

from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from coterie.errors import ConfigError, VerificationError

_UNREADABLE = (ValueError, UnsupportedAlgorithm, NotImplementedError)
"""Errors of the library for bytes that are no key; the last is for a compressed point."""
_PEM_END = b"-----END PUBLIC KEY-----"


def vouch(key_file: Path, context: bytes) -> tuple[bytes, bytes]:
    """Sign a context with the key in a file. Return the public key, in DER, and the signature."""
    try:
        content = key_file.read_bytes()
        load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in content else load_pem_private_key
        key = load(content, None)
    except (OSError, TypeError, *_UNREADABLE):
        raise ConfigError(f"cannot read a private key without a password from {key_file}") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ConfigError(f"the key in {key_file} is not an elliptic-curve key")
    return _der(key.public_key()), key.sign(context, ECDSA(SHA384()))


def check_voucher(public: bytes, signature: bytes, context: bytes) -> None:
    """Raise :class:`VerificationError` unless the owner of ``public`` (DER or PEM) signed exactly this context."""
    try:
        _load(public).verify(signature, context, ECDSA(SHA384()))
    except (InvalidSignature, *_UNREADABLE):
        raise VerificationError("a voucher does not verify") from None


def read_public_keys(content: bytes) -> list[bytes]:
    """Return the public keys of a file in DER: PEM blocks one after the other, or lines as in ``authorized_keys``.

    Only a newline ends a line, as in OpenSSH: nothing else ends a comment.
    """
    try:
        if _PEM_END in content:
            blocks = [block.strip() + b"\n" + _PEM_END for block in content.split(_PEM_END) if block.strip()]
            return [_der(_load(block)) for block in blocks]
        lines = [line.strip() for line in content.split(b"\n")]
        return [_der(load_ssh_public_key(line)) for line in lines if line and not line.startswith(b"#")]
    except _UNREADABLE:
        raise ConfigError("neither PEM nor OpenSSH public keys on an elliptic curve") from None


def _load(public: bytes) -> EllipticCurvePublicKey:
    key = load_pem_public_key(public) if public.startswith(b"-----") else load_der_public_key(public)
    if not isinstance(key, EllipticCurvePublicKey):
        raise ValueError("not an elliptic-curve key")
    return key


def _der(key: object) -> bytes:
    if not isinstance(key, EllipticCurvePublicKey):
        raise ValueError("not an elliptic-curve key")
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
