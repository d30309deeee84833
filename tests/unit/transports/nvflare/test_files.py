"""What members of a session compare of an app: its configuration, and all files of its folder."""

import ast
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from coterie.errors import ConfigError
from coterie.transports.nvflare.files import digest_files, stop_bytecode, stop_imports_from_workspace
from coterie.transports.nvflare.messages import flatten

KEYS = st.text(".'\"[]{}\\0a\n", max_size=4)
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(0, 1) | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=6,
)
STEP = re.compile(r"""\.(\d+)('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\[(\d+)\]""")


@given(DOCUMENTS, DOCUMENTS)
@example({"args": {"lr": 0.1}, "args.lr": 0}, {"args": {"lr": 0}, "args.lr": 0.1})
@example({"a.b": 1}, {"a": {"b": 1}})
@example({"a": [1]}, {"a": {"0": 1}})
@example({"a'.'b": 1}, {"a": {"b": 1}})
@example({"a[0]": 1}, {"a": [1]})
@example({"a": {}}, {"a": []})
@example({"a": {}}, {"a": "{}"})
@example({"a": 1}, {"a": True})
@example({"a": 1, "b": 0}, {"b": 0, "a": 1})
def test_different_documents_have_different_entries(one: object, other: object) -> None:
    assume(json.dumps(one) != json.dumps(other))
    assert sorted(flatten(one)) != sorted(flatten(other))


@given(DOCUMENTS)
def test_a_document_can_be_built_again_from_its_entries(document: object) -> None:
    entries = sorted(flatten(document))
    assert len({path for path, _ in entries}) == len(entries)
    steps = {path: [match.groups() for match in STEP.finditer(path)] for path, _ in entries}
    assert all("".join(match.group() for match in STEP.finditer(path)) == path for path in steps)
    built = build([(steps[path], value) for path, value in entries])
    assert (built, json.dumps(built)) == (document, json.dumps(document))


def build(entries: list[tuple[list[tuple[str | None, ...]], bytes]]) -> object:
    """Build a document of entries with parsed paths: each step is a key with its place, or a place in a list."""
    if not entries[0][0]:
        return ast.literal_eval(entries[0][1].decode())
    below: dict[tuple[str | None, ...], list[tuple[list[tuple[str | None, ...]], bytes]]] = {}
    for (first, *rest), value in entries:
        below.setdefault(first, []).append((rest, value))
    children = {(int(str(place or index)), key): build(inner) for (place, key, index), inner in below.items()}
    ordered = sorted(children)
    assert [place for place, _ in ordered] == list(range(len(children)))
    if all(key is not None for _, key in ordered):
        return {ast.literal_eval(str(key)): children[place, key] for place, key in ordered}
    return [children[one] for one in ordered]


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / "config" / "config_fed_client.json"


FILES = {
    "config/config_fed_client.json": b"{}",
    "config/config_fed_server.json": b"{}",
    "config/bundle/train.yaml": b"lr: 0.1",
    "custom/client.py": b"RATE = 0.1",
    "custom/fast.so": b"\x7fELF",
    "data/split.csv": b"1,2",
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(FILES)), content=st.binary(max_size=8))
def test_every_file_counts_except_for_the_configuration(
    name: str, content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    one, other = (tmp_path_factory.mktemp("app") for _ in range(2))
    config = fill(one, FILES), fill(other, {**FILES, name: content})
    is_same = content == FILES[name] or name == "config/config_fed_client.json"
    assert (digest_files(one, config[0]) == digest_files(other, config[1])) == is_same
    folders = {"config/", "config/bundle/", "custom/", "data/"}
    assert set(digest_files(one, config[0])) == set(FILES) - {"config/config_fed_client.json"} | folders


@pytest.mark.parametrize(
    "name", ["custom/__pycache__/client.cpython-311.pyc", "custom/client.pyc", "config/a/b.pyc", "custom/CLIENT.PYC"]
)
def test_an_app_with_bytecode_is_refused(name: str, tmp_path: Path) -> None:
    config = fill(tmp_path, {**FILES, name: b""})
    with pytest.raises(ConfigError, match=r"has bytecode.*PYTHONDONTWRITEBYTECODE=1"):
        digest_files(tmp_path, config)


def test_a_site_writes_no_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    stop_bytecode()
    assert sys.dont_write_bytecode
    assert os.environ["PYTHONDONTWRITEBYTECODE"] == "1"


def test_a_process_in_a_workspace_finds_no_modules_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/other", str(tmp_path / "local" / "custom")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/local/custom", str(tmp_path), ""]))
    stop_imports_from_workspace()
    assert len(sys.path) == 4  # it is not a workspace
    for folder in ("local", "startup"):
        (tmp_path / folder).mkdir()
    stop_imports_from_workspace()
    assert sys.path == ["/other", str(tmp_path / "local" / "custom")]
    assert os.environ["PYTHONPATH"] == "/local/custom"
