"""A running explorer for tests."""

import threading
from collections.abc import Iterator

import pytest

from coterie.explorer.server import ExplorerServer


@pytest.fixture(scope="module")
def explorer() -> Iterator[ExplorerServer]:
    """A server on a free port of the loopback address."""
    with ExplorerServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
