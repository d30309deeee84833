"""Artificial fingerprints: private vectors that are easy to recognise alone and unrecognisable in a sum."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.float32]
_Field = npt.NDArray[np.complex64]

_ASPECT = 0.8  # width over height
_MINUTIAE = 16
CONTRAST = 0.8
"""Paper is around -CONTRAST and ink around CONTRAST, plus the noise of a scan."""


def shape_of(length: int) -> tuple[int, int]:
    """Return the rows and columns of a picture whose first ``length`` pixels are a fingerprint."""
    columns = max(1, round((length * _ASPECT) ** 0.5))
    return -(-length // columns), columns


def fingerprint(length: int, rng: np.random.Generator) -> Pixels:
    """Return the first ``length`` pixels, row by row, of a random fingerprint, with values from -1 to 1.

    Ridges are level lines of the phase of a complex field (the AM-FM model of Larkin and Fletcher 2007). The field is a
    carrier around a core, multiplied by (z - m) or its conjugate for each minutia m. The factor turns the phase once
    around m, so a ridge ends or forks there.
    """
    plane, finger = _grid(length)
    core = complex(rng.uniform(-0.12, 0.12), rng.uniform(-0.25, 0.0))
    across, along = plane.real - np.float32(core.real), plane.imag - np.float32(core.imag)
    distance = np.sqrt(1.35 * across**2 + np.where(along > 0, np.float32(0.55), np.float32(1)) * along**2)
    ridges, slant = rng.uniform(11, 14), rng.uniform(-1.2, 1.2)
    field = np.exp(np.complex64(2j * np.pi) * (np.float32(ridges) * distance + np.float32(slant) * across))
    for x, y, turns_left in zip(
        rng.normal(0, 0.4, _MINUTIAE), rng.normal(0, 0.5, _MINUTIAE), rng.random(_MINUTIAE) < 0.5, strict=True
    ):
        factor = plane - np.complex64(complex(x, y))
        field *= factor if turns_left else factor.conj()
    pixels: Pixels = CONTRAST * (finger * (1 + field.real / np.abs(field)) - 1)
    pixels += 0.08 * rng.standard_normal(length, np.float32)
    return np.clip(pixels, -1, 1, out=pixels)


@lru_cache(maxsize=1)
def _grid(length: int) -> tuple[_Field, Pixels]:
    """Return the position of each pixel in the complex plane, and how much of the pixel the finger covers."""
    rows, columns = shape_of(length)
    row, column = np.divmod(np.arange(length), columns)
    x = ((2 * column + 1) / columns - 1) * _ASPECT
    y = (2 * row + 1) / rows - 1
    covered = 1 / (1 + np.exp((np.hypot(x / 0.68, y / 0.9) - 0.95) / 0.03))
    return (x + 1j * y).astype(np.complex64), covered.astype(np.float32)
