"""Whole runs of FedProx and SCAFFOLD, through the real protocol, with circles and clients that drop out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.records import as_options
from typer.testing import CliRunner

pytest.importorskip("torch", reason="training needs coterie[train]")
from safetensors.numpy import load_file
from tests.support.interruptions import stored_model
from torch import nn

import coterie
from coterie.cli import app
from coterie.errors import ConfigError
from coterie.runs.engine.run import RunResult, TrainingRun
from coterie.runs.settings.toml import load_config
from coterie.runs.storage.folder import RunFolder

SMALL = (
    *("rounds=4", "clients.count=12", "cohort.size=8", "cohort.privacy=2", "model=softmax-regression"),
    *("training.epochs=2", "training.executor=processes", "training.workers=0", "aggregation.threads=1"),
)


def play(folder: Path, *more: str) -> RunResult:
    return TrainingRun.begin(folder, load_config(None, [*SMALL, *more])).play()


def test_fedprox_on_the_command_line(tmp_path: Path) -> None:
    arguments = ["run", "--algorithm", "fedprox", *as_options(SMALL), "--out", str(tmp_path / "run"), "--json"]
    played = CliRunner().invoke(app, arguments)
    assert played.exit_code == 0, played.output
    assert json.loads(played.stdout)["promised"] == 2
    config = RunFolder.open(tmp_path / "run").config()
    assert config.training.algorithm == "fedprox"
    refused = CliRunner().invoke(app, ["run", "--algorithm", "fedprix", "--out", str(tmp_path / "other")])
    assert refused.exit_code != 0
    assert not (tmp_path / "other").exists()


def test_fedprox_without_mu_is_the_run_of_federated_averaging_bit_for_bit(tmp_path: Path) -> None:
    runs = {
        "fedavg": play(tmp_path / "fedavg"),
        "none": play(tmp_path / "none", "training.algorithm=fedprox", "fedprox.mu=0.0"),
        "some": play(tmp_path / "some", "training.algorithm=fedprox", "fedprox.mu=1.0"),
    }
    stored = {name: stored_model(result.folder) for name, result in runs.items()}
    assert stored["fedavg"] == stored["none"] != stored["some"]
    assert "FedProx with mu = 1" in TrainingRun.open(RunFolder.open(tmp_path / "some")).config.algorithm.introduction(
        runs["some"].summary.config, runs["some"].summary.promise
    )


LOSSY = (
    *("training.algorithm=scaffold", "rounds=6", "availability.kind=equal", "availability.dropout=0.0"),
    *("faults.dropout=0.15", 'faults.steps=["mask"]'),
)


@pytest.mark.parametrize("threat", ["honest-but-curious", "active-server"])
def test_under_masks_scaffold_learns_as_in_the_clear(tmp_path: Path, threat: str) -> None:
    """The control variates of clients in a sum change and all others do not, whichever clients drop out."""
    states, fates = [], []
    for kind in (f"aggregation.threat={threat}", "aggregation.kind=plain"):
        result = play(tmp_path / kind, *LOSSY, kind)
        states.append(load_file(tmp_path / kind / "checkpoint.safetensors"))
        fates.append([(record.outcome, record.aggregated) for record in result.records])
        assert {len(record.aggregated) % 2 for record in result.records} == {0}  # whole circles
        assert any(record.dropped for record in result.records)
        summed = {name for record in result.records for name in record.aggregated if record.completed}
        assert {key.split(".")[1] for key in states[-1] if key.startswith("own.")} == summed
    assert fates[0] == fates[1]
    assert states[0].keys() == states[1].keys()
    for key, array in states[0].items():
        np.testing.assert_allclose(array, states[1][key], atol=1e-4, err_msg=key)
    for state in states:  # c is the mean of all c_i
        for place in range(2):
            own = [array for key, array in state.items() if key.startswith("own.") and key.endswith(f".{place}")]
            np.testing.assert_allclose(state[f"control.{place}"], sum(own) / 12, atol=1e-4)


def test_scaffold_in_a_python_program_with_epsilon(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    clients = {f"site-{n}": (rng.normal(size=(20, 3)) + 2 * np.eye(3)[n % 3], np.full(20, n % 3)) for n in range(8)}
    common: dict[str, Any] = {"clients": clients, "algorithm": "scaffold", "rounds": 3, "progress": False}
    result = coterie.train(nn.Linear(3, 3), privacy=4, out=tmp_path / "run", **common)
    assert result.privacy == 4
    page = (tmp_path / "run" / "report.html").read_text()
    assert "scaled as if all clients took the same number of local steps" in page
    noisy = coterie.train(nn.Linear(3, 3), epsilon=8, out=tmp_path / "noisy", **common)
    assert noisy.summary.epsilon is not None
    assert noisy.summary.epsilon <= 8


def test_scaffold_refuses_momentum_of_the_clients() -> None:
    with pytest.raises(ConfigError, match=r"training\.momentum: must be 0 with scaffold"):
        load_config(None, ["training.algorithm=scaffold", "training.momentum=0.9"])
