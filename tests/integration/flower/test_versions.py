"""The fast tests of the Flower transport on the oldest and the newest Flower that pyproject.toml accepts.

Each version gets a virtual environment of its own, which finds all other libraries in the environment of these tests.
"""

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[3]
FAST = ["tests/unit/transports/flower", "tests/unit/deployment", "tests/adversaries/test_flower_two_trips.py"]
INSTALLING, TESTING = 300, 1800
"""Seconds."""


@cache
def accepted() -> list[Version]:
    """Return the versions that can be had and that pyproject.toml accepts, the oldest first."""
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["flower"]
    wanted = next(found for found in map(Requirement, declared) if found.name == "flwr")
    listed = pip(sys.executable, "index", "versions", "flwr")
    line = next((line for line in listed.stdout.splitlines() if line.startswith("Available versions:")), "")
    versions = sorted(Version(text) for text in line.removeprefix("Available versions:").split(",") if text.strip())
    return [version for version in versions if version in wanted.specifier]


def pip(python: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run this environment's pip for another one."""
    command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=INSTALLING, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"pip took more than {INSTALLING} s")


def install(folder: Path, version: Version) -> str:
    """Make an environment with this version of Flower, and return its Python."""
    venv.create(folder, with_pip=False)
    python = str(folder / "bin" / "python")
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "zz_shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    wanted = f"flwr=={version}"
    tried = pip(python, "install", "--quiet", wanted)
    if tried.returncode:  # a requirement may be missing where the version itself can be had
        print(f"without its own requirements, because of: {last_line(tried.stderr)}")
        tried = pip(python, "install", "--quiet", "--no-deps", wanted)
    if tried.returncode:
        pytest.skip(f"{wanted} cannot be installed here: {last_line(tried.stderr)}")
    return python


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]


@pytest.mark.parametrize("which", [0, -1], ids=["oldest", "newest"])
def test_the_fast_tests_pass_on_the_versions_at_both_ends(tmp_path: Path, which: int) -> None:
    versions = accepted()
    if not versions:
        pytest.skip("no package index can be reached, so no other version of Flower can be installed")
    version = versions[which]
    python = install(tmp_path / "environment", version)
    paths = os.pathsep.join(map(str, (PROJECT / "src", PROJECT)))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    found = [python, "-c", "import importlib.metadata as m, flwr; print(m.version('flwr'), flwr.__file__)"]
    imported = subprocess.run(found, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert imported[0] == str(version)
    assert Path(imported[1]).is_relative_to(tmp_path)
    command = [python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow and not bench", *FAST]
    tested = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=TESTING, check=False
    )
    print(f"flwr {version}: {last_line(tested.stdout)}")
    assert tested.returncode == 0, tested.stdout[-5000:] + tested.stderr[-2000:]
