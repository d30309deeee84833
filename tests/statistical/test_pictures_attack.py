"""Attacks that reconstruct pictures are no better than guessing where theory says that nothing can be recovered."""

import numpy as np
from scipy.stats import binom, ttest_1samp

from coterie.attacks.faces.measure import CCESA, GLOBAL, GUESS, PLAIN, SA, Faces
from coterie.attacks.federation import Federation
from coterie.attacks.imprint.layer import Imprinter
from coterie.attacks.inversion.descent import Budget
from coterie.attacks.inversion.measure import ALONE, MEAN, InversionTarget, Origin


def test_inverting_noise_is_no_better_than_guessing_by_label() -> None:
    """An inversion sees a masked vector as noise."""
    gains = []
    for seed in range(6):
        target = InversionTarget.prepare(Federation.deal("digits", "softmax-regression", 8, seed, examples=4), 0)
        noise = np.random.default_rng(seed).normal(size=sum(array.size for array in target.state))
        trial = target.trial({Origin(1, ALONE): target.recover(Origin(1, ALONE), noise, Budget(60))})
        gains.append(trial.reading("T = 1").psnr - trial.reading(MEAN).psnr)
    assert ttest_1samp(gains, 0, alternative="less").pvalue < 0.01


def test_an_eavesdropper_recognises_people_from_plain_models_and_not_from_masked_ones() -> None:
    """Twenty people, each recognised by chance in one of ten cases. Masking does not protect the global model."""
    trials = [Faces(rounds=2, epochs=3, seed=seed).trial(0) for seed in range(2)]

    def surprise(row: str) -> float:
        hits = round(sum(10 * trial.reading(row).recognised for trial in trials))
        return float(binom.sf(hits - 1, 20, 0.1))

    assert surprise(PLAIN) < 1e-6
    assert surprise(GLOBAL) < 1e-3
    assert min(surprise(SA), surprise(CCESA), surprise(GUESS)) > 1e-3


def test_the_expected_number_of_examples_alone_in_a_bin_is_right() -> None:
    """Against counts of bins drawn at random, within four standard errors."""
    rng = np.random.default_rng(1)
    imprinter = Imprinter(np.ones(1), np.arange(50.0), np.ones(1))
    alone = [np.count_nonzero(np.bincount(rng.integers(0, 50, 30), minlength=50) == 1) for _ in range(2000)]
    assert abs(imprinter.expected(30) - np.mean(alone)) < 4 * np.std(alone) / np.sqrt(2000)
