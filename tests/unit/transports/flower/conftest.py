import logging

import pytest
from tests.support.homes import home as home


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The lines of Coterie in Flower's log."""
    caplog.set_level(logging.INFO, "flwr")
    return caplog
