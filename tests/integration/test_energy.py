"""The energy example: regions that learn to forecast their load, with every training algorithm."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
from tests.support.interruptions import Interrupt, stored_model

from coterie.runs.engine.build import build_run
from coterie.runs.engine.federation import find_federation
from coterie.runs.engine.run import RunResult, TrainingRun
from coterie.runs.settings.toml import load_config
from coterie.runs.storage.folder import RunFolder
from coterie.training.data.energy import SAMPLE

EXAMPLE = Path(__file__).parents[2] / "examples" / "energy.toml"
FEW = (
    *('data.options={regions="AEP,DAYTON,DUQ,FE", window=12}', "clients.count=4", "cohort.size=4", "cohort.privacy=2"),
    *("rounds=3", "training.workers=0", "training.learning_rate=0.2", "training.evaluate_every=1"),
)


def play(path: Path, *settings: str) -> RunResult:
    return TrainingRun.begin(path, load_config(EXAMPLE, [*FEW, *settings])).play()


@pytest.mark.parametrize("algorithm", ["fedavg", "local-only", "centralised"])
def test_regions_learn_to_beat_the_previous_hour(tmp_path: Path, algorithm: str) -> None:
    result = play(tmp_path / "run", f"training.algorithm={algorithm}")
    summary = result.summary
    assert summary.accuracy is None
    assert summary.score is not None
    assert summary.score < summary.yardstick.rules["previous hour"] < summary.yardstick.rules["previous week"]
    assert summary.error is not None
    assert 10 < summary.error < 1000  # megawatts, where regions have some thousands
    report = (tmp_path / "run" / "report.html").read_text()
    assert "Forecast against truth" in report
    assert (tmp_path / "run" / "forecast.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["error"]) for row in rows] == [record.error for record in result.records]
    assert {row["accuracy"] for row in rows} == {""}
    assert json.dumps(summary.numbers()["rules"])


def test_regions_keep_their_own_models_and_learn_what_the_sums_reveal(tmp_path: Path) -> None:
    result = play(tmp_path / "run", "training.learning_rate=0.5")
    assert result.summary.config.training.algorithm == "confined"
    losses = [record.test_loss for record in result.records]
    assert losses[-1] is not None
    assert losses[0] is not None
    assert losses[-1] < losses[0]
    words = " ".join((tmp_path / "run" / "report.html").read_text().split())
    assert "the public displacement, is itself a usable model, with a mean squared error of" in words
    assert "claimed by the paper, not sound" in words


def test_a_local_model_is_evaluated_on_its_own_region(tmp_path: Path) -> None:
    result = play(tmp_path / "run", "training.algorithm=local-only", "rounds=1")
    federation = find_federation(load_config(EXAMPLE, FEW))
    assert federation.series is not None
    errors = []
    for name, model in result.models.items():
        chosen = federation.series.members[name]
        x, y = federation.test.batch(chosen)
        errors.append((model(x) - y).square().mean().item())
    assert result.summary.score == pytest.approx(np.mean(errors), rel=1e-5)


def test_a_resumed_forecasting_run_is_bit_exact(tmp_path: Path) -> None:
    whole = play(tmp_path / "whole", "rounds=2")
    interrupt = Interrupt(after=1)
    config = load_config(EXAMPLE, [*FEW, "rounds=2"])
    interrupt.run = TrainingRun.begin(tmp_path / "parts", config, observers=[interrupt])
    assert len(interrupt.run.play().records) == 1
    again = TrainingRun.open(RunFolder.open(tmp_path / "parts")).play()
    assert [(one.test_loss, one.error) for one in again.records] == [
        (one.test_loss, one.error) for one in whole.records
    ]
    assert stored_model(tmp_path / "whole") == stored_model(tmp_path / "parts")


def test_the_example_promises_t_5() -> None:
    config = load_config(EXAMPLE)
    assert build_run(config, find_federation(config)).promise.privacy == 5
    assert config.model.name == "lstm"
    assert len(find_federation(config).parts) == config.clients.count


def test_with_noise_no_training_hours_are_recorded(tmp_path: Path) -> None:
    """Rules of thumb are scored in units of each region's deviation in its training hours, which has no noise."""
    noise = ("noise.kind=skellam", "noise.multiplier=0.5", "cohort.minimum=4", "rounds=1")
    summary = play(tmp_path / "run", *noise).summary
    assert summary.epsilon is not None
    assert summary.numbers()["rules"] == {}
    assert "Forecasts that learn nothing" not in (tmp_path / "run" / "report.html").read_text()


def test_with_noise_gaps_in_training_hours_are_not_counted(tmp_path: Path) -> None:
    """A run whose noise hides single hours must not name a region that lacks one, long before the tests."""
    for region in ("AEP", "DAYTON", "DUQ", "FE"):
        lines = gzip.decompress((SAMPLE / f"{region}_hourly.csv.gz").read_bytes()).decode().splitlines(keepends=True)
        if region == "DUQ":
            del lines[200]
        (tmp_path / f"{region}_hourly.csv").write_text("".join(lines))
    data = (
        *("data.name=pjm", f"data.folder={json.dumps(str(tmp_path))}"),
        'data.options={regions="AEP,DAYTON,DUQ,FE", window=12, test_from="2018-07-16"}',
    )
    noise = ("noise.kind=skellam", "noise.multiplier=0.5", "cohort.minimum=4")
    clear, noisy = (play(tmp_path / f"run{len(more)}", *data, "rounds=1", *more).summary for more in ((), noise))
    assert clear.notes == ("DUQ: 1 hour without any, in no window",)
    assert noisy.notes == ()
