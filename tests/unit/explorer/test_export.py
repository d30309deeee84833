"""The copy without a server: one file that loads nothing, with what the library computed in it."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from coterie.errors import ConfigError
from coterie.explorer import export
from coterie.explorer.export import SEEDS, export_page, static_page
from coterie.explorer.leaks import STORIES, LeakSettings, play_story
from coterie.explorer.server import read_static


@pytest.fixture(scope="module")
def copy() -> str:
    return static_page()


def test_the_copy_loads_nothing(copy: str) -> None:
    assert not re.search(r"<(?:script|img|iframe|object)[^>]*\bsrc=", copy)
    assert re.findall(r'<link[^>]*href="([^"]{5})', copy) == ["data:"]
    assert "connect-src" not in copy.split("<style>")[0], "so nothing can be asked for"
    assert "default-src 'none'" in copy


def test_the_policy_allows_its_own_script_and_style_only(copy: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', copy)
    assert policy is not None
    for tag in ("script", "style"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", copy, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert "unsafe" not in policy[1]


def test_the_copy_contains_every_story_as_the_library_plays_it(copy: str) -> None:
    (block,) = re.findall(r'<script type="application/json" id="recorded">(.*?)</script>', copy, re.DOTALL)
    assert "<" not in block
    data = json.loads(block)
    assert data["leaks"] == [play_story(LeakSettings(story, seed)) for seed in SEEDS for story in STORIES]
    assert [bool(session["circles"]) for session in data["sessions"]] == [False, True]
    assert len(copy) < 1_000_000


def test_the_copy_is_written_to_a_folder(tmp_path: Path) -> None:
    path = export_page(tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "index.html"
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write to"):
        export_page(tmp_path / "file")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [("explorer.js", b"'</script>'", "cannot be written into one file"), ("index.html", b"<html>", "make explorer")],
)
def test_an_incomplete_page_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, words: str) -> None:
    monkeypatch.setattr(export, "read_static", lambda asked: content if asked == name else read_static(asked))
    monkeypatch.setattr(export, "STORIES", {})
    with pytest.raises(ConfigError, match=words):
        static_page()
