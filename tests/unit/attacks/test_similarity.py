"""Measures of similarity, compared with values computed by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coterie.attacks.reconstructions import Reading, Readings, Trial, excess, nearest
from coterie.attacks.similarity import IDENTICAL, Pictures, PixelScale, matched, psnr, squared_error, ssim
from coterie.errors import InputError

pictures = arrays(np.float64, (2, 8, 8), elements=st.floats(0, 1))


def test_the_psnr_of_a_constant_error_of_a_tenth_is_known() -> None:
    original: Pictures = np.full((1, 8, 8), 0.5)
    assert squared_error(original, original + 0.1) == pytest.approx([0.01])
    assert psnr(original, original + 0.1) == pytest.approx([20.0])


def test_the_psnr_of_opposite_pictures_is_zero() -> None:
    black: Pictures = np.zeros((1, 8, 8))
    assert psnr(black, black + 1) == pytest.approx([0.0])


def test_ssim_of_flat_pictures_is_that_of_their_brightness() -> None:
    """Without any structure only the first factor is left: (2ab + c1) / (a² + b² + c1)."""
    dark, bright = np.full((1, 8, 8), 0.2), np.full((1, 8, 8), 0.6)
    assert ssim(dark, bright) == pytest.approx([(2 * 0.12 + 1e-4) / (0.04 + 0.36 + 1e-4)])


def test_ssim_of_a_picture_and_its_negative() -> None:
    """A square of half zeros and half ones, as nearly as 49 pixels can be: equal means, opposite structure."""
    one = np.zeros(49)
    one[::2] = 1
    original = one.reshape(1, 7, 7)
    mean, variance = 25 / 49, 25 / 49 * 24 / 49 * 49 / 48
    other = 1 - mean
    bright = (2 * mean * other + 1e-4) / (mean**2 + other**2 + 1e-4)
    structure = (-2 * variance + 9e-4) / (2 * variance + 9e-4)
    assert ssim(original, 1 - original) == pytest.approx([bright * structure])


@given(pictures, pictures)
def test_measures_are_symmetric_and_best_for_the_same(one: Pictures, other: Pictures) -> None:
    assert ssim(one, other) == pytest.approx(ssim(other, one))
    assert (ssim(one, other) <= 1 + 1e-9).all()
    assert ssim(one, one) == pytest.approx(np.ones(2))
    assert (psnr(one, one) == IDENTICAL).all()
    assert psnr(one, other) == pytest.approx(psnr(other, one))


def test_colours_are_averaged() -> None:
    grey = np.linspace(0, 1, 64).reshape(1, 8, 8)
    guess = grey[:, ::-1]
    coloured, other = np.stack([grey] * 3, -1), np.stack([guess, grey, grey], -1)
    assert ssim(coloured, other) == pytest.approx((ssim(grey, guess) + 2) / 3)


@given(arrays(np.float64, (5, 4, 4), elements=st.floats(0, 1), unique=True), st.permutations(range(5)))
def test_guesses_in_another_order_are_matched(originals: Pictures, order: list[int]) -> None:
    assert originals[order][matched(originals, originals[order])] == pytest.approx(originals)


def test_pixels_are_scaled_by_channel() -> None:
    inputs = np.random.default_rng(0).normal(size=(6, 3, 8, 8)) * np.array([1, 2, 3])[:, None, None]
    drawn = PixelScale.of(inputs).pictures(inputs)
    assert drawn.shape == (6, 8, 8, 3)
    assert drawn.min((0, 1, 2)) == pytest.approx(np.zeros(3))
    assert drawn.max((0, 1, 2)) == pytest.approx(np.ones(3))


@pytest.mark.parametrize("shape", [(3, 8), (3, 2, 8, 8)])
def test_inputs_that_are_no_pictures_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        PixelScale.of(np.zeros(shape))


def test_shapes_must_agree() -> None:
    with pytest.raises(InputError):
        psnr(np.zeros((1, 8, 8)), np.zeros((2, 8, 8)))
    with pytest.raises(InputError):
        ssim(np.zeros((1, 4, 4)), np.zeros((1, 4, 4)))


def test_a_guess_is_recognised_if_its_original_is_the_nearest() -> None:
    crowd = np.stack([np.full((8, 8), value) for value in (0.0, 0.5, 1.0)])
    assert nearest(crowd[[1]] + 0.2, crowd, np.arange(3)).tolist() == [1]
    trial = Trial(crowd[:2], np.arange(2), {"near": crowd[:2] + 0.1, "far": 1 - crowd[:2]}, crowd, np.arange(3))
    assert trial.reading("near").recognised == 1
    assert trial.reading("far").recognised == 0.5  # the picture of 0.5 is its own negative


def test_the_interval_of_a_difference_is_students() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t(0.975; 2) = 4.3027, hence 2 ± 4.3027 / sqrt(3)."""
    found = Readings("found", [Reading(value, 0, 0, 0) for value in (11.0, 12.0, 13.0)])
    base = Readings("guess", [Reading(10.0, 0, 0, 0)] * 3)
    assert excess(found, base, "psnr") == pytest.approx((2 - 2.48414, 2 + 2.48414), abs=1e-4)
