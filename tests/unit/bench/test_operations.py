"""The measured operations of a planned session."""

from collections.abc import Sequence
from typing import Any

import pytest

from coterie.bench.operations import operation_seconds
from coterie.crypto import shamir
from coterie.planning.session import recommend


@pytest.mark.parametrize("clients", [12, 20_000])
def test_large_sessions_are_measured_in_part(monkeypatch: pytest.MonkeyPatch, clients: int) -> None:
    """A table of 20,000 holders and 10,000 coefficients would take more than a gigabyte."""
    split, dealt = shamir.split, list[tuple[int, int]]()

    def record(secrets: Sequence[bytes], threshold: int, points: Sequence[int], *more: Any) -> Any:  # noqa: ANN401
        dealt.append((threshold, len(points)))
        return split(secrets, threshold, points, *more)

    monkeypatch.setattr(shamir, "split", record)
    measured = operation_seconds(recommend(clients, 0.0, topology="complete", length=10))
    assert all(seconds > 0 for seconds in vars(measured).values())
    assert {holders for _, holders in dealt} == {min(clients, 512)}
    assert {threshold for threshold, _ in dealt} == {clients // 2 + 1 if clients < 512 else 256}
