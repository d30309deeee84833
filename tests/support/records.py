"""Commands run in this process, and the JSON that they print."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from coterie.cli import app


def record_of(*arguments: str | Path) -> dict[str, Any]:
    """Run a command, which must succeed, with ``--json``."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found
