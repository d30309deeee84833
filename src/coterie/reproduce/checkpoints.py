"""Models of a long job, saved now and then, so that an interrupted job continues where it stopped.

A file holds the number of rounds that were played, the models after them by name, and notes. It belongs to the job that
it is named after: the journal beside it refuses other settings and seeds.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from coterie.files import write_output
from coterie.reproduce.experiment import Job, Record
from coterie.training.flatten import ModelArrays

TRAINED = "trained"
"""The folder of these files, in the results."""
EVERY = 20
"""After how many rounds a job saves its models."""


def path_of(folder: Path, job: Job) -> Path:
    """Return the file of a job."""
    return folder / TRAINED / f"{job.folder_name}.npz"


def save(file: Path, rounds: int, models: Mapping[str, ModelArrays], noted: Record | None = None) -> None:
    """Write the models after a number of rounds, and what was noted; a crash leaves the old file or the new one."""
    arrays = {f"{name}/{place}": array for name, model in models.items() for place, array in enumerate(model)}
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, rounds=np.int64(rounds), noted=np.str_(json.dumps(noted)), **arrays)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_output(file, content.getvalue())


def load(file: Path) -> tuple[int, dict[str, ModelArrays]]:
    """Return how many rounds were played, and the models after them; none if there is no file."""
    models: dict[str, ModelArrays] = {}
    if not file.exists():
        return 0, models
    with np.load(file) as arrays:
        for key in arrays.files:
            name, _, place = key.rpartition("/")
            if place.isdigit():
                models.setdefault(name, []).append(arrays[key])
        return int(arrays["rounds"]), models


def rounds_played(file: Path) -> int:
    """Return how many rounds were played."""
    if not file.exists():
        return 0
    with np.load(file) as arrays:
        return int(arrays["rounds"])


def notes(file: Path) -> Record | None:
    """Return what was noted; None if nothing was."""
    if not file.exists():
        return None
    with np.load(file) as arrays:
        found: Record | None = json.loads(str(arrays["noted"]))
        return found
