"""What is imported is declared."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {
    "google": "protobuf",
    "sklearn": "scikit-learn",
    "dp_accounting": "dp-accounting",
    "pydantic_core": "pydantic",
}
RIVALS = {"pfl", "ray"}  # measured against where they are installed


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~ ]", requirement)[0] for requirement in requirements}


CORE = names(PROJECT["dependencies"])
ALL = CORE.union(*map(names, PROJECT["optional-dependencies"].values()))


def imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(level=0, module=str(module)):
            return [module]
    return []


def foreign(nodes: list[ast.AST]) -> set[str]:
    packages = {name.partition(".")[0] for node in nodes for name in imported(node)}
    return {DISTRIBUTIONS.get(name, name) for name in packages - sys.stdlib_module_names - {"coterie"}}


@pytest.mark.parametrize("file", sorted((ROOT / "src").rglob("*.py")), ids=lambda file: file.stem)
def test_every_import_is_of_a_declared_package(file: Path) -> None:
    assert foreign(list(ast.walk(ast.parse(file.read_text())))) <= ALL | RIVALS


@pytest.mark.parametrize("file", sorted((ROOT / "src/coterie/cli").glob("*.py")), ids=lambda file: file.stem)
def test_the_command_line_starts_with_the_core_alone(file: Path) -> None:
    assert foreign(list(ast.parse(file.read_text()).body)) <= CORE
