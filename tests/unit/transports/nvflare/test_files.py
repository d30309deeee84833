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
from coterie.transports.nvflare.files import digest_files, stop_bytecode
from coterie.transports.nvflare.messages import flatten

KEYS = st.text(".'\"[]{}\\0a\n", max_size=4)
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(0, 1) | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=6,
)
STEP = re.compile(r"""\.('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\[(\d+)\]""")


@given(DOCUMENTS, DOCUMENTS)
@example({"args": {"lr": 0.1}, "args.lr": 0}, {"args": {"lr": 0}, "args.lr": 0.1})
@example({"a.b": 1}, {"a": {"b": 1}})
@example({"a": [1]}, {"a": {"0": 1}})
@example({"a'.'b": 1}, {"a": {"b": 1}})
@example({"a[0]": 1}, {"a": [1]})
@example({"a": {}}, {"a": []})
@example({"a": {}}, {"a": "{}"})
@example({"a": 1}, {"a": True})
def test_different_documents_have_different_entries(one: object, other: object) -> None:
    assume(json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True))
    assert sorted(flatten(one)) != sorted(flatten(other))


@given(DOCUMENTS)
def test_a_document_can_be_built_again_from_its_entries(document: object) -> None:
    entries = sorted(flatten(document))
    assert len({path for path, _ in entries}) == len(entries)
    steps = {path: [match.groups() for match in STEP.finditer(path)] for path, _ in entries}
    assert all("".join(match.group() for match in STEP.finditer(path)) == path for path in steps)
    assert build([(steps[path], value) for path, value in entries]) == document


def build(entries: list[tuple[list[tuple[str | None, ...]], bytes]]) -> object:
    """Build a document of entries with parsed paths: each step is a key in quotes, or a place in a list."""
    if not entries[0][0]:
        return ast.literal_eval(entries[0][1].decode())
    below: dict[tuple[str | None, ...], list[tuple[list[tuple[str | None, ...]], bytes]]] = {}
    for (first, *rest), value in entries:
        below.setdefault(first, []).append((rest, value))
    children = {first: build(inner) for first, inner in below.items()}
    if all(key is not None for key, _ in children):
        return {ast.literal_eval(str(key)): child for (key, _), child in children.items()}
    places = {int(str(place)): child for (_, place), child in children.items()}
    return [places[place] for place in range(len(places))]


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
    assert set(digest_files(one, config[0])) == set(FILES) - {"config/config_fed_client.json"}


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
