"""The records of a run may be published: no number in them is about one client alone or reveals private data.

Sums are protected, and a number beside them could undo it: a share over the updates of a round that has no sum, or a
score on test examples of one client.
"""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
from torch import nn

import coterie
from coterie.runs.engine.build import BuiltRun
from coterie.runs.records.record import RoundCosts
from coterie.training.evaluate import Score
from coterie.training.executors.processes import InProcess
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalResult

Examples = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
CLIP, FEATURES = 0.05, 20


def examples(seed: int, size: int = 30, target: float | None = None) -> Examples:
    rng = np.random.default_rng(seed)
    y = 3 * rng.standard_normal((size, 1)) if target is None else np.full((size, 1), target)
    return rng.standard_normal((size, FEATURES)).astype(np.float32), y.astype(np.float32)


def of_everybody(costs: RoundCosts, clients: Collection[str]) -> float:
    """Return the share of clipped entries over all clients that trained, in a sum or not."""
    return sum(costs.clipped.values()) / max(1, len(costs.clipped) * costs.entries)


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.filterwarnings("ignore:Round", "ignore:About")
def test_the_count_of_clipped_entries_of_a_client_whose_partner_dropped_out(
    defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not defended:
        monkeypatch.setattr(RoundCosts, "clipped_of", of_everybody)
        monkeypatch.setattr(RoundCosts, "compute_seconds_of", lambda costs, _clients: sum(costs.computed.values()))
    clipped: dict[tuple[int, str], int] = {}
    seconds: dict[tuple[int, str], float] = {}
    result_of = InProcess.result

    def remember(self: InProcess, client: str) -> LocalResult:
        found = result_of(self, client)
        clipped[found.round, client] = sum(int(np.count_nonzero(np.abs(array) > CLIP)) for array in found.update)
        seconds[found.round, client] = found.seconds
        return found

    monkeypatch.setattr(InProcess, "result", remember)
    lossy = {"faults.dropout": 0.4, "faults.steps": ["advertise"], "aggregation.clip": CLIP}
    clients = {name: examples(seed) for seed, name in enumerate("abcd")}
    result = coterie.train(
        lambda: nn.Linear(FEATURES, 1),
        clients=clients,
        test_set=examples(9),
        cohort=2,
        privacy=2,
        rounds=12,
        out=tmp_path / "run",
        progress=False,
        settings={**lossy, "training.executor": "processes"},
    )
    alone = [record for record in result.records if len(record.stranded) == 1 and not record.aggregated]
    told = [round(record.clipped * (FEATURES + 1), 6) for record in alone]
    right = [told[i] == clipped[record.round, record.stranded[0]] for i, record in enumerate(alone)]
    assert len(alone) > 2
    assert all(right) is not defended
    assert (set(told) == {0.0}) is defended
    times = [record.compute_seconds for record in alone]
    assert (times == [seconds[record.round, record.stranded[0]] for record in alone]) is not defended
    assert (set(times) == {0.0}) is defended


def by_name(built: BuiltRun, model: ModelArrays, name: str) -> Score:
    """Score a model on the test examples of the client of its name."""
    return built.federation.score(name, model)


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.filterwarnings("ignore:noise.epsilon", "ignore:Every client")
def test_a_client_that_has_the_name_of_the_common_model(
    defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With noise, models are scored on public examples, and not on those of clients."""
    if not defended:
        monkeypatch.setattr(BuiltRun, "score", by_name)
    losses = []
    for secret in (0.0, 1000.0):
        result = coterie.train(
            lambda: nn.Linear(FEATURES, 1),
            clients={name: examples(seed) for seed, name in enumerate(["global", "b", "c", "d"])},
            client_tests={"global": examples(7, 5, secret), "b": examples(8, 5)},
            test_set=examples(9),
            cohort=4,
            privacy=2,
            rounds=1,
            epsilon=5.0,
            out=tmp_path / f"{secret:g}",
            progress=False,
            settings={"training.executor": "processes"},
        )
        losses.append(result.records[-1].test_loss)
    assert [loss is not None and loss > 10_000 for loss in losses] == [False, not defended]
