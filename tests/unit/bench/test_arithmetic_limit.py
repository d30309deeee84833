"""How long gradients take, compared with as many operations in a matrix product."""

from collections.abc import Callable

import pytest

from coterie.bench import arithmetic_limit
from coterie.bench.training import Scenario


def test_the_ratio_is_per_operation_not_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    def best_seconds(*works: Callable[[], None]) -> list[float]:
        for work in works:
            work()
        return [3.0, 1.0]

    monkeypatch.setattr(arithmetic_limit, "best_seconds", best_seconds)
    regression = Scenario("softmax-regression", (7,), samples=5, batch_size=4, cohort=2)
    # Forwards and backwards: 4 examples x 7 inputs x 10 classes, each a multiplication and an addition.
    step, product = 2 * (2 * 4 * 7 * 10), 2 * 1024**3
    assert arithmetic_limit.matrix_product_ratio(regression) == pytest.approx(3 * product / step)


def test_gradients_take_longer_than_their_operations() -> None:
    assert arithmetic_limit.matrix_product_ratio(Scenario("lenet", (1, 16, 16), samples=6, batch_size=4)) > 1
