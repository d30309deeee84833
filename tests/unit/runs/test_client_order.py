"""The roster numbers clients in the order of their names, whatever the order in which the data has them."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
from tests.support.interruptions import Interrupt
from torch import nn

from coterie.cohorts.availability import LABEL_DROPOUT
from coterie.runs.algorithms.fedavg import FederatedAveraging
from coterie.runs.engine.build import build_run
from coterie.runs.engine.federation import Federation, make_federation
from coterie.runs.engine.run import TrainingRun
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import make_config
from coterie.runs.storage.folder import RunFolder
from coterie.training.data.user_data import from_clients

NAMES = ("zoe", "ann", "eve", "bob", "dan", "cat")


def prepared(**changes: object) -> tuple[RunConfig, Federation]:
    """Return the settings of a run, and a federation in which each client has another label."""
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    always = {"availability.kind": "equal", "availability.dropout": 0.0, "faults.dropout": 0.0}
    fast = {"training.epochs": 1, "training.executor": "processes", "training.workers": 0, "aggregation.threads": 1}
    config = make_config({"rounds": 6, "clients.count": 6, "cohort.size": 2, **always, **fast, **keys})
    x = np.ones((3, 4), np.float32)
    data = from_clients({name: (x, np.full(3, label)) for label, name in enumerate(NAMES)})
    return config, make_federation(config, data, nn.Linear(4, len(NAMES)))


def test_only_the_clients_that_an_algorithm_excludes_are_not_selected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FederatedAveraging, "excluded", lambda _: ("zoe",))
    config, federation = prepared(cohort__policy="random", cohort__size=5)
    records = TrainingRun.begin(tmp_path / "run", config, federation).play().records
    assert {name for record in records for name in record.aggregated} == set(NAMES) - {"zoe"}


def test_the_label_of_a_client_decides_its_own_availability() -> None:
    config, federation = prepared(availability__kind="label-dependent")
    dropout = build_run(config, federation).availability.probability(1)
    assert dict(zip(sorted(NAMES), dropout.tolist(), strict=True)) == dict(zip(NAMES, LABEL_DROPOUT, strict=False))


@pytest.mark.parametrize("kind", ["plain", "secure"])
def test_a_resumed_run_selects_the_clients_of_an_uninterrupted_one(kind: str, tmp_path: Path) -> None:
    config, federation = prepared(aggregation__kind=kind)
    whole = TrainingRun.begin(tmp_path / "whole", config, federation).play().records
    stopper = Interrupt(2)
    stopper.run = TrainingRun.begin(tmp_path / "parts", config, federation, observers=[stopper])
    stopper.run.play()
    resumed = TrainingRun.open(RunFolder.open(tmp_path / "parts"), prepared(aggregation__kind=kind)[1]).play().records
    assert [record.aggregated for record in resumed] == [record.aggregated for record in whole]
