"""Tables: code that serves every entry of a table does not know single entries by name or class."""

import ast
from collections.abc import Iterator
from pathlib import Path

import coterie
from coterie.attacks.table import ATTACKS
from coterie.auditing.logs import FORMATS
from coterie.cohorts import policies
from coterie.cohorts.policies import POLICIES
from coterie.graphs.table import TOPOLOGIES
from coterie.privacy.distributions import DISTRIBUTIONS
from coterie.reproduce.declarations import KINDS
from coterie.runs.algorithms import ALGORITHMS
from coterie.training.data.datasets import DATASETS
from coterie.training.metrics import METRICS
from coterie.training.models import MODELS

SOURCE = Path(coterie.__file__).parent
NAMES = {
    *POLICIES,
    *TOPOLOGIES,
    *DISTRIBUTIONS,
    *ALGORITHMS,
    *DATASETS,
    *MODELS,
    *METRICS,
    *ATTACKS,
    *KINDS,
    *(row.name for row in FORMATS),
}
CLASSES = {
    *(kind.kind.__name__ for kind in TOPOLOGIES.values()),
    *(kind.__name__ for kind in (*DISTRIBUTIONS.values(), *ALGORITHMS.values())),
    *(name for name, found in vars(policies).items() if isinstance(found, type) and hasattr(found, "select")),
} - {"Policy"}
ALLOWED = {
    "auditing/logs/pairs.py": {"pairs"},  # the reader of two formats
    "auditing/logs/raw_log.py": {"ledger"},  # the folder of a run is read by its ledger
    "auditing/logs/table_kinds.py": {"lists", "matrix"},  # tells the formats of a table apart
    "bench/secagg.py": {"Complete", "Harary"},  # the graphs that Flower can use
    "graphs/failures.py": {"Harary"},  # the failure law of regular graphs
    "runs/engine/notes.py": {"MultiRound"},  # expected participation, which has a formula for this class
    "runs/sections/collusion.py": {"random"},  # a value of cohort.circles
}
"""Modules that are about single entries, and the words that they compare with."""
SHARED = {"__init__", "declarations", "experiment", "runner", "training"}
"""Modules of ``reproduce`` that serve all experiments."""


def modules() -> Iterator[Path]:
    """Yield all modules but those of single attacks and experiments, which compare some entries with others."""
    for path in sorted(SOURCE.rglob("*.py")):
        package, *rest = path.relative_to(SOURCE).parts
        attack = package == "attacks" and len(rest) > 1
        experiment = package == "reproduce" and (len(rest) > 1 or path.stem not in SHARED)
        if not (attack or experiment):
            yield path


def compared(path: Path) -> Iterator[str]:
    """Yield the words that a module compares something with, and the classes that it tests for."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                leaves = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
                yield from (str(leaf.value) for leaf in leaves if isinstance(leaf, ast.Constant))
        elif isinstance(node, ast.MatchValue) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
        elif isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name):
            yield node.cls.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            yield from (leaf.id for leaf in ast.walk(node.args[1]) if isinstance(leaf, ast.Name))


def test_no_module_knows_an_entry_of_a_table_by_name() -> None:
    known = NAMES | CLASSES
    found = {str(path.relative_to(SOURCE)): {word for word in compared(path) if word in known} for path in modules()}
    assert {path: words for path, words in found.items() if words} == ALLOWED


def test_comparisons_with_names_of_entries_are_found(tmp_path: Path) -> None:
    """It shows that the test above can fail."""
    (tmp_path / "module.py").write_text(
        'if policy == "multi-round" or topology in ("auto", "harary") or isinstance(graph, Complete | Harary):\n'
        "    match kind:\n"
        '        case "skellam" | Random():\n'
        "            pass\n"
    )
    found = {"multi-round", "auto", "harary", "Complete", "Harary", "skellam", "Random"}
    assert set(compared(tmp_path / "module.py")) == found
    assert found - {"auto"} <= NAMES | CLASSES
