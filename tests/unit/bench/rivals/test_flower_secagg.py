"""Flower's SecAgg+ as we time it: what is refused before anything runs. ``tests/speed`` runs it."""

from importlib.metadata import PackageNotFoundError

import pytest

from coterie.bench.rivals import flower_secagg as flower
from coterie.bench.rivals.flower_secagg import run_secaggplus
from coterie.errors import ConfigError


@pytest.mark.parametrize(
    ("clients", "length", "dropout", "shares", "threshold"),
    [
        (2, 10, 0.0, 0, 2),
        (10, 0, 0.0, 5, 3),
        (10, 10, -0.1, 5, 3),
        (10, 10, 1.0, 5, 3),
        (10, 10, float("nan"), 5, 3),
        (10, 10, 0.0, 4, 3),  # Flower makes one share too few and its clients crash
        (10, 10, 0.0, 11, 3),
        (10, 10, 0.0, 1, 1),
        (10, 10, 0.0, 5, 1),  # Flower would read 1 as 100%
        (10, 10, 0.0, 5, 5),
        (10, 10, 0.0, 0, 10),
    ],
)
def test_impossible_parameters_are_refused(
    clients: int, length: int, dropout: float, shares: int, threshold: int
) -> None:
    with pytest.raises(ConfigError):
        run_secaggplus(clients, length, dropout, shares, threshold, seed=9)


def test_a_missing_or_different_flower_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(flower, "version", absent)
    with pytest.raises(ConfigError, match=r"not installed.*pip install .*\[flower\]'"):
        run_secaggplus(10, 10, 0.0, 5, 3, seed=10)
    monkeypatch.setattr(flower, "version", lambda package: "1.0.0")
    with pytest.raises(ConfigError, match=r"needs flwr 1\.41\.0 \(1\.0\.0\)"):
        run_secaggplus(10, 10, 0.0, 5, 3, seed=10)
