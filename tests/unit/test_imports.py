"""Import cycles: no module may import itself through others, whether at run time or for a type checker alone."""

import ast
from pathlib import Path

import networkx as nx

import coterie

ROOT = Path(coterie.__file__).parent


def name_of(path: Path) -> str:
    parts = ("coterie", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, modules: set[str]) -> set[str]:
    """Return the modules that a file imports anywhere, inside functions and type-checking blocks too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules else node.module)
    return found & modules


def test_no_module_imports_itself_through_others() -> None:
    files = {name_of(path): path for path in ROOT.rglob("*.py")}
    graph = nx.DiGraph()
    for module, path in files.items():
        graph.add_edges_from((module, other) for other in imported_modules(path, set(files)) - {module})
    assert [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1] == []
