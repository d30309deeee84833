import os
import subprocess
import sys

import pytest

from coterie.host import cores, keep_memory

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


def test_cores(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_other_systems_keep_memory_as_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    keep_memory()
