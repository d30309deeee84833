"""Folders of runs: two that begin in the same second, in one process or in several, never share one."""

import multiprocessing
import os
import time
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import pytest

from coterie.errors import ConfigError
from coterie.files import write_file
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import make_config
from coterie.runs.storage.folder import RunFolder

PROCESSES = 4


def begin(place: str, path: str | None, ready: Any, found: "Queue[str]") -> None:  # noqa: ANN401 - a barrier of processes
    os.chdir(place)
    ready.wait()
    try:
        found.put(str(RunFolder.create(Path(path) if path else None, RunConfig()).path))
    except ConfigError as error:
        found.put(f"refused: {error}")


def together(place: Path, path: str | None) -> list[str]:
    context = multiprocessing.get_context("fork")
    ready, found = context.Barrier(PROCESSES), context.Queue()
    processes = [context.Process(target=begin, args=(str(place), path, ready, found)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    said = [found.get() for _ in processes]
    for process in processes:
        process.join()
    return said


def test_runs_of_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda _format: "20260101-000000")
    folders = [RunFolder.create(None, RunConfig()) for _ in range(3)]
    assert [folder.path.as_posix() for folder in folders] == [
        f"runs/digits-20260101-000000{number}" for number in ("", "-2", "-3")
    ]
    assert len({folder.secret() for folder in folders}) == 3


@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({"data.name": "energy", "clients.count": 10}, "energy-"),
        ({"data.name": "tests.support.user_code:hospitals"}, "tests-support-user-code-hospitals-"),
        ({"data.name": "energy", "name": "first-try"}, "first-try-"),
        ({}, "digits-"),
    ],
)
def test_a_folder_is_named_after_the_run_or_its_data(
    settings: dict[str, object], begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All folders used to be named after the digits."""
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create(None, make_config(settings))
    assert folder.path.name.startswith(f"{begins}2")


def test_processes_that_begin_at_once_have_folders_of_their_own(tmp_path: Path) -> None:
    said = together(tmp_path, None)
    assert len(set(said)) == PROCESSES
    assert len({RunFolder(tmp_path / path).secret() for path in said}) == PROCESSES


def test_of_several_processes_only_one_begins_a_run_in_a_folder(tmp_path: Path) -> None:
    said = together(tmp_path, "run")
    assert sum(path == "run" for path in said) == 1
    refusals = [path for path in said if path != "run"]
    assert all("holds a run already" in why or "another process is working on" in why for why in refusals)


def test_a_second_run_is_refused_while_a_folder_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []

    def interrupted(path: Path, data: bytes) -> None:
        monkeypatch.setattr("coterie.runs.storage.folder.write_file", write_file)
        with pytest.raises(ConfigError, match="another process") as caught:
            RunFolder.create(tmp_path / "run", RunConfig(seed=1))
        refused.append(str(caught.value))
        write_file(path, data)

    monkeypatch.setattr("coterie.runs.storage.folder.write_file", interrupted)
    folder = RunFolder.create(tmp_path / "run", RunConfig())
    assert refused
    assert folder.config() == RunConfig()


def test_half_written_files_of_a_killed_process_are_deleted(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", RunConfig())
    folder.sums_folder.mkdir()
    left = [folder.path / ".model.0123456789abcdef.draft", folder.sums_folder / ".1.npy.0123456789abcdef.draft"]
    for draft in left:
        draft.touch()
    folder.clean()
    assert not any(draft.exists() for draft in left)
    assert folder.config() == RunConfig()
