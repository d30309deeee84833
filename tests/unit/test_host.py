import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from coterie.host import cores, install_command, keep_memory

FAULTS = """
import resource
import sys
import numpy as np
from coterie.host import keep_memory

if sys.argv[1] == "keep":
    keep_memory()
for _ in range(20):
    arrays = [np.ones(10**6) for _ in range(5)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def test_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {1, 5}, raising=False)
    assert cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == os.cpu_count()


def test_memory_is_kept_where_that_is_possible() -> None:
    """Five arrays of 8 MB have 10,000 pages, which are fetched once if they are kept."""
    run = [sys.executable, "-c", FAULTS]
    kept, returned = (int(subprocess.check_output([*run, how])) for how in ("keep", "return"))
    if sys.platform == "linux" and "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or ""):
        assert returned > 3 * kept


def test_keeping_memory_does_nothing_on_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("ctypes.CDLL", lambda *_: pytest.fail("a library was loaded"))
    keep_memory()


@pytest.mark.parametrize(
    ("noted", "command"),
    [
        (None, "pip install 'coterie[train]'"),
        ('{"url": "file:///a%20b/coterie", "dir_info": {}}', "pip install '/a b/coterie[train]'"),
        (
            '{"url": "file:///src/coterie", "dir_info": {"editable": true}}',
            "pip install --editable '/src/coterie[train]'",
        ),
        (
            '{"url": "file:///coterie-1-py3-none-any.whl", "archive_info": {}}',
            "pip install 'coterie[train] @ file:///coterie-1-py3-none-any.whl'",
        ),
        (
            '{"url": "https://host/coterie", "vcs_info": {"vcs": "git", "commit_id": "1"}}',
            "pip install 'coterie[train] @ git+https://host/coterie'",
        ),
    ],
)
def test_advice_installs_from_where_the_package_came(
    noted: str | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(read_text={"direct_url.json": noted}.get)
    monkeypatch.setattr(metadata, "distribution", {"coterie": found}.__getitem__)
    assert install_command("train") == command


def test_advice_in_a_checkout_names_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    folder = install_command("train").removeprefix("pip install '").removesuffix("[train]'")
    assert (Path(folder) / "pyproject.toml").is_file()
