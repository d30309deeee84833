"""``coterie plan`` in this process: its text, its JSON or its refusal."""

from typing import Any

from tests.support.records import record_of
from typer.testing import CliRunner

from coterie.cli import app
from coterie.cli.audit_input import spell
from coterie.errors import ConfigError

RUNNER = CliRunner()


def shown(*arguments: str, columns: int = 120) -> str:
    """Return what a plan prints on a screen of some width, with single spaces."""
    result = RUNNER.invoke(app, ["plan", *arguments], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def as_json(*arguments: str) -> dict[str, Any]:
    """Return the JSON of a plan."""
    return record_of("plan", *arguments)


def refusal(*arguments: str) -> str:
    """Return the error of a plan that is refused."""
    result = RUNNER.invoke(app, ["plan", *arguments])
    assert isinstance(result.exception, ConfigError), result.output
    return spell(result.exception)
