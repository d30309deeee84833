"""A headless Chromium, driven over its DevTools pipe: no driver, no port and no further package is needed."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",  # tests may run as root in a container, and only open pages they made themselves
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
# The browser wants its pipes at the descriptors 3 and 4, wherever they are here.
_LAUNCH = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(reads, 3), os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 60.0  # seconds; far more than a page takes
_AXE = Path(__file__).parents[2] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"


class Page:
    """One tab: opens pages, evaluates scripts, and keeps the complaints and the requests of the browser."""

    def __init__(self, commands: IO[bytes], replies: IO[bytes]) -> None:
        self._commands, self._replies = commands, replies
        self._buffer = b""
        self._number = 0
        self._session: dict[str, str] = {}
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Log", "Runtime", "Network", "Page"):
            self.call(f"{domain}.enable")

    def open(self, path: Path, plots: int, *, dark: bool = False, width: int = 1300) -> None:
        """Open a report and wait until its plots are drawn."""
        self._navigate(path.as_uri(), dark=dark, still=False, width=width)
        self.wait_for(f"document.documentElement?.dataset.plots === '{plots}'")

    def visit(self, url: str, *, dark: bool = False, still: bool = False, width: int = 1300, height: int = 900) -> None:
        """Open the explorer anew and wait until it has begun; ``still`` is for readers who want no motion."""
        self.call("Page.navigate", url="about:blank")  # otherwise only the end of the address may change
        self._navigate(url, dark=dark, still=still, width=width, height=height)
        self.wait_for("document.documentElement?.dataset.ready === 'true'")

    def open_plainly(self, url: str, *, dark: bool = False, width: int = 1300) -> None:
        """Open a page that does not say when it is ready."""
        self._navigate(url, dark=dark, still=False, width=width)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def _navigate(self, url: str, *, dark: bool, still: bool, width: int, height: int = 900) -> None:
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.complaints.clear()
        self.requests.clear()
        self.call("Page.navigate", url=url)

    def wait_for(self, condition: str, *, complaints: bool = False) -> None:
        """Wait until a JavaScript expression is true; ``complaints`` of the browser may be expected meanwhile."""
        give_up = time.monotonic() + _PATIENCE
        while not self.evaluate(condition):
            if (self.complaints and not complaints) or time.monotonic() > give_up:
                pytest.fail(f"never true: {condition}; the browser says: {self.complaints}")
            time.sleep(0.05)

    def loaded(self) -> list[str]:
        """Return the addresses that the browser asked for, without those that contain their data."""
        return [url for url in self.requests if not url.startswith("data:")]

    def find_barriers(self) -> list[tuple[str, list[str]]]:
        """Return the rules of axe-core that the page breaks, with the first elements: names, roles, contrast, order."""
        if not _AXE.is_file():
            pytest.skip("axe-core is not installed: make explorer")
        self.evaluate(_AXE.read_text("utf-8") + "; undefined")
        found = self.evaluate("axe.run(document, { resultTypes: ['violations'] }).then((done) => done.violations)")
        return [(one["id"], [node["html"][:120] for node in one["nodes"]][:5]) for one in found]

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401 - whatever JavaScript returns
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Send a DevTools command and return its result, taking note of the events that arrive before it."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params, **self._session}
        self._commands.write(json.dumps(command).encode() + b"\0")
        self._commands.flush()
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._replies], [], [], _PATIENCE)[0]:
                pytest.fail("the browser does not answer")
            data = os.read(self._replies.fileno(), 1 << 16)
            if not data:
                pytest.fail("the browser has closed")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A tab of a browser; the test is skipped where there is none."""
    browser = find_browser()
    if browser is None:
        pytest.skip(f"no browser to look at the page with: none of {', '.join(_BROWSERS)} is installed")
    with open_page(browser, tmp_path_factory.mktemp("browser")) as tab:
        yield tab


def find_browser() -> str | None:
    """Return the program of a browser that can be driven, if one is installed."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


@contextmanager
def open_page(browser: str, profile: Path) -> Iterator[Page]:
    """Start a browser with an empty profile in a folder, and open a tab."""
    (reads, commands), (replies, writes) = os.pipe(), os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, str(reads), str(writes), browser, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(reads, writes),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(reads)
    os.close(writes)
    with os.fdopen(commands, "wb") as sender, os.fdopen(replies, "rb", buffering=0) as receiver:
        try:
            tab = Page(sender, receiver)
            yield tab
            tab._session = {}
            tab.call("Browser.close")
            process.wait(timeout=_PATIENCE)
        finally:
            process.kill()
            process.wait()
