"""Settings for all tests: properties are judged by what they show, never by how long they take.

The same examples are tried every time, so that a test says the same of the same code; `make slow` tries others.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("search", settings.get_profile("same"), derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("COTERIE_EXAMPLES", "same"))

COUNTED = (
    *("arithmetic", "auditing", "cli", "cohorts", "confined", "crypto", "deployment", "graphs", "planning", "privacy"),
    *("rounds", "secagg"),
)
"""The folders of unit tests whose lines count as covered. Tracing the other tests would double their time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let coverage trace a package's unit tests and the vectors: other tests execute lines without looking at them."""
    tests = Path(__file__).parent
    counted = [tests / "vectors", *(tests / "unit" / name for name in COUNTED)]
    for item in items:
        if not any(item.path.is_relative_to(folder) for folder in counted):
            item.add_marker("no_cover")
