import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from coterie.bench import flower as bench
from coterie.bench.flower import FlowerCosts
from coterie.cli import app

STEPS = dict.fromkeys(("advertise", "share", "mask", "confirm", "reveal"), 1.0)
COSTS = FlowerCosts(
    nodes=50,
    simulation=True,
    trip=0.2,
    plain=0.5,
    secure=1.5,
    steps=STEPS,
    carried=dict.fromkeys(STEPS, 0.25),
    messages=5.0,
    downloaded=26e3,
    uploaded=383e3,
    model=400_000,
    cores=2,
    cryptography=0.3,
    storage=0.2,
)


def shown(costs: FlowerCosts, monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    monkeypatch.setattr(bench, "measure_federation", lambda *_, **__: costs)
    result = CliRunner().invoke(app, ["bench", "flower", "--simulation", *options], catch_exceptions=False)
    assert result.exit_code == 0
    return " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "Protection adds no more than its trips cost."),
        ({"secure": 1.75}, "Protection adds no more than its trips cost."),  # as much is not more
        (
            {"secure": 2.0},
            "Protection adds 250 ms more than its trips cost. The work of 50 clients is done by 2 cores here, and "
            "their answers go to one disk.",
        ),
        (
            {"secure": 2.0, "cryptography": 1.3},
            "Protection adds 250 ms more than its trips cost: it cannot here, where the cryptography of 50 clients "
            "on 2 cores alone takes longer than that.",
        ),
    ],
)
def test_the_bench_judges_what_protection_adds_by_what_its_trips_cost(
    changes: dict[str, float], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = replace(COSTS, **changes)  # type: ignore[arg-type]
    words = shown(costs, monkeypatch)
    assert verdict in words
    assert f"a secure round, 5 trips {costs.secure:.2f} s 1.25 s advertise 1.00 s 250 ms" in words
    assert "its 5 trips, empty 1.00 s" in words
    assert "its answers alone, put on disk 200 ms" in words


def test_the_record_has_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    record = json.loads(shown(COSTS, monkeypatch, "--json"))
    assert (record["overhead"], record["trips"], record["empty"]) == (1.0, 1.25, 1.0)
    assert (record["cores"], record["cryptography"], record["storage"]) == (2, 0.3, 0.2)
