"""Fixtures for tests of rounds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.cohorts.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger."""
    with Ledger.open(tmp_path / "ledger.db") as opened:
        yield opened
