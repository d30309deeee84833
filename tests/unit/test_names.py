"""Checks of names and modules: exceptions in one file, docstrings that begin with a sentence, and short modules.

A comment that switches a check off says why.
"""

import ast
import builtins
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import coterie
from coterie import errors

ROOT = Path(coterie.__file__).parent
PROJECT = Path(__file__).parents[2]
LONGEST = 500  # lines of a module
PROGRAMS = {"bench/flower_app/trips/__init__.py"}  # a package only because Flower needs one

MODULES = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py"))


@cache
def parse(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def definitions(module: str) -> Iterator[str]:
    """Name the public classes and type aliases, also those that only a type checker sees."""
    body = parse(module).body
    guarded = [node for branch in body if isinstance(branch, ast.If) for node in branch.body]
    for node in [*body, *guarded]:
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        else:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            # An alias is written like a class; a constant is in capitals.
            written = [target.id for target in targets if isinstance(target, ast.Name)]
            names = [name for name in written if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name)]
        yield from (name for name in names if not name.startswith("_"))


def test_every_public_exception_is_in_one_file() -> None:
    known = {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)}
    known |= set(definitions("errors.py")) - {"Separation"}  # a part of SeparationRisk, and no exception
    elsewhere = [
        (module, node.name)
        for module in MODULES
        if module != "errors.py"
        for node in ast.walk(parse(module))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if known & {base.id for base in node.bases if isinstance(base, ast.Name)}
    ]
    assert elsewhere == []


def test_the_tree_of_errors_is_as_drawn() -> None:
    drawn: dict[str, str | None] = {}
    parents: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"    ([│ ]*)(?:[├└]── )?([A-Z]\w+)", line):
            depth = 0 if line[4].isalpha() else 1 + len(found[1]) // 4
            del parents[depth:]
            drawn[found[2]] = parents[-1] if parents else None
            parents.append(found[2])
    real = {
        name: None if value is errors.CoterieError else value.__bases__[0].__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.CoterieError)
    }
    assert drawn == real


def test_a_docstring_begins_with_a_sentence() -> None:
    begun = {module: (ast.get_docstring(parse(module)) or "").partition("\n") for module in MODULES}
    assert [module for module, (first, _, _) in begun.items() if not first.endswith(".")] == []
    assert [module for module, (_, _, rest) in begun.items() if rest and not rest.startswith("\n")] == []


def test_a_package_says_how_it_works_and_where_to_start() -> None:
    packages = [module for module in MODULES if module.endswith("__init__.py") and module not in PROGRAMS]
    short = [module for module in packages if (ast.get_docstring(parse(module)) or "").count("\n") < 3]
    assert short == []


def test_modules_are_read_in_one_sitting() -> None:
    lines = {module: (ROOT / module).read_text(encoding="utf-8").count("\n") for module in MODULES}
    assert {module: count for module, count in lines.items() if count > LONGEST} == {}


def test_a_check_that_is_switched_off_has_a_reason() -> None:
    """Words follow the names of the checks, after a dash, in brackets or as a second comment."""
    switch = re.compile(r"#\s*(?:noqa|type:\s*ignore)(.*)")
    reason = re.compile(r"(?:: [A-Z]+\d+(?:, [A-Z]+\d+)*|\[[a-z-]+(?:, [a-z-]+)*\])\s+(?:-|#|\()\s*\w.*")
    files = [path for folder in ("src", "docs", "examples") for path in sorted((PROJECT / folder).rglob("*.py"))]
    assert files
    without = [
        f"{path.relative_to(PROJECT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (found := switch.search(line)) and not reason.fullmatch(found[1])
    ]
    assert without == []


def test_contributors_are_shown_the_layers_that_are_checked() -> None:
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["coterie"]]
    table = re.findall(r"^\| (`.*?`) \|", (PROJECT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    shown = [name for row in table for name in re.findall(r"`(\w+)`", row)]
    assert shown == [name for layer in layers for name in layer.split(" | ")]
