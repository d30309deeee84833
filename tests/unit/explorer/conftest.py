"""The explorer that tests of this folder share."""

from collections.abc import Iterator

import pytest
from tests.support.explorer import running_explorer

from coterie.explorer.server import ExplorerServer


@pytest.fixture(scope="module")
def explorer() -> Iterator[ExplorerServer]:
    """A server on a free port of the loopback address."""
    with running_explorer() as server:
        yield server
