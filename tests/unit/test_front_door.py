"""The public names of the package: their types, their results, and that importing them loads nothing heavy."""

import ast
import doctest
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.interpreter import printed_by

import coterie
from coterie import api, cohorts
from coterie.auditing.auditor import audit as examine
from coterie.cohorts import Ledger
from coterie.cohorts.participation import Participation
from coterie.errors import ConfigError, InputError
from coterie.planning.population import plan_population
from coterie.planning.session import recommend

MATRICES = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 1), min_size=width, max_size=width), min_size=1, max_size=6)
)
PACKAGES = ("arithmetic", "cohorts", "graphs", "privacy", "secagg", "training")


def loaded_after(statement: str) -> set[str]:
    """Return the packages that a new process has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    return set(printed_by(program).split())


def test_what_is_exported() -> None:
    assert coterie.__all__ == [
        "AggregationResult",
        "AuditReport",
        "Comparison",
        "Plan",
        "PopulationPlan",
        "RunResult",
        "__version__",
        "aggregate",
        "audit",
        "compare",
        "plan",
        "train",
    ]
    assert dir(coterie) == coterie.__all__


def test_type_checkers_see_what_is_there() -> None:
    tree = ast.parse(Path(coterie.__file__).read_text())
    (branch,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted([*seen, "__version__"]) == coterie.__all__
    for name, home in seen.items():
        assert home is not None
        assert getattr(coterie, name) is getattr(import_module(home), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_have_what_they_export(package: str) -> None:
    module = import_module(f"coterie.{package}")
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_unknown_names_are_errors_for_python_and_for_type_checkers() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = coterie.nonsense  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = cohorts.nonsense  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_heavy() -> None:
    packages = loaded_after("import coterie; dir(coterie); import coterie.errors")
    assert packages.isdisjoint({"click", "cryptography", "msgspec", "numpy", "pydantic", "rich", "torch", "typer"})


def test_the_command_line_starts_light() -> None:
    packages = loaded_after("import coterie.cli")
    assert packages.isdisjoint({"cryptography", "jinja2", "numpy", "pydantic", "scipy", "sqlalchemy", "torch"})


def test_the_package_is_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "coterie", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"coterie {coterie.__version__}\n"


def test_the_examples_in_docstrings_run() -> None:
    tried = doctest.testmod(api)
    assert tried.attempted >= 6
    assert tried.failed == 0


@given(MATRICES)
def test_an_audit_takes_a_matrix_or_a_history(matrix: list[list[int]]) -> None:
    expected = examine(Participation.from_matrix(matrix), collusion=1).as_dict()
    for source in (matrix, np.array(matrix), np.array(matrix, dtype=bool), Participation.from_matrix(matrix)):
        assert coterie.audit(source, collusion=1).as_dict() == expected


def test_an_audit_takes_any_log(tmp_path: Path) -> None:
    matrix = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]])
    np.save(tmp_path / "log.npy", matrix)
    np.savetxt(tmp_path / "matrix.csv", matrix, "%d", ",")
    pairs = [f"{row + 1},{column + 1}" for row, column in np.argwhere(matrix)]
    (tmp_path / "pairs.csv").write_text("\n".join(["round,client", *pairs]))
    expected = coterie.audit(matrix).as_dict()
    for name in ("log.npy", "matrix.csv", "pairs.csv"):
        assert coterie.audit(tmp_path / name).as_dict() == coterie.audit(str(tmp_path / name)).as_dict() == expected


def test_an_audit_takes_a_ledger(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.reveal(1, ["ann", "bob"], promised=2)
    report = coterie.audit(tmp_path / "ledger.db")
    assert (report.clients, report.strong_privacy) == (("ann", "bob"), 2)


def test_an_audit_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("round,client\n1,ann\n1,bob\n2\n3\n")
    with pytest.raises(InputError, match=r"2 lines of the log cannot be read; line 4: a round and a client"):
        coterie.audit(log)
    with pytest.raises(InputError, match="cannot read the log"):
        coterie.audit(tmp_path / "missing.csv")
    with pytest.raises(InputError, match="no entries but 0 and 1"):
        coterie.audit([[1, 2]])


def test_a_plan_is_for_a_session_or_for_many_rounds() -> None:
    options: dict[str, Any] = {"collusion": 0.05, "topology": "harary", "active": True}
    assert coterie.plan(200, 0.1, **options) == recommend(200, 0.1, **options)
    assert coterie.plan(60, 0.1, cohort=12, privacy=3) == plan_population(60, 12, [0.1], privacy=3)
    assert coterie.plan(60, [0.1, 0.3], cohort=12, seed=5) == plan_population(60, 12, [0.1, 0.3], seed=5)
    with pytest.raises(ConfigError, match="need a cohort"):
        coterie.plan(60, [0.1, 0.3])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="seed"):
        coterie.plan(60, 0.1, seed=9)  # type: ignore[call-overload]
    assert coterie.plan(60, 0.1, cohort=12, lost=0.1) == plan_population(60, 12, [0.1], lost=0.1)
    assert coterie.plan(60, dropout=0.1) == recommend(60, 0.1)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="a plan needs missing"):
        coterie.plan(60)  # type: ignore[call-overload]
