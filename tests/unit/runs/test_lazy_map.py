import pytest

from coterie.runs.engine.lazy_map import LazyMap


def test_values_are_made_when_they_are_asked_for_and_dropped_when_they_are_not_kept() -> None:
    made: list[str] = []

    def make(name: str) -> list[str]:
        made.append(name)
        return [name]

    clients = LazyMap([f"c{number}" for number in range(1_000)], make)
    assert (len(clients), clients.made, "c5" in clients) == (1_000, 0, True)
    first = clients["c5"]
    assert clients["c5"] is first
    assert clients["c7"] == ["c7"]
    clients.keep(["c5", "c8"])
    assert clients.made == 1
    assert clients["c5"] is first
    assert clients["c7"] == ["c7"]
    assert made[-2:] == ["c7", "c7"]
    assert list(clients)[:2] == ["c0", "c1"]
    with pytest.raises(KeyError):
        clients["c1000"]
