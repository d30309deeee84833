"""The public names of the package: their types, their results, and that importing them loads nothing heavy."""

import ast
import doctest
import json
import re
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
from coterie.runs.engine.run import RunResult

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
    with pytest.raises(InputError, match=r"entries 0 and 1\. Here an entry is 2\."):
        coterie.audit([[1, 2]])


LISTS: dict[str, Any] = {
    "of different lengths": [["Ada", "Ben"], ["Ben"]],
    "of equal lengths": [["Ada", "Ben"], ["Ben", "Cy"]],
    "of numbers": [[0, 3], [1, 2]],
    "in a dictionary": {1: ["Ada", "Ben"], 2: ["Ben"]},
    "as sets": [{"Ada", "Ben"}, {"Ben"}],
    "one row": ["Ada", "Ben"],
    "too deep": np.zeros((2, 2, 2)),
}


@pytest.mark.parametrize("source", LISTS.values(), ids=LISTS.keys())
def test_lists_of_clients_are_refused_with_a_file_that_is_read(source: Any, tmp_path: Path) -> None:  # noqa: ANN401
    with pytest.raises(InputError, match="write a JSON file such as") as caught:
        coterie.audit(source)
    (example,) = re.findall(r"\{.*\}", str(caught.value))
    (tmp_path / "log.json").write_text(example)
    report = coterie.audit(tmp_path / "log.json")
    assert [(found.client, found.round) for found in report.exposed] == [("Ada", 2), ("Ben", 2)]


def test_an_audit_of_a_result_names_its_folder() -> None:
    with pytest.raises(InputError, match=r"not RunResult\. Give result\.folder"):
        coterie.audit(RunResult(Path("runs"), None, (), {}))  # type: ignore[arg-type]


def test_audits_and_plans_print_in_short() -> None:
    exposed = str(coterie.audit([[1, 1, 0], [1, 1, 1]]))
    assert exposed.startswith("✗ 1 of 3 clients is exposed: the server can compute its individual update")
    assert "\nclient    since round\nclient 3  2\n" in exposed
    assert re.search(r"^Strong T +1  the size of", exposed, re.MULTILINE)
    session = coterie.plan(200, 0.1, collusion=0.05)
    assert str(session).startswith("A session of 200 clients against an honest-but-curious server: Harary graph\n")
    assert re.search(rf"^threshold +{session.guarantee.threshold}$", str(session), re.MULTILINE)
    population = coterie.plan(120, 0.3, cohort=12)
    assert str(population).startswith("✓ 120 clients in cohorts of 12: T = 4 is recommended\n")
    assert re.search(r"^4 \(recommended\) +4 ", str(population), re.MULTILINE)
    for printed in map(str, (session, population)):
        assert "Plan(" not in printed
        assert "object at" not in printed


def test_printed_findings_escape_names_and_end() -> None:
    """Names come from logs of others; a long history has many exposed clients."""
    names = ("\x1b[31mred", *map(str, range(40)))
    printed = str(coterie.audit(Participation.from_matrix(np.eye(41, dtype=np.uint8), names)))
    assert "\x1b" not in printed
    assert "\\x1b[31mred" in printed
    assert "21 more are in report.exposed." in printed
    assert len(printed.splitlines()) < 50


def test_a_sum_prints_in_short() -> None:
    result = coterie.aggregate({name: np.full(1000, 2.0) for name in ("ann", "bob", "cid")}, clip=1.0)
    assert str(result).startswith("The mean over 3 clients with a total weight of 3 is in result.mean.\n")
    assert str(result).endswith("; 3,000 entries were clipped.")


def test_a_plan_is_for_a_session_or_for_many_rounds() -> None:
    options: dict[str, Any] = {"collusion": 0.05, "topology": "harary", "active": True}
    assert coterie.plan(200, 0.1, **options) == recommend(200, 0.1, **options)
    assert coterie.plan(60, 0.1, cohort=12, privacy=3) == plan_population(60, 12, [0.1], privacy=3)
    assert coterie.plan(60, [0.1, 0.3], cohort=12, seed=5) == plan_population(60, 12, [0.1, 0.3], seed=5)
    numbers = {"clients": np.int64(60), "cohort": np.int64(12), "privacy": np.int64(3)}
    plain = coterie.plan(60, 0.1, cohort=12, privacy=3).as_dict()
    assert json.dumps(coterie.plan(missing=0.1, **numbers).as_dict()) == json.dumps(plain)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="need a cohort"):
        coterie.plan(60, [0.1, 0.3])  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="a plan of a session has no option seed; it has privacy, "):
        coterie.plan(60, 0.1, seed=9)  # type: ignore[call-overload]
    assert coterie.plan(60, 0.1, cohort=12, lost=0.1) == plan_population(60, 12, [0.1], lost=0.1)
    assert coterie.plan(60, dropout=0.1) == recommend(60, 0.1)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="a plan needs missing"):
        coterie.plan(60)  # type: ignore[call-overload]
