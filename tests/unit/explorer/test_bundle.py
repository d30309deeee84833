"""The page in the package is built from its sources, and is small."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "frontend"
STATIC = ROOT / "src" / "coterie" / "explorer" / "static"
FILES = {"index.html", "explorer.js", "explorer.css", "icon.svg", "fonts-license.txt"}


def test_the_page_was_built_from_these_sources() -> None:
    """The digest that ``frontend/build.mjs`` writes, computed again."""
    digest = hashlib.sha256()
    for path in sorted((SOURCES / "src").iterdir(), key=lambda path: path.name):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for name in ("build.mjs", "package-lock.json"):
        digest.update((SOURCES / name).read_bytes() + b"\0")
    first = (STATIC / "explorer.js").read_text("utf-8").splitlines()[0]
    assert first.startswith(f"/* sources {digest.hexdigest()} */"), "build it again: make explorer"


def test_building_the_page_again_changes_nothing(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (SOURCES / "node_modules" / "esbuild").is_dir():
        pytest.skip("the packages of frontend/ are not installed: make explorer")
    subprocess.run([node, "build.mjs", str(tmp_path)], cwd=SOURCES, check=True)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (STATIC / name).read_bytes(), name


def test_the_built_page_is_small_and_complete() -> None:
    assert {path.name for path in STATIC.iterdir()} == FILES
    assert sum(path.stat().st_size for path in STATIC.iterdir()) < 1_000_000


def test_the_built_page_has_no_external_content_and_no_inline_script() -> None:
    for name in ("explorer.js", "explorer.css", "index.html"):
        text = (STATIC / name).read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|\burl\((?!\"?data:)", text), name
    page = (STATIC / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page)
    script = (STATIC / "explorer.js").read_text("utf-8")
    assert not re.search(r"\binnerHTML\b|\beval\(|new Function|document\.write|insertAdjacentHTML", script)


def test_the_lock_file_pins_everything_and_names_no_registry() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text("utf-8"))
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert packages
    assert all("resolved" not in entry and "integrity" in entry for entry in packages.values())
    wanted = json.loads((SOURCES / "package.json").read_text("utf-8"))["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
