"""The installed wheel, with the oldest and with the newest dependencies that it declares."""

import json
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DECLARED: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
OLDEST = [requirement.replace(">=", "==") for requirement in DECLARED]
COMMANDS = [
    *("run", "resume", "init", "demo", "plan", "audit", "explore", "reproduce"),
    *("bench", "bench secagg"),
]


def install(python: Path, *what: str) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *what], check=True, timeout=600)


@pytest.fixture(scope="module", params=[OLDEST, []], ids=["oldest", "newest"])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment that has only the package and its dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    found = folder / "bin" / "python"
    install(found, str(ROOT), *request.param)
    return found


def coterie(python: Path, folder: Path, *arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [str(python), "-m", "coterie", *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_the_oldest_versions_are_exact() -> None:
    assert all("==" in requirement for requirement in OLDEST)


@pytest.mark.skipif(sys.platform == "win32", reason="an environment has other folders there")
def test_the_command_line_works(python: Path, tmp_path: Path) -> None:
    assert "coterie" in coterie(python, tmp_path, "--version")
    for command in COMMANDS:
        assert "Usage" in coterie(python, tmp_path, *command.split(), "--help")
    session = json.loads(coterie(python, tmp_path, "plan", "--clients", "100", "--dropout", "0.1", "--json"))
    assert session["clients"] == 100
    assert "120 clients" in coterie(python, tmp_path, "plan", "--population=120", "--cohort=12", "--dropout=0.2")
    mixed = coterie(python, tmp_path, "plan", "--clients=100", "--dropout=0.1", "--cohort=3", status=2)
    assert "--cohort can only be given with --population" in mixed
    assert "Exact" in coterie(python, tmp_path, "demo", "--clients=30", "--length=500")
    (tmp_path / "log.csv").write_text("round,client\n1,a\n1,b\n2,a\n2,b\n")
    assert "No client can be singled out by adding and subtracting sums" in coterie(
        python, tmp_path, "audit", "log.csv"
    )
    assert json.loads(coterie(python, tmp_path, "bench", "secagg", "--clients=10", "--length=100", "--json"))
    assert "[cohort]" in coterie(python, tmp_path, "init", "-")
    assert "Written: site/index.html" in coterie(python, tmp_path, "explore", "--export=site")
    assert f"pip install '{ROOT}[train]'" in coterie(python, tmp_path, "run", status=2)


def test_ledger_and_aggregation_work(python: Path, tmp_path: Path) -> None:
    program = """
import numpy as np, coterie
from coterie.cohorts.ledger import Ledger
print(coterie.aggregate({name: np.ones(3) for name in "abc"}, clip=2.0).total_weight)
with Ledger.open("ledger.sqlite") as ledger:
    ledger.reveal(1, ["a", "b"], promised=2)
    ledger.verify()
"""
    done = subprocess.run([str(python), "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"
