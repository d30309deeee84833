"""Similarity of pictures: the distance of a reconstruction from the original (MSE, PSNR, SSIM).

Pictures are arrays, pictures x height x width (x 3 with colours), from 0 to 1. Every measure returns one number for
each picture.
"""

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.cohorts.circles import Indices, Reals
from coterie.errors import InputError

Pictures: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = npt.NDArray[np.floating[Any]]

IDENTICAL = 100.0
"""The PSNR of an exact reconstruction, in dB. Infinity would have no mean and no JSON."""
WINDOW = 7
"""The side of the squares over which SSIM compares."""


def squared_error(originals: Pictures, guesses: Pictures) -> Reals:
    """Return the mean of (original - guess)^2 over the pixels."""
    _check(originals, guesses)
    return np.asarray(np.square(originals - guesses).reshape(len(originals), -1).mean(1))


def psnr(originals: Pictures, guesses: Pictures) -> Reals:
    """Return the peak signal-to-noise ratio, -10 log10(mean squared error) in dB, at most :data:`IDENTICAL`."""
    least = 10 ** (-IDENTICAL / 10)
    return np.asarray(-10 * np.log10(np.maximum(squared_error(originals, guesses), least)))


def ssim(originals: Pictures, guesses: Pictures) -> Reals:
    """Return the structural similarity (Wang et al. 2004): 1 for the same picture, about 0 for unrelated ones.

    For x and y within a square of 7 x 7 pixels (:data:`WINDOW`), with the constants c1 = 0.01^2 and c2 = 0.03^2,

        (2 mean(x) mean(y) + c1) (2 cov(x, y) + c2) / ((mean(x)^2 + mean(y)^2 + c1) (var(x) + var(y) + c2)),

    averaged over all such squares, and over the colours. All pixels of a square have the same weight, without a
    Gaussian window.
    """
    _check(originals, guesses)
    if min(originals.shape[1:3]) < WINDOW:
        raise InputError(f"pictures of {originals.shape[1]} x {originals.shape[2]} hold no square of {WINDOW} pixels")
    x, y = (_squares(pictures) for pictures in (originals, guesses))
    mean_x, mean_y = x.mean(-1), y.mean(-1)
    pixels = WINDOW * WINDOW
    unbiased = pixels / (pixels - 1)
    var_x, var_y = unbiased * x.var(-1), unbiased * y.var(-1)
    covariance = unbiased * ((x * y).mean(-1) - mean_x * mean_y)
    c1, c2 = 0.01**2, 0.03**2
    above = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    below = (mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2)
    return np.asarray((above / below).reshape(len(originals), -1).mean(1))


def matched(originals: Pictures, guesses: Pictures) -> Indices:
    """Return which guess to compare with which original, each used once, so that the total squared error is smallest.

    An attacker does not know the originals and could not do this, so the comparison favours the attacker.
    """
    from scipy.optimize import linear_sum_assignment

    if len(guesses) < len(originals) or originals.shape[1:] != guesses.shape[1:]:
        raise InputError(f"{guesses.shape} are no guesses at {originals.shape}")
    flat, found = originals.reshape(len(originals), -1), guesses.reshape(len(guesses), -1)
    errors = np.square(flat[:, None] - found[None]).mean(-1)
    return np.asarray(linear_sum_assignment(errors)[1], np.int64)


@dataclass(frozen=True, eq=False)
class PixelScale:
    """The scale from inputs to pixels: the darkest and brightest value of each channel become 0 and 1."""

    low: Numbers
    high: Numbers

    @classmethod
    def of(cls, inputs: npt.NDArray[Any]) -> Self:
        """Read the scale off inputs, examples x channels x height x width."""
        if inputs.ndim != 4 or inputs.shape[1] not in (1, 3):
            raise InputError(f"inputs of shape {inputs.shape[1:]} are no pictures: 1 or 3 x height x width are")
        low, high = (reduce(inputs, axis=(0, 2, 3), keepdims=True)[0] for reduce in (np.min, np.max))
        if not np.all(low < high):
            raise InputError("pictures of a single colour have no scale")
        return cls(low, high)

    def pictures(self, inputs: npt.NDArray[Any]) -> Pictures:
        """Return inputs as pictures, clipped to 0 and 1."""
        scaled = np.clip((np.asarray(inputs, np.float64) - self.low) / (self.high - self.low), 0, 1)
        return scaled[:, 0] if scaled.shape[1] == 1 else np.moveaxis(scaled, 1, -1)


def _squares(pictures: Pictures) -> npt.NDArray[np.float64]:
    """Return the pixels of every square of the pictures, along the last axis."""
    squares = np.lib.stride_tricks.sliding_window_view(pictures, (WINDOW, WINDOW), (1, 2))
    return squares.reshape(*squares.shape[:-2], WINDOW * WINDOW)


def _check(originals: Pictures, guesses: Pictures) -> None:
    if originals.shape != guesses.shape or originals.ndim not in (3, 4):
        raise InputError(f"pictures of shapes {originals.shape} and {guesses.shape} cannot be compared")
