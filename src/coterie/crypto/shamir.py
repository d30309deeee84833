"""Shamir's threshold sharing of short secrets, vectorised.

A secret is cut into 16-bit symbols and each is shared over the field of 65537 = 2^16 + 1 elements. That prime
makes everything simple and exact:

* Its multiplicative group has order 2^16 and generator 3, so powers and products of *evaluation points*
  (which are public) are look-ups in a table of logarithms.
* Products of field elements are at most 2^32 and sums of up to 2^16 of them stay below 2^53, so evaluating
  all polynomials at all points is one float64 matrix product without rounding.
* 65537 divides 2^32 - 1: a uniform 32-bit word other than 2^32 - 1 is uniform modulo 65537.

A share holds one field element per symbol: 16 low bits each, then one bit each for the single element, 2^16,
that needs a seventeenth.
"""

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from coterie.crypto.entropy import Entropy
from coterie.errors import ConfigError, VerificationError

PRIME = 65537
_GENERATOR = 3
_MOST_WORDS = 1 << 20  # in the largest array that recovering many secrets makes
Symbols = NDArray[np.int64]
Exponents = NDArray[np.uint16]


def share_size(secret_size: int) -> int:
    """Return the size in bytes of one share of a secret of ``secret_size`` bytes."""
    symbols = secret_size // 2
    return 2 * symbols + (symbols + 7) // 8


