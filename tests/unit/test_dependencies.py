"""Every imported package is declared."""

import ast
import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_every_import_is_of_a_declared_package() -> None:
    files = sorted((ROOT / "src").rglob("*.py"))
    used = {file: foreign(list(ast.walk(ast.parse(file.read_text())))) for file in files}
    assert "numpy" in set().union(*used.values())
    assert {file: more for file, packages in used.items() if (more := packages - ALL - RIVALS)} == {}


def test_the_command_line_starts_with_the_core_alone() -> None:
    files = sorted((ROOT / "src/coterie/cli").glob("*.py"))
    used = {file: foreign(list(ast.parse(file.read_text()).body)) for file in files}
    assert "typer" in set().union(*used.values())
    assert {file: more for file, packages in used.items() if (more := packages - CORE)} == {}


def test_exact_versions_are_in_the_constraints_alone_and_lie_in_the_declared_ranges() -> None:
    """A pin in pyproject.toml would refuse the environments of everybody who has another version."""
    pinned = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, exact, version = line.partition("#")[0].strip().partition("==")
        if exact:
            assert canonicalize_name(name.partition("[")[0]) not in pinned, f"{name} is listed twice"
            pinned[canonicalize_name(name.partition("[")[0])] = version
    declared = [
        *PROJECT["dependencies"],
        *(one for extra in PROJECT["optional-dependencies"].values() for one in extra),
    ]
    for requirement in map(Requirement, declared):
        assert not any(part.operator in ("==", "===") for part in requirement.specifier), requirement
        if requirement.name != "coterie":
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement
    assert {"flwr>=1.38,<2", "torch>=2.4"} <= set(declared)
