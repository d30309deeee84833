import itertools
import os
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.crypto import shamir
from coterie.crypto.entropy import SystemEntropy
from coterie.errors import ConfigError, VerificationError

SYSTEM = SystemEntropy()
SECRETS = st.lists(st.binary(min_size=2, max_size=64).map(lambda b: b[: len(b) // 2 * 2]), min_size=1, max_size=3)


def deal(secret: bytes, threshold: int, points: Sequence[int]) -> list[bytes]:
    """Return the shares of one secret."""
    return [share for (share,) in shamir.split([secret], threshold, points, SYSTEM, "shares")]


@given(SECRETS, st.data())
def test_any_threshold_of_shares_recovers_every_secret(secrets: list[bytes], data: st.DataObject) -> None:
    points = data.draw(st.lists(st.integers(1, 65536), min_size=1, max_size=12, unique=True))
    threshold = data.draw(st.integers(1, len(points)))
    shares = shamir.split(secrets, threshold, points, SYSTEM, "shares")
    chosen = data.draw(st.permutations(range(len(points))))[:threshold]
    for number, secret in enumerate(secrets):
        assert shamir.combine([points[i] for i in chosen], [shares[i][number] for i in chosen]) == secret
        assert all(len(share[number]) == shamir.share_size(len(secret)) for share in shares)


def test_fewer_shares_are_consistent_with_every_secret() -> None:
    # With threshold 3 and two shares fixed, each candidate secret symbol fits exactly one polynomial: interpolating
    # through (0, candidate) gives a third share for every candidate, so two shares say nothing about it.
    p = shamir.PRIME
    shares = shamir._decode(deal(b"\x12\x34", 3, [1, 2, 5]))[:, 0]
    thirds = set()
    for candidate in range(0, 65536, 257):
        known = [(0, candidate), (1, int(shares[0])), (2, int(shares[1]))]
        value = 0
        for x, y in known:
            weight = Fraction(1)
            for other, _ in known:
                if other != x:
                    weight *= Fraction(5 - other, x - other)
            value += y * weight.numerator * pow(weight.denominator, -1, p)
        thirds.add(value % p)
    assert len(thirds) == len(range(0, 65536, 257))


def test_shares_at_one_point_are_uniform() -> None:
    values = np.concatenate([shamir._decode(deal(bytes(64), 2, [7]))[0] for _ in range(500)])
    counts = np.histogram(values, bins=16, range=(0, shamir.PRIME))[0]
    expected = len(values) / 16
    assert ((counts - expected) ** 2 / expected).sum() < 60  # chi-square with 15 degrees of freedom, p ~ 2e-7


def test_a_wrong_share_gives_a_wrong_secret() -> None:
    secret = os.urandom(32)
    shares, other = deal(secret, 3, [1, 2, 3]), deal(secret, 3, [1, 2, 3])
    assert shamir.combine([1, 2, 3], [*shares[:2], other[2]]) != secret


def test_the_largest_field_element_survives_encoding() -> None:
    # The element 65536 is the only one that needs 17 bits; all-ones bits must round trip.
    values = np.full((2, 16), 65536)
    encoded = [share[0] for share in shamir._encode(values, [16])]
    assert (shamir._decode(encoded) == values).all()


def test_secrets_that_are_no_16_bit_symbols_are_refused() -> None:
    share = shamir._encode(np.full((1, 2), 65536), [2])[0][0]
    with pytest.raises(VerificationError, match="do not combine"):
        shamir.combine([1], [share])


@pytest.mark.parametrize("share", [b"\xff" * 34, b"\x01\x00" * 16 + b"\xff\xff"])
def test_elements_outside_the_field_are_refused(share: bytes) -> None:
    with pytest.raises(VerificationError, match="field elements"):
        shamir.combine([1], [share])


def test_padding_bits_must_be_zero() -> None:
    (share,) = deal(b"ab", 1, [1])
    assert shamir.combine([1], [share]) == b"ab"
    with pytest.raises(VerificationError, match="field elements"):
        shamir.combine([1], [share[:-1] + bytes([share[-1] | 1])])


def test_shares_of_different_sizes_do_not_combine() -> None:
    with pytest.raises(VerificationError, match="differ in size"):
        shamir.combine([1, 2], [b"\x00" * 34, b"\x00" * 17])


@pytest.mark.parametrize(
    ("threshold", "points", "secret"),
    [(0, [1], b"ab"), (1, [0], b"ab"), (1, [65537], b"ab"), (1, [1, 1], b"ab"), (1, [1], b"a")],
)
def test_bad_parameters_are_refused(threshold: int, points: list[int], secret: bytes) -> None:
    with pytest.raises(ConfigError):
        shamir.split([secret], threshold, points, SYSTEM, "s")


def test_a_rejected_word_is_drawn_again() -> None:
    class Stubborn:
        def __init__(self) -> None:
            self.calls = itertools.count()

        def draw(self, label: str, size: int) -> bytes:
            return b"\xff" * size if next(self.calls) == 0 else bytes(size)

    assert (shamir._uniform(Stubborn(), "s", 3) == 0).all()


def test_logarithm_tables_invert_each_other() -> None:
    powers, logarithms = shamir._tables()
    assert sorted(powers) == list(range(1, 65537))
    assert (logarithms[powers] == np.arange(65536)).all()
    assert powers[1] == 3
    assert all(pow(3, e, shamir.PRIME) == powers[e] for e in (0, 2, 17, 65535))


@given(st.integers(1, 9), st.integers(1, 6), st.data())
def test_many_secrets_are_recovered_at_once_as_one_by_one(count: int, threshold: int, data: st.DataObject) -> None:
    secrets = [os.urandom(16) for _ in range(count)]
    distinct = st.lists(st.integers(1, 65536), min_size=threshold, max_size=threshold, unique=True)
    points = [data.draw(distinct) for _ in secrets]
    shares = [deal(secret, threshold, at) for secret, at in zip(secrets, points, strict=True)]
    assert shamir.combine_many(points, shares) == secrets
    assert [shamir.combine(at, some) for at, some in zip(points, shares, strict=True)] == secrets


def test_many_secrets_are_recovered_in_arrays_of_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shamir, "_MOST_WORDS", 20)
    secrets = [os.urandom(32) for _ in range(7)]
    shares = [deal(secret, 3, [1, 2, 3]) for secret in secrets]
    assert shamir.combine_many([[1, 2, 3]] * 7, shares) == secrets
    assert shamir.combine_many([], []) == []


@pytest.mark.parametrize("broken", [b"\xff" * 17, b"short"])
def test_one_broken_share_among_many_secrets_is_found(broken: bytes) -> None:
    shares = [deal(os.urandom(16), 2, [1, 2]) for _ in range(3)]
    shares[1][0] = broken
    with pytest.raises(VerificationError):
        shamir.combine_many([[1, 2]] * 3, shares)


@given(st.data())
def test_wrong_shares_are_found_while_they_are_at_most_half_of_those_beyond_the_threshold(data: st.DataObject) -> None:
    points = data.draw(st.lists(st.integers(1, 65536), min_size=1, max_size=14, unique=True))
    threshold = data.draw(st.integers(1, len(points)))
    secret = data.draw(st.binary(min_size=16, max_size=16))
    right = deal(secret, threshold, points)
    liars = data.draw(st.sets(st.sampled_from(points), max_size=(len(points) - threshold) // 2))
    entries = {point: data.draw(st.sets(st.integers(0, 7), min_size=1)) for point in liars}  # as few as one symbol
    rows = shamir._decode(right)
    for place, point in enumerate(points):
        for entry in entries.get(point, ()):
            rows[place, entry] = (rows[place, entry] + data.draw(st.integers(1, 65536))) % shamir.PRIME
    shares = [share for (share,) in shamir._encode(rows, [8])]
    assert shamir.find_wrong_points(points, shares, threshold) == liars
    trusted = [point for point in points if point not in liars][:threshold]
    assert shamir.prove_wrong_points(points, shares, trusted, (len(points) - threshold) // 2) == liars
    assert shamir.combine(trusted, [shares[points.index(point)] for point in trusted]) == secret


@given(st.data())
def test_wrong_shares_are_proven_only_if_no_other_polynomial_of_the_secret_fits_all_but_so_many(
    data: st.DataObject,
) -> None:
    """Each share is of one of two sharings of a secret that agree wherever two can."""
    points = data.draw(st.lists(st.integers(1, 65536), min_size=4, max_size=12, unique=True))
    threshold = data.draw(st.integers(2, len(points) - 1))
    one = deal(bytes(16), threshold, points)
    difference = np.array(points) * data.draw(st.integers(1, 65536)) % shamir.PRIME
    for zero in points[: threshold - 2]:
        difference = difference * (np.array(points) - zero) % shamir.PRIME
    symbols = np.array(data.draw(st.lists(st.integers(0, 1), min_size=8, max_size=8).filter(any)))
    moved = (shamir._decode(one) + difference[:, None] * symbols) % shamir.PRIME
    other = [share for (share,) in shamir._encode(moved, [8])]
    apart = points[threshold - 2 :]  # where the two differ
    late = data.draw(st.sets(st.sampled_from(apart), min_size=1, max_size=len(points) - threshold))
    shares = [second if point in late else first for point, first, second in zip(points, one, other, strict=True)]
    trusted = [point for point in points if point not in late][:threshold]
    off_other = len(apart) - len(late)
    assert shamir.prove_wrong_points(points, shares, trusted, off_other - 1) == late
    with pytest.raises(VerificationError, match="could be the wrong ones"):
        shamir.prove_wrong_points(points, shares, trusted, off_other)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 8))
def test_the_rank_is_that_of_the_factors(rows: int, columns: int, inner: int) -> None:
    """A product of random factors has the least of their sizes for its rank, but for one in thousands."""
    rng = np.random.default_rng((rows, columns, inner))
    left, right = rng.integers(0, shamir.PRIME, (rows, inner)), rng.integers(0, shamir.PRIME, (inner, columns))
    assert shamir._rank(left @ right % shamir.PRIME) == min(rows, columns, inner)


def test_too_many_wrong_shares_are_not_located() -> None:
    points = list(range(1, 8))
    shares, made_up = deal(bytes(16), 4, points), deal(bytes(16), 4, points)
    with pytest.raises(VerificationError, match="too many"):
        shamir.find_wrong_points(points, made_up[:3] + shares[3:], 4)
    assert shamir.is_share(shares[0])
    assert not shamir.is_share(b"\xff" * 17)
