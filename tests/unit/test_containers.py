"""The container files: checked as far as that is possible without building them."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples" / "flower" / "containers").glob("*.Containerfile"))
INSTRUCTIONS = {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "VOLUME", "EXPOSE", "USER", "ENTRYPOINT"}


def instructions(file: Path) -> list[tuple[str, str]]:
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined)]


def of(file: Path, name: str) -> list[str]:
    return [rest for found, rest in instructions(file) if found == name]


def test_there_is_one_container_file_for_each_role() -> None:
    assert [file.name for file in FILES] == ["superlink.Containerfile", "supernode.Containerfile"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_container_files_use_known_instructions_and_an_unprivileged_user(file: Path) -> None:
    found = instructions(file)
    assert {name for name, _ in found} <= INSTRUCTIONS
    assert found[0] == ("FROM", "python:3.11-slim")
    assert [name for name, _ in found][-1] == "ENTRYPOINT"
    (user,) = of(file, "USER")
    assert f"useradd --uid 10001 --create-home {user}" in of(file, "RUN")[0]
    assert user != "root"
    names = [name for name, _ in found]
    assert names.index("USER") > max(place for place, name in enumerate(names) if name == "RUN")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_copied_exists_and_is_no_key(file: Path) -> None:
    sources = [source for rest in of(file, "COPY") for source in rest.split()[:-1]]
    assert sources
    assert all((ROOT / source).exists() for source in sources)
    assert not any("key" in source or source in (".", "./") for source in sources)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_state_is_in_the_volume_and_extras_are_declared(file: Path) -> None:
    (volume,) = (json.loads(rest) for rest in of(file, "VOLUME"))
    environment = dict(pair.split("=") for rest in of(file, "ENV") for pair in rest.split())
    assert volume == [environment["COTERIE_HOME"]]
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', of(file, "RUN")[-1])
    declared = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", declared, re.MULTILINE) for extra in extras.split(","))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_programs_have_the_options_they_are_given(file: Path) -> None:
    program, *given = json.loads(of(file, "ENTRYPOINT")[0])
    path = shutil.which(program, path=str(Path(sys.executable).parent))
    assert path is not None
    shown = subprocess.run([path, "--help"], capture_output=True, text=True, check=True, timeout=120).stdout
    usage = "\n".join(
        line for line in file.read_text().splitlines() if line.startswith("#") and "podman build" not in line
    )
    used = set(re.findall(r"(--[a-z][a-z-]+)", " ".join(given) + usage))
    assert used
    assert all(re.search(rf"(?<![\w-]){option}(?![\w-])", shown) for option in used), used
