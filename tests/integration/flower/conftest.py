"""Fixtures for tests on real processes of Flower."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.loopback import NODES, HookedFederation


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[HookedFederation]:
    """A SuperLink with all nodes."""
    with HookedFederation(tmp_path / "federation") as federation:
        for number in range(NODES):
            federation.start_node(number, NODES)
        yield federation
