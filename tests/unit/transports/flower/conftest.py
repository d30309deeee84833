import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.flower import MEMORY


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give every test a machine of its own."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        monkeypatch.setenv("COTERIE_HOME", folder)
        yield Path(folder)
