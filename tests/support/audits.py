"""``coterie audit`` run in this process, and logs for it in which a client is exposed."""

import json
from pathlib import Path
from typing import Any

import typer
from click.testing import Result
from typer.testing import CliRunner

from coterie.cli import audit as command
from coterie.cohorts.ledger import Ledger

ROUNDS = {1: ["ann", "bob", "cyd", "dan"], 2: ["ann", "bob"], 3: ["cyd", "dan", "eve"]}
app = typer.Typer()
app.command()(command.audit)


def run(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin, env={"COLUMNS": "200"})


def findings(*arguments: str | Path, stdin: str | bytes | None = None, status: int | None = None) -> dict[str, Any]:
    result = run(*arguments, "--json", stdin=stdin)
    expected = bool(json.loads(result.stdout)["exposed"]) if status is None else status
    assert result.exit_code == expected, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def write_pairs(path: Path) -> None:
    path.write_text("round,client\n" + "".join(f"{number},{name}\n" for number, who in ROUNDS.items() for name in who))


def write_ledger(path: Path) -> None:
    with Ledger.open(path) as ledger:
        for number, who in ROUNDS.items():
            ledger.reveal(number, who, promised=1)
            ledger.complete(number)
