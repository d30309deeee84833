import os
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from coterie.crypto import agreement, sealing, signing
from coterie.crypto.agreement import PrivateKey, check_public
from coterie.crypto.context import bind, digest, fingerprint
from coterie.crypto.entropy import DeterministicEntropy, SystemEntropy
from coterie.errors import LocalProtocolError, VerificationError

PARTS = st.lists(st.one_of(st.binary(max_size=12), st.integers(0, 2**63 - 1)), max_size=4)
SYSTEM = SystemEntropy()


@given(st.text(max_size=5), PARTS, st.text(max_size=5), PARTS)
def test_contexts_collide_only_if_equal(
    purpose: str, parts: list[bytes | int], other: str, others: list[bytes | int]
) -> None:
    assert (bind(purpose, *parts) == bind(other, *others)) == ((purpose, parts) == (other, others))


def test_fingerprints_depend_on_context_and_secret() -> None:
    marks = {fingerprint(bind(p, 1), s) for p in ("a", "b") for s in (b"x", b"y")}
    assert len(marks) == 4
    assert {len(mark) for mark in marks} == {16}
    assert len(digest(b"")) == 32


def test_both_sides_agree_on_one_key_for_each_context() -> None:
    ours, theirs = PrivateKey.generate(SYSTEM, "a"), PrivateKey.generate(SYSTEM, "b")
    key = ours.agree(theirs.public, bind("x"))
    assert key == theirs.agree(ours.public, bind("x"))
    assert key != ours.agree(theirs.public, bind("y"))
    assert len(ours.agree(theirs.public, bind("x"), 64)) == 64


def test_agreement_has_the_known_answer_of_x25519() -> None:
    # The first test vector of RFC 7748, section 5.2.
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    shared = agreement._exchange(PrivateKey(scalar)._key, point)
    assert shared.hex() == "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"


@pytest.mark.parametrize(
    "public",
    [
        bytes(32),
        b"\x01" + bytes(31),
        b"short",
        bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    ],
)
def test_keys_of_low_order_are_refused(public: bytes) -> None:
    with pytest.raises(VerificationError):
        PrivateKey.generate(SYSTEM, "a").agree(public, b"")
    with pytest.raises(VerificationError):
        check_public(public)


@given(
    st.one_of(
        st.binary(min_size=32, max_size=32),
        st.sampled_from(sorted(agreement._LOW_ORDER)).map(lambda number: number.to_bytes(32, "little")),
        st.binary(max_size=33),
    )
)
def test_a_key_is_checked_as_an_agreement_would_check_it(public: bytes) -> None:
    key = PrivateKey(bytes(range(32)))
    try:
        key.agree(public, b"")
    except VerificationError:
        with pytest.raises(VerificationError):
            check_public(public)
    else:
        check_public(public)


def test_a_good_key_passes() -> None:
    check_public(PrivateKey.generate(SYSTEM, "a").public)


@given(st.binary(max_size=100), st.binary(max_size=20), st.integers(0, 10_000))
def test_sealing_detects_any_change(plaintext: bytes, context: bytes, bit: int) -> None:
    key = os.urandom(32)
    sealed = sealing.seal(key, plaintext, context, SYSTEM, "nonce")
    assert len(sealed) == len(plaintext) + sealing.OVERHEAD_BYTES
    assert sealing.unseal(key, sealed, context) == plaintext
    bit %= 8 * len(sealed)
    mauled = bytearray(sealed)
    mauled[bit // 8] ^= 1 << bit % 8
    for attempt in ((key, bytes(mauled), context), (key, sealed, context + b"!"), (os.urandom(32), sealed, context)):
        with pytest.raises(VerificationError):
            sealing.unseal(*attempt)


@given(st.binary(max_size=30))
def test_unsealing_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(VerificationError):
        sealing.unseal(bytes(32), noise, b"")


def test_signatures_bind_signer_and_context() -> None:
    signer, other = signing.Identity.generate(SYSTEM), signing.Identity.generate(SYSTEM)
    signature = signer.sign(b"context")
    signing.verify(signer.public, signature, b"context")
    for attempt in (
        (other.public, signature, b"context"),
        (signer.public, signature, b"other"),
        (signer.public, signature[:-1], b"context"),
        (b"no key", signature, b"context"),
    ):
        with pytest.raises(VerificationError):
            signing.verify(*attempt)
    assert signing.Identity(signer.secret()).public == signer.public


@given(st.binary(max_size=40), st.sampled_from(range(3)), st.integers(0), st.integers(1, 255))
def test_a_remembered_signature_does_not_verify_other_bytes(context: bytes, part: int, at: int, flip: int) -> None:
    signer = signing.Identity(bytes(range(32)))
    genuine = (signer.public, signer.sign(context), context)
    changed = [bytearray(value) for value in genuine]
    changed[part] = changed[part] or bytearray(1)
    changed[part][at % len(changed[part])] ^= flip
    with signing.each_signature_once():
        signing.verify(*genuine)
        for _ in range(2):  # that it was refused is not remembered either
            with pytest.raises(VerificationError):
                signing.verify(*map(bytes, changed))
        signing.verify(*genuine)


def test_signatures_are_remembered_only_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[bytes] = []

    def read(public: bytes) -> Ed25519PublicKey:
        computed.append(public)
        return Ed25519PublicKey.from_public_bytes(public)

    monkeypatch.setattr(signing, "Ed25519PublicKey", SimpleNamespace(from_public_bytes=read))
    signer = signing.Identity.generate(SYSTEM)
    signature = signer.sign(b"context")
    for _ in range(3):
        signing.verify(signer.public, signature, b"context")
    assert len(computed) == 3
    with signing.each_signature_once():
        for _ in range(3):
            signing.verify(signer.public, signature, b"context")
    assert len(computed) == 4
    signing.verify(signer.public, signature, b"context")
    assert len(computed) == 5


def test_deterministic_entropy_replays_and_never_repeats_itself() -> None:
    first, second = DeterministicEntropy(b"seed"), DeterministicEntropy(b"seed")
    assert first.draw("a", 20) == second.draw("a", 20)
    assert first.draw("b", 20) != second.draw("c", 20)
    assert DeterministicEntropy(b"other").draw("a", 20) != DeterministicEntropy(b"seed").draw("a", 20)
    with pytest.raises(LocalProtocolError):
        first.draw("a", 20)


def test_system_entropy_is_fresh() -> None:
    assert SYSTEM.draw("a", 16) != SYSTEM.draw("a", 16)


def test_no_repr_shows_a_secret() -> None:
    key, identity = PrivateKey.generate(SYSTEM, "a"), signing.Identity.generate(SYSTEM)
    for thing, secret in (
        (key, key.secret()),
        (identity, identity.secret()),
        (DeterministicEntropy(b"sesame"), b"sesame"),
    ):
        shown = f"{thing!r} {thing}"
        assert secret.hex() not in shown
        assert str(secret) not in shown


@given(st.integers(0, 18), st.booleans())
def test_a_public_key_has_one_form(excess: int, high: bool) -> None:
    """If one point had two encodings, a repeated key could look like a new one."""
    own = PrivateKey.generate(SystemEntropy(), "key")
    again = bytearray(own.public)
    again[-1] |= 0x80
    wrapped = (2**255 - 19 + excess).to_bytes(32, "little")
    for public in (bytes(again), wrapped if not high else bytes([*wrapped[:-1], wrapped[-1] | 0x80])):
        with pytest.raises(VerificationError, match="malformed"):
            check_public(public)
        with pytest.raises(VerificationError, match="malformed"):
            own.agree(public, b"context")
