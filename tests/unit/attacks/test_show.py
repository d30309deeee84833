"""How an attack is shown by a command: who attacks and how comes first, and what was found is told as it is."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.attacks import HOSTILE, FakeAttack, finding

from coterie.attacks.finding import Finding, Watch
from coterie.cli.attack_show import show
from coterie.errors import ConfigError


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_threat_model_comes_first_and_the_card_last(capsys: pytest.CaptureFixture[str]) -> None:
    show(FakeAttack(), None, as_json=False)
    said = flat(capsys.readouterr().out)
    order = ["A fake attack", "who Somebody", "sees Everything.", "the setting", "the table", "! the headline"]
    places = [said.index(text) for text in [*order, "Privacy card", "a remark"]]
    assert places == sorted(places)


def test_text_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Square brackets would be styles to the console."""
    show(FakeAttack(), None, as_json=False)
    said = flat(capsys.readouterr().out)
    for part in "Somebody", "the setting", "the headline", "a remark":
        assert f"{part} {HOSTILE}" in said


def test_the_threat_model_is_there_before_anything_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass(frozen=True)
    class Failing(FakeAttack):
        def play(self, watch: Watch) -> Finding:
            raise ConfigError("cannot be played")

    with pytest.raises(ConfigError, match="cannot be played"):
        show(Failing(), None, as_json=False)
    assert "Somebody" in capsys.readouterr().out


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show(FakeAttack(), None, as_json=True)
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == 0.5
    assert err == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_a_page_is_written(as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "page.html"
    show(FakeAttack(), file, as_json=as_json)
    assert "the strip" in file.read_text("utf-8")
    assert (str(file) in flat(capsys.readouterr().out).replace(" ", "")) is not as_json


def test_a_page_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write to"):
        show(FakeAttack(), tmp_path / "nowhere" / "page.html", as_json=True)


def test_a_finding_needs_no_remarks(capsys: pytest.CaptureFixture[str]) -> None:
    show(FakeAttack(_found=finding(tables=(), remarks=())), None, as_json=False)
    assert "Privacy card" in capsys.readouterr().out