def split(
    secrets: Sequence[bytes], threshold: int, points: Sequence[int], entropy: Entropy, label: str
) -> list[tuple[bytes, ...]]:
    """Share each secret so that any ``threshold`` of the ``points`` recover it and fewer learn nothing.

    Returns, for each point, one share of each secret. Secrets have even length; points are distinct and in
    1..65536. A threshold above the number of points is allowed and makes the secrets unrecoverable.
    """
    if threshold < 1:
        raise ConfigError("a sharing threshold must be at least 1")
    if len(set(points)) != len(points) or not all(1 <= point < PRIME for point in points):
        raise ConfigError("evaluation points must be distinct and between 1 and 65536")
    if any(len(secret) % 2 for secret in secrets):
        raise ConfigError("a shared secret must have an even number of bytes")
    constants = np.frombuffer(b"".join(secrets), "<u2").astype(np.int64)
    randoms = _uniform(entropy, label, (threshold - 1) * len(constants))
    coefficients = np.vstack([constants, randoms.reshape(threshold - 1, len(constants))])
    values = _multiply(_powers(np.array(points, np.int64), threshold), coefficients)
    return _encode(values, [len(secret) // 2 for secret in secrets])


def combine(points: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """Recover a secret from exactly as many shares as its threshold (Lagrange interpolation at zero).

    Wrong or too few shares give a wrong secret or an error. The caller must check the result against a known value,
    such as a fingerprint.
    """
    symbols = _multiply(_weights(tuple(points))[None, :], _decode(shares))[0]
    if (symbols == PRIME - 1).any():
        raise VerificationError("shares do not combine to a secret")
    secret: bytes = symbols.astype("<u2").tobytes()
    return secret


def combine_many(points: Sequence[Sequence[int]], shares: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Recover many secrets of the same size and threshold at once, as :func:`combine` recovers one.

    Raises :class:`VerificationError` if it fails for one of them. Use :func:`combine` to find out for which.
    """
    secrets: list[bytes] = []
    if not points:
        return secrets
    threshold = len(points[0])
    some = max(1, _MOST_WORDS // threshold**2)
    for first in range(0, len(points), some):
        chosen = range(first, min(first + some, len(points)))
        weights = _weights_of(np.array([points[place] for place in chosen]))
        rows = _decode([share for place in chosen for share in shares[place]])
        symbols = _multiply(weights[:, None, :], rows.reshape(len(chosen), threshold, -1))[:, 0]
        if (symbols == PRIME - 1).any():
            raise VerificationError("shares do not combine to a secret")
        secrets += [secret.tobytes() for secret in symbols.astype("<u2")]
    return secrets


def is_share(share: bytes) -> bool:
    """Tell whether these bytes are field elements; a share that was made up may not be."""
    try:
        _decode([share])
    except VerificationError:
        return False
    return True


def prove_wrong_points(
    points: Sequence[int], shares: Sequence[bytes], trusted: Sequence[int], most: int
) -> frozenset[int]:
    """Return the points whose shares are not on the polynomials through the shares of the ``trusted`` points.

    There are as many trusted points as the threshold t, all shares are well formed, and the trusted ones combine to the
    right secret. Raises :class:`VerificationError` if other polynomials of the same secret could be the right ones,
    although at most ``most`` of the u shares are wrong.

    The reason: let w shares be off the trusted polynomials, by errors of rank r, and let s of them be on other
    polynomials. The difference of the two has rank r - (w - s) at least. It is zero at zero, so it is not zero at
    u - t + 1 + r - (w - s) points at least. These are the s points, and others at which a share is off the other
    polynomials. So more than ``most`` shares are off the other polynomials if most + w - r <= u - t.
    """
    at, chosen = np.array(points), np.isin(points, trusted)
    errors = _errors(at, _decode(shares), chosen)
    wrong = errors.any(axis=1)
    if most + wrong.sum() - _rank(errors) > len(points) - len(trusted):
        raise VerificationError("other shares than these could be the wrong ones")
    return frozenset(at[wrong].tolist())


def find_wrong_points(points: Sequence[int], shares: Sequence[bytes], threshold: int) -> frozenset[int]:
    """Find the wrong ones among more shares than the threshold, by the decoder of Berlekamp and Welch.

    It succeeds if at most half of the shares beyond the threshold are wrong, whichever they are. Otherwise it raises
    :class:`VerificationError`, or returns other points: the caller must check the secret that the rest combine to.
    """
    at, rows = np.array(points), _decode(shares)
    wrong = np.zeros(len(at), bool)
    for symbols in rows.T:
        trusted = _locator(at, symbols, threshold) != 0
        trusted[np.flatnonzero(trusted)[threshold:]] = False
        if trusted.sum() == threshold:
            wrong |= _errors(at, symbols[:, None], trusted)[:, 0] != 0
        else:
            wrong[:] = True
    if 2 * wrong.sum() > len(at) - threshold:
        raise VerificationError("too many shares are wrong")
    return frozenset(at[wrong].tolist())


def _errors(points: Symbols, rows: Symbols, trusted: NDArray[np.bool_]) -> Symbols:
    """Return by how much each row is off the polynomials through the trusted rows."""
    weights = _weights_of((points[trusted][None, :] - points[~trusted][:, None]) % PRIME)
    errors = np.zeros_like(rows)
    errors[~trusted] = (rows[~trusted] - _multiply(weights, rows[trusted])) % PRIME
    return errors


def _locator(points: Symbols, symbols: Symbols, threshold: int) -> Symbols:
    """Return, at each point, the value of a polynomial E that is zero where a symbol is wrong.

    E has degree e, half of the shares beyond the threshold, and Q has degree below threshold + e. If at most e symbols
    y are wrong, every solution of Q(x) = y E(x) at all points x, except zero, has Q / E for the polynomial that was
    shared. If more are wrong, there may be no other solution than zero.
    """
    errors = (len(points) - threshold) // 2
    powers = _powers(points, threshold + errors)
    system = np.hstack([powers, -symbols[:, None] * powers[:, : errors + 1] % PRIME])
    located = _multiply(powers[:, : errors + 1], _kernel_vector(system)[threshold + errors :, None])
    values: Symbols = located[:, 0]
    return values


def _powers(points: Symbols, count: int) -> Symbols:
    powers, logarithms = _tables()
    values: Symbols = powers[np.outer(logarithms[points], np.arange(count, dtype=np.uint16))]
    return values


def _kernel_vector(system: Symbols) -> Symbols:
    """Return a solution of homogeneous linear equations; zero only if there is no other."""
    system = system % PRIME
    solution = np.zeros(system.shape[1], np.int64)
    for column in range(system.shape[1]):  # all unknowns before this one depend on later ones
        candidates = column + np.flatnonzero(system[column:, column])
        if not len(candidates):
            solution[column] = 1
            solution[:column] = -system[:column, column] % PRIME
            break
        system[[column, candidates[0]]] = system[[candidates[0], column]]
        system[column] = system[column] * pow(int(system[column, column]), -1, PRIME) % PRIME
        factors = system[:, column].copy()
        factors[column] = 0
        system = (system - factors[:, None] * system[column]) % PRIME
    return solution


def _rank(matrix: Symbols) -> int:
    """Return the rank of a matrix of field elements."""
    rank = 0
    while matrix.any():
        row, column = np.argwhere(matrix)[0]
        pivot = matrix[row] * pow(int(matrix[row, column]), -1, PRIME) % PRIME
        matrix = (matrix - matrix[:, column, None] * pivot) % PRIME
        rank += 1
    return rank


@lru_cache(maxsize=256)
def _weights(points: tuple[int, ...]) -> Symbols:
    """Return the Lagrange weights at zero of one set of points."""
    weights: Symbols = _weights_of(np.array([points]))[0]
    return weights


def _weights_of(points: Symbols) -> Symbols:
    """Return the Lagrange weights at zero, prod_{j != i} x_j / (x_j - x_i), of each row, as sums of logarithms."""
    powers, logarithms = _tables()
    differences = points[:, None, :] - points[:, :, None]  # negative ones are found from the end of the table
    diagonal = np.arange(points.shape[1])
    differences[:, diagonal, diagonal] = 1
    numerators = logarithms[points].sum(axis=1, dtype=np.uint16)[:, None] - logarithms[points]
    denominators = logarithms[differences].sum(axis=2, dtype=np.uint16)
    weights: Symbols = powers[numerators - denominators]
    return weights


def _multiply(left: Symbols, right: Symbols) -> Symbols:
    product = left.astype(np.float64) @ right.astype(np.float64)
    return product.astype(np.int64) % PRIME


def _uniform(entropy: Entropy, label: str, count: int) -> Symbols:
    """Return exactly uniform field elements by rejection: one 32-bit word in 2^32 is drawn again."""
    accepted: list[NDArray[np.uint32]] = []
    missing, attempt = count, 0
    while missing:
        words = np.frombuffer(entropy.draw(f"{label}/{attempt}", 4 * missing), "<u4")
        words = words[words != 0xFFFFFFFF]
        accepted.append(words)
        missing, attempt = missing - len(words), attempt + 1
    drawn = np.concatenate(accepted) if accepted else np.zeros(0, np.uint32)
    return drawn.astype(np.int64) % PRIME


def _encode(values: Symbols, counts: Sequence[int]) -> list[tuple[bytes, ...]]:
    """Split each row of field elements into shares of ``counts`` symbols and encode them."""
    columns = []
    for part in np.split(values, np.cumsum(counts)[:-1], axis=1):
        low = (part & 0xFFFF).astype("<u2").view(np.uint8)
        rows = np.hstack([low, np.packbits((part >> 16).astype(np.uint8), axis=1)])
        width, encoded = rows.shape[1], rows.tobytes()
        columns.append([encoded[at : at + width] for at in range(0, len(encoded), width)])
    return list(zip(*columns, strict=True))


def _decode(shares: Sequence[bytes]) -> Symbols:
    """Return one row of field elements for each share."""
    size = len(shares[0])
    if set(map(len, shares)) != {size}:
        raise VerificationError("shares differ in size")
    count = size * 8 // 17
    rows = np.frombuffer(b"".join(shares), np.uint8).reshape(len(shares), size)
    low = rows[:, : 2 * count].copy().view("<u2").astype(np.int64)
    bits = np.unpackbits(rows[:, 2 * count :], axis=1)
    high = bits[:, :count].astype(np.int64)
    if bits[:, count:].any() or (low * high).any():
        raise VerificationError("a share is not a list of field elements")
    return low + (high << 16)


@cache
def _tables() -> tuple[Symbols, Exponents]:
    """Return the powers of the generator, and their inverse, the discrete logarithm (undefined for 0).

    The group has order 2^16, so exponents are 16-bit words and are reduced by wrapping around.
    """
    powers = np.ones(PRIME - 1, np.int64)
    filled = 1
    while filled < PRIME - 1:
        step = powers[filled - 1] * _GENERATOR % PRIME
        powers[filled : 2 * filled] = powers[:filled] * step % PRIME
        filled *= 2
    logarithms = np.zeros(PRIME, np.uint16)
    logarithms[powers] = np.arange(PRIME - 1, dtype=np.uint16)
    return powers, logarithms
