"""Whole runs on what a user brings along: clients, examples in many forms, models and policies."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
from tests.support.mine import FirstCircles, RoundRobin, load_clients
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from coterie.api import train
from coterie.cohorts.circles import random_circles
from coterie.cohorts.ledger import Outcome
from coterie.errors import ConfigError
from coterie.runs.config_file import load_config
from coterie.runs.run import RunResult, TrainingRun

MINE = "tests.support.mine"


def linear() -> nn.Module:
    return nn.Linear(3, 3)


def go(folder: Path, **more: Any) -> RunResult:  # noqa: ANN401
    clients, test = load_clients()
    given = {"model": linear, "clients": clients, "test_set": test, "rounds": 4, "cohort": 4, "progress": False, **more}
    return train(out=folder, **given)


def test_clients_by_name_none_of_whom_is_ever_missing(tmp_path: Path) -> None:
    result = go(tmp_path / "run", rounds=12)
    assert {name for record in result.records for name in record.aggregated} == {f"site-{n}" for n in range(6)}
    assert all(record.outcome is Outcome.COMPLETED and len(record.aggregated) == 4 for record in result.records)
    assert result.accuracy is not None
    assert result.accuracy > 0.9
    assert result.privacy == 2


def test_hardship_is_a_setting(tmp_path: Path) -> None:
    harsh = {"availability.dropout": 0.3, "faults.dropout": 0.3}
    result = go(tmp_path / "run", rounds=12, settings=harsh)
    assert result.summary.skipped
    assert result.summary.dropped


def test_all_forms_of_examples_give_the_same_run(tmp_path: Path) -> None:
    clients, _ = load_clients()
    tensors = {
        name: TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y)) for name, (x, y) in clients.items()
    }
    loaders = {name: DataLoader(data, batch_size=10, shuffle=True) for name, data in tensors.items()}
    stored = []
    for number, form in enumerate((clients, tensors, loaders)):
        settings = {"training.executor": "processes"}
        go(tmp_path / str(number), clients=form, settings=settings)
        stored.append((tmp_path / str(number) / "model.safetensors").read_bytes())
    assert stored[0] == stored[1] == stored[2]


def test_a_list_of_few_clients_and_no_test_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clients, _ = load_clients(3)
    result = go(tmp_path / "run", clients=list(clients.values()), cohort=None, test_set=None, progress=True)
    assert result.summary.config.cohort.size == 3
    assert [record.test_loss for record in result.records] == [None] * 4
    assert all(record.completed for record in result.records)
    said = capsys.readouterr().out
    assert "training loss" in said
    assert "there are no test examples" in " ".join(said.split())
    assert "client-3" in result.records[0].aggregated
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000


class FirstToken(nn.Module):
    """Scores from the embeddings of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.readout = nn.Embedding(10, 8), nn.Linear(8, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.readout(self.embedding(tokens).mean(1))
        return scores


@pytest.mark.parametrize("executor", ["processes", "vectorised"])
def test_tokens(tmp_path: Path, executor: str) -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 10, (400, 5))
    data = tokens, (tokens >= 5).sum(1) // 3
    settings = {"training.executor": executor, "training.learning_rate": 0.5}
    result = train(
        *(FirstToken, data, data),
        clients=8,
        rounds=15,
        settings=settings,
        out=tmp_path / "run",
        progress=False,
    )
    assert result.accuracy is not None
    assert result.accuracy > 0.8


@pytest.mark.parametrize(("train_set", "clients"), [(None, 8), ((np.ones((9, 3)), np.zeros(9, int)), {})])
def test_examples_come_in_one_way(tmp_path: Path, train_set: Any, clients: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match="either a train_set, to be divided, or the examples of each client"):
        train(linear, train_set, clients=clients, out=tmp_path / "run")


def test_settings_that_cannot_work_leave_no_folder(tmp_path: Path) -> None:
    for more, said in (
        ({"cohort": 7}, r"cohort\.size: 7 cannot be selected from clients\.count = 6"),
        ({"privacy": 5}, r"cohort\.privacy: a circle of 5 does not fit into cohort\.size = 4"),
        ({"model": nn.Linear(4, 3)}, r"model\.name: own fails on inputs of 3 float32"),
    ):
        with pytest.raises(ConfigError, match=said):
            go(tmp_path / "run", **more)
    assert not (tmp_path / "run").exists()


def test_a_policy_without_circles_promises_nothing(tmp_path: Path) -> None:
    result = go(tmp_path / "run", policy=RoundRobin(4))
    firsts = [record.aggregated for record in result.records[:2]]
    assert firsts[0] == tuple(f"site-{number}" for number in range(4))
    assert set(firsts[1]) >= {"site-4", "site-5"}
    assert result.privacy == 1
    words = dict(result.summary.config.algorithm.words(result.summary))["Privacy"]
    assert "no number of rounds" not in words


def test_a_policy_with_circles_is_held_to_them(tmp_path: Path) -> None:
    circles = random_circles(6, 2, np.random.default_rng(7))
    result = go(tmp_path / "run", policy=FirstCircles(circles))
    assert result.privacy == 2
    assert all(record.completed and len(record.aggregated) == 4 for record in result.records)
    again = go(tmp_path / "run", policy=FirstCircles(circles), resume=True, rounds=5)
    assert again.records[:4] == result.records
    assert again.records[4].aggregated == result.records[0].aggregated


@pytest.mark.parametrize(("policy", "promised"), [("RoundRobin", 1), ("FirstCircles", 2)])
def test_settings_name_everything(tmp_path: Path, policy: str, promised: int) -> None:
    overrides = [
        *(f"data={MINE}:load_clients", f"model={MINE}:make_model", f"cohort.policy={MINE}:{policy}"),
        *("clients.count=6", "cohort.size=4", "rounds=3", "training.workers=0", "availability.kind=equal"),
        *("availability.dropout=0.0", "faults.dropout=0.0"),
    ]
    result = TrainingRun.begin(tmp_path / "run", load_config(None, overrides)).play()
    assert result.privacy == promised
    assert all(record.completed for record in result.records)
    kept = load_config(tmp_path / "run" / "config.toml")
    assert (kept.data.name, kept.cohort.policy) == (f"{MINE}:load_clients", f"{MINE}:{policy}")
