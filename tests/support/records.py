"""Commands run in this process or in one of their own, and what they print."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from coterie.cli import app


def _run(*arguments: str | Path, **environment: str) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)), env=environment)
    assert result.exit_code == 0, result.output
    return result


def as_options(settings: Iterable[str]) -> list[str]:
    """Return settings as options of the command line, each after ``--set``."""
    return [word for setting in settings for word in ("--set", setting)]


def record_of(*arguments: str | Path) -> dict[str, Any]:
    """Run a command, which must succeed, with ``--json``."""
    found: dict[str, Any] = json.loads(_run(*arguments, "--json").stdout)
    return found


def record_of_process(*arguments: str, folder: Path | None = None) -> dict[str, Any]:
    """Run a command with ``--json`` in a process of its own, so that its peak memory is its own too."""
    command = [sys.executable, "-c", "from coterie.cli import main; main()", *arguments, "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=folder).stdout)
    return found


def words_of(*arguments: str | Path) -> str:
    """Run a command, which must succeed; return what it prints, with single spaces."""
    return " ".join(_run(*arguments).stdout.split())


def narrow_output(*arguments: str) -> str:
    """Run a command on a screen of 80 columns; return what it prints, which must not be cut off."""
    shown = _run(*arguments, COLUMNS="80").output
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    return shown
