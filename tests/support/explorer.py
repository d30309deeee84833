"""A running explorer for tests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coterie.explorer.server import ExplorerServer


@contextmanager
def running_explorer() -> Iterator[ExplorerServer]:
    """Serve the page on a free port of the loopback address."""
    with ExplorerServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def explorer() -> Iterator[ExplorerServer]:
    """A server that the tests of a module share."""
    with running_explorer() as server:
        yield server
