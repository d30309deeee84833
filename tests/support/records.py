"""Commands run in this process, and what they print."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from coterie.cli import app


def _run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result


def record_of(*arguments: str | Path) -> dict[str, Any]:
    """Run a command, which must succeed, with ``--json``."""
    found: dict[str, Any] = json.loads(_run(*arguments, "--json").stdout)
    return found


def words_of(*arguments: str | Path) -> str:
    """Run a command, which must succeed; return what it prints, with single spaces."""
    return " ".join(_run(*arguments).stdout.split())
