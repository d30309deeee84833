"""Short runs on data and models of the user."""

from pathlib import Path
from typing import Any

from tests.support.user_code import load_clients
from torch import nn

from coterie.api import train
from coterie.runs.engine.run import RunResult


def linear() -> nn.Module:
    return nn.Linear(3, 3)


def go(folder: Path, **more: Any) -> RunResult:  # noqa: ANN401
    clients, test = load_clients()
    given = {"model": linear, "clients": clients, "test_set": test, "rounds": 4, "cohort": 4, "progress": False, **more}
    # ``auto`` chooses the faster executor, and the two round differently.
    given["settings"] = {"training.executor": "processes", **(more.get("settings") or {})}
    return train(out=folder, **given)
