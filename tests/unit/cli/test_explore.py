"""``coterie explore``: its help, its export, and how it begins and ends."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie.cli import app
from coterie.explorer.server import ExplorerServer

COMMAND = [sys.executable, "-m", "coterie", "explore"]


def test_help_says_what_it_does_and_where_it_listens() -> None:
    shown = CliRunner().invoke(app, ["explore", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    for words in ("127.0.0.1", "does not leave this machine", "Ctrl-C", "--export", "--port", "--open"):
        assert words in shown


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM], ids=lambda end: end.name)
def test_it_serves_until_it_is_stopped(end: signal.Signals) -> None:
    with subprocess.Popen(
        [*COMMAND, "--port", "0", "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # jobs in the background ignore it
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert found is not None
            with urllib.request.urlopen(found[0], timeout=60) as answer:  # noqa: S310 - an address of our own
                assert b"Coterie explorer" in answer.read()
            process.send_signal(end)
            rest, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert rest.endswith("Stopped.\n")
    assert errors == ""


def test_a_port_in_use_is_one_clear_line() -> None:
    with ExplorerServer() as server:
        taken = [*COMMAND, "--no-open", "--port", str(server.server_port)]
        done = subprocess.run(taken, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr == f"coterie: port {server.server_port} is in use; choose another, or 0 for a free one\n"


def test_it_opens_the_browser_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(ExplorerServer, "serve_forever", lambda _self: (_ for _ in ()).throw(KeyboardInterrupt))
    result = CliRunner().invoke(app, ["explore", "--port", "0"])
    assert result.exit_code == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", opened[0])
    assert result.output.endswith("Stopped.\n")


def test_it_exports_one_file(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["explore", "--export", str(tmp_path / "site")])
    assert result.exit_code == 0
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["index.html"]
    assert "index.html" in result.output
