"""Settings for all tests. Properties have no time limit.

The same examples are tried every time, so that a test says the same of the same code; `make slow` tries others, and
four times as many. A property that needs a certain number of examples states it.
"""

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from functools import wraps
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

gc.disable()  # until all tests are collected: nothing that is made until then can be freed

settings.register_profile(
    "same", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("search", settings.get_profile("same"), max_examples=200, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("COTERIE_EXAMPLES", "same"))

COUNTED = (
    *("arithmetic", "auditing", "cli", "cohorts", "confined", "crypto", "deployment", "graphs", "planning", "privacy"),
    *("rounds", "secagg"),
)
"""The folders of unit tests whose lines count as covered. Tracing the other tests would double their time."""
TRACED = 10
"""The number of examples of a property that are traced. The others seldom execute other lines, and tracing is slow."""


MEMORY, ENOUGH = Path("/dev/shm"), 4 * 10**9  # noqa: S108 - pytest makes a folder of its own there


def pytest_configure(config: pytest.Config) -> None:
    """Give each process one thread for arithmetic, and temporary files a place in memory; benchmarks have neither.

    The workers use all processors, so that threads would wait for each other. On a disk every commit of a ledger is
    waited for.
    """
    if config.option.markexpr == "bench":
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let coverage trace a package's unit tests and the vectors: other tests execute lines without looking at them."""
    tests = Path(__file__).parent
    counted = {tests / "vectors", *(tests / "unit" / name for name in COUNTED)}
    for item in items:
        if counted.isdisjoint(item.path.parents):
            item.add_marker("no_cover")


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of garbage collections: it stays, and there is much of it."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Stop tracing after the first examples of a property."""
    tracer, handle = Coverage.current(), getattr(getattr(item, "obj", None), "hypothesis", None)
    if tracer is None or handle is None or item.get_closest_marker("no_cover"):
        return (yield)
    inner, examples = handle.inner_test, 0

    @wraps(inner)
    def count(*arguments: object, **named: object) -> object:
        nonlocal examples
        examples += 1
        if examples == TRACED + 1:
            tracer.stop()
        return inner(*arguments, **named)

    handle.inner_test = count
    try:
        return (yield)
    finally:
        handle.inner_test = inner
        if examples > TRACED:
            tracer.start()


@pytest.fixture(autouse=True)
def log_of_flower_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send what Coterie logs to Flower only, in tests on Flower.

    A process has one engine. Here tests on both run in one, and would find every line twice.
    """
    if "flower" in str(request.path) and "nvflare" in sys.modules:
        from coterie.deployment import logs

        flower = [engine for engine in logs._REDIRECTION.engines if engine.name == "flwr"]
        monkeypatch.setattr(logs._REDIRECTION, "engines", flower)
