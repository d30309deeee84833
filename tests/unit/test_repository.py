"""Workflows, hooks, templates and documents agree with the Makefile and pyproject.toml."""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from coterie import __version__

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
VERSIONS = [found[1] for line in PROJECT["classifiers"] if (found := re.fullmatch(r"Programming .* :: (3\.\d+)", line))]
WORKFLOWS = [".github/workflows/test.yml", ".gitlab-ci.yml"]
TEMPLATES = sorted((ROOT / ".github").rglob("*.md"))
AROUND = [*TEMPLATES, *(ROOT / name for name in [*WORKFLOWS, ".pre-commit-config.yaml", "CITATION.cff"])]


def read(name: str) -> Any:  # noqa: ANN401 - a document has no one type
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with coterie[flower]")
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def make(*arguments: str) -> "subprocess.CompletedProcess[str]":
    inherited = {"ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}  # of the make that runs these tests
    environment = {name: value for name, value in os.environ.items() if name not in inherited}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def commands(*arguments: str) -> list[str]:
    """List what make would run, as if everything was installed."""
    result = make("--dry-run", "--old-file=.venv/.dev", *arguments)
    assert result.returncode == 0, result.stderr
    return [line.strip() for line in result.stdout.splitlines()]


def test_one_package_is_tested_without_the_coverage_gate() -> None:
    (only,) = commands("unit", "ARGS=tests/unit/secagg")
    assert only.startswith(".venv/bin/pytest ")
    assert only.endswith(" tests/unit/secagg")
    assert "--cov" not in only


def test_no_table_is_cut_by_an_empty_line() -> None:
    """The rows after it would be shown as text."""
    for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        rows = re.findall(r"\n\n(\|.*\n.*)", file.read_text(encoding="utf-8"))
        assert all(re.search(r"\n\|[-:| ]+$", row) for row in rows), file


def test_coverage_is_that_of_the_whole_suite_and_has_a_least_share() -> None:
    suite, gate = commands("coverage")
    assert suite.split(" --cov", 1)[0] == commands("unit")[0]
    assert "coverage report" in gate
    assert "--fail-under=95" in gate


def test_everything_a_change_must_pass_is_the_checks_and_the_whole_suite() -> None:
    parts = [*commands("lint"), *commands("unit"), *commands("types", "layers")]
    assert [line for line in commands("test") if line in parts] == parts
    assert (ROOT / ".ci/run").read_text(encoding="utf-8").rstrip().endswith("\nmake test")


@pytest.mark.parametrize("failing", ["", "ruff", "mypy", "lint-imports", "pytest"])
def test_each_check_and_the_tests_decide_whether_a_change_passes(failing: str, tmp_path: Path) -> None:
    """Programs that say their name stand for the real ones."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("ruff", "mypy", "lint-imports", "pytest"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} ran\nexit {int(name == failing)}\n")
        (programs / name).chmod(0o700)
    (programs / "python").touch()  # otherwise make creates an environment
    (tmp_path / ".dev").touch()
    ended = make("test", f"VENV={tmp_path}")
    assert (ended.returncode == 0) is (not failing)
    assert f"{failing or 'pytest'} ran" in ended.stdout


def test_a_warning_ends_the_build_of_the_site() -> None:
    build, place = commands("docs")
    assert "--fail-on-warning" in build
    assert build.endswith(" docs build/docs")
    assert "build/docs/index.html" in place
    assert "build/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_a_commit_is_checked_as_make_does_it() -> None:
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == commands("lint", "types", "layers")
    for hook in repository["hooks"]:
        assert hook["language"] == "system", "nothing is downloaded"
        assert hook["pass_filenames"] is False, "the whole tree is checked, as make does"
        assert re.search(hook["files"], "src/coterie/api.py")
        assert re.search(hook["files"], "pyproject.toml")


def test_python_versions_are_the_same_everywhere() -> None:
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert [f"3.{minor}" for minor in range(30) if f"3.{minor}" in allowed] == VERSIONS
    assert SETTINGS["tool"]["ruff"]["target-version"] == "py" + VERSIONS[0].replace(".", "")
    assert re.findall(r"^PYTHON \?= python(\S+)", MAKEFILE, re.MULTILINE) == [VERSIONS[0]]
    assert re.findall(r"another Python (\S+)-(\S+)\"", MAKEFILE) == [(VERSIONS[0], VERSIONS[-1])]
    github, gitlab = map(read, WORKFLOWS)
    assert github["jobs"]["test"]["strategy"]["matrix"] == {"python": VERSIONS}
    assert gitlab["test"]["parallel"]["matrix"] == [{"VERSION": VERSIONS}]
    (section,) = re.findall(r"^## Python versions\n(.*?)^## ", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    assert sorted(set(re.findall(r"\b3\.\d+", section))) == VERSIONS


def test_workflows_run_all_checks_with_the_python_of_their_row() -> None:
    github, gitlab = map(read, WORKFLOWS)
    (run,) = [step["run"] for step in github["jobs"]["test"]["steps"] if "run" in step]
    assert run == "make test PYTHON=python${{ matrix.python }}"
    assert gitlab["test"]["script"] == ["make test PYTHON=python$VERSION"]
    assert github["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("file", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *AROUND], ids=lambda file: file.name)
def test_make_has_every_target_that_documents_name(file: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    text = file.read_text(encoding="utf-8")
    asked = re.findall(r"(?:^|`|- |run: )make((?: [a-z]+\b(?!=))+)", text, re.MULTILINE)
    assert {target for line in asked for target in line.split()} <= targets


@pytest.mark.parametrize("path", sorted(set(re.findall(r"ARGS=\"?(?:-[^\"]* )?(tests/[\w/.]+)", CONTRIBUTING))))
def test_examples_for_contributors_name_tests_that_exist(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("file", AROUND, ids=lambda file: file.name)
def test_no_host_and_no_path_of_a_machine_is_named(file: Path) -> None:
    assert not re.search(r"://|/(home|root|work|usr|tmp)/", file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.stem)
def test_templates_name_files_that_exist(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert all((ROOT / name).is_file() for name in re.findall(r"\b[A-Z]+\.md\b", text))
    for quoted in re.findall(r"\"([A-Z][\w ]+)\"", text):  # a heading
        documents = [(ROOT / name).read_text(encoding="utf-8") for name in re.findall(r"\b[A-Z]+\.md\b", text)]
        assert any(re.search(rf"^## \[?{quoted}\]?$", document, re.MULTILINE) for document in documents), quoted
    if file.parent.name == "ISSUE_TEMPLATE":
        assert re.match(r"---\nname: \S.*\nabout: \S.*\n---\n\n", text)


def test_citation_is_of_this_version_and_well_formed() -> None:
    citation = read("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert (citation["title"].lower(), citation["type"]) == (PROJECT["name"], "software")
    assert [citation[key] for key in ("abstract", "license", "keywords")] == [
        PROJECT[key] for key in ("description", "license", "keywords")
    ]
    assert isinstance(citation["message"], str)
    assert citation["authors"] == [{"name": "The Coterie authors"}]
    for reference in citation["references"]:
        assert set(reference) == {"type", "title", "year", "authors"}
        assert isinstance(reference["year"], int)
        assert all(set(author) in ({"family-names"}, {"name"}) for author in reference["authors"])


def test_papers_are_cited_as_the_documents_name_them() -> None:
    documents = [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]
    paragraphs = [part for file in documents for part in file.read_text(encoding="utf-8").split("\n\n")]
    for reference in read("CITATION.cff")["references"]:
        names = [author["family-names"] for author in reference["authors"] if "family-names" in author]
        known = [*names, reference["title"], str(reference["year"])]
        assert any(all(word in paragraph for word in known) for paragraph in paragraphs), known


PINS = {
    canonicalize_name(name): pinned
    for name, pinned in re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
}


def requirements(version: str) -> Iterator[tuple[str, Requirement]]:
    """Walk through what the development set asks for under a version of Python, as far as it is installed here."""
    running = {name: str(value) for name, value in default_environment().items()}
    environment = {**running, "python_version": version, "python_full_version": f"{version}.0"}
    waiting, seen = [Requirement("coterie[dev]")], set[str]()
    while waiting:
        parent = waiting.pop()
        if str(parent) in seen:
            continue
        seen.add(str(parent))
        try:
            asked = distribution(parent.name).requires or []
        except PackageNotFoundError:
            continue
        for needed in map(Requirement, asked):
            contexts = [{**environment, "extra": extra} for extra in ("", *parent.extras)]
            if needed.marker is None or any(needed.marker.evaluate(context) for context in contexts):
                yield parent.name, needed
                waiting.append(needed)


@pytest.mark.parametrize("version", VERSIONS)
def test_pins_admit_every_python_version(version: str) -> None:
    """By what packages say of themselves; whether builds of them exist is shown by installing them."""
    found = list(requirements(version))
    assert len({needed.name for _, needed in found}) > len(PROJECT["dependencies"])
    names = {canonicalize_name(needed.name): needed for _, needed in found}
    conflicts = [
        (parent, str(needed), pinned)
        for parent, needed in found
        if (pinned := PINS.get(canonicalize_name(needed.name)))
        and not needed.specifier.contains(pinned, prereleases=True)
    ]
    assert conflicts == []
    refused = {}
    for name in names:
        try:
            asked = distribution(name).metadata.get_all("Requires-Python") or []
        except PackageNotFoundError:
            continue
        if any(Version(f"{version}.0") not in SpecifierSet(python) for python in asked):
            refused[name] = asked
    assert refused == {}
    here = {canonicalize_name(needed.name) for _, needed in requirements(default_environment()["python_version"])}
    assert set(names) - set(PINS) <= here, "only what this version needs too may lack a pin"
