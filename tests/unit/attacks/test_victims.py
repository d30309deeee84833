"""The clients that attacks are tried on."""

import numpy as np
import pytest

from coterie.attacks.victims import Victims, flat, shaped
from coterie.errors import ConfigError
from coterie.training.local import LocalSGD

WORK = LocalSGD(0.1, batch_size=20)


def test_updates_are_those_of_training_and_the_same_again() -> None:
    victims = Victims.gather("digits", "softmax-regression", 6, seed=1, examples=30)
    assert [part.size for part in victims.parts] == [30] * 6
    first, again = (victims.update(2, victims.start, 1, WORK) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, victims.update(3, victims.start, 1, WORK))
    assert first.size == sum(array.size for array in victims.start)


def test_training_learns() -> None:
    victims = Victims.gather("digits", "softmax-regression", 6, seed=1)
    shares: list[float] = []
    trained = victims.train(victims.start, 5, 3, WORK, shares.append)
    before, after = victims.score(victims.start).accuracy, victims.score(trained).accuracy
    assert before is not None
    assert after is not None
    assert after > 0.7 > before
    assert shares == [0.2, 0.4, 0.6, 0.8, 1.0]


def test_dealt_by_label() -> None:
    victims = Victims.gather("digits", "softmax-regression", 10, seed=0, by_label=True)
    kinds = [np.unique(victims.dataset.train_y[part]).size for part in victims.parts]
    assert max(kinds) <= 3


def test_rows_and_arrays() -> None:
    arrays = [np.ones((2, 3), np.float32), np.arange(2, dtype=np.float32)]
    row = flat(arrays)
    assert row.tolist() == [1.0] * 6 + [0.0, 1.0]
    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(arrays, shaped(row, arrays), strict=True))


@pytest.mark.parametrize(("data", "examples", "said"), [("energy", 0, "no labels"), ("digits", 10_000, "examples")])
def test_refused(data: str, examples: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Victims.gather(data, "softmax-regression", 6, 0, examples=examples)
