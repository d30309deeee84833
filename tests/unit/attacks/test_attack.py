"""The interface of attacks: the threat model comes first, and terminal, page and JSON have the same findings."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from coterie.attacks.attack import Adversary, OnProgress, make_record, run_attack
from coterie.cli.attack_show import show
from coterie.errors import ConfigError
from coterie.reports.charts import Figure
from coterie.reports.findings import CardLine, Effect, Findings, Plot, Strip, Table
from coterie.reports.html import findings_page
from coterie.reports.words import Level

EVIL = "<b>[red]x[/red]</b>"  # neither a page nor a terminal may interpret it as markup


@dataclass(frozen=True)
class Guess:
    """An attack that guesses."""

    title: ClassVar[str] = "Guessing"
    tries: int = 3

    @property
    def threat(self) -> Adversary:
        return Adversary("anybody", "nothing", f"the rules {EVIL}", "guess")

    def measure(self, watch: OnProgress) -> int:
        watch("guessing", 1.0)
        return 0

    def report(self, right: int) -> Findings:
        bars = Figure([{"type": "bar", "x": [1], "y": [2]}], {}, 200, "a bar")
        return Findings(
            level=Level.SAFE,
            headlines=["Nothing was guessed."],
            about=f"{self.tries} guesses, at {EVIL}",
            numbers={"right": right, "policies": {"random": {"median_error": 1.0}}},
            tables=[Table("Guesses", ["who", "right"], [["anybody", "0"]], "none at all")],
            card=[CardLine("guess", "anything", Effect.ELIMINATED, "there is nothing to see")],
            plots=[Plot("Guesses drawn", bars)],
            pictures=[Strip("Guesses seen", [("truth", np.zeros((2, 4, 4))), ("guess", np.ones((2, 4, 4, 3)))])],
            remarks=["Not much of an attack."],
        )


def found() -> Findings:
    return run_attack(Guess(), lambda *_: None)


def test_the_record_is_plain_json_in_a_fixed_order() -> None:
    record = json.loads(json.dumps(make_record("guess", Guess(5), found())))
    assert list(record) == [
        "attack", "threat_model", "settings", "setting", "right", "policies", "verdict", "remarks", "card",
    ]  # fmt: skip
    assert record["settings"] == {"tries": 5}
    assert record["card"][0]["outcome"] == "eliminated"
    assert record["policies"]["random"]["median_error"] == 1


def test_a_page_has_all_findings_and_escapes_them() -> None:
    page = findings_page("Guessing", "Attack", Guess().threat.facts(), found())
    page = page.partition("<noscript>")[0]  # the scripts come after it
    for said in "Nothing was guessed.", "Guesses drawn", "Guesses seen", "Privacy card", "Not much of an attack.":
        assert said in page
    assert "<b>[red]" not in page
    assert page.count("data:image/png;base64,") == 4
    assert page.index("Who attacks") < page.index("Nothing was guessed.</h1>")
    assert not re.search(r'(?:src|href)="(?!data:)', page)


def test_the_terminal_shows_the_threat_first(capsys: pytest.CaptureFixture[str]) -> None:
    show("guess", Guess(), None, as_json=False)
    said = capsys.readouterr().out
    order = [said.index(words) for words in ("anybody", "3 guesses", "Nothing was guessed", "Privacy card")]
    assert order == sorted(order)
    assert "[red]x[/red]" in said


def test_json_and_a_page_are_written_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    show("guess", Guess(), page, as_json=True)
    assert json.loads(capsys.readouterr().out)["attack"] == "guess"
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_page_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    class Never(Guess):
        def measure(self, watch: OnProgress) -> int:
            raise AssertionError("the attack was measured")

    with pytest.raises(ConfigError, match="cannot write"):
        show("guess", Never(), tmp_path / "missing" / "page.html", as_json=True)
    with pytest.raises(ConfigError, match="cannot write"):
        show("guess", Never(), tmp_path, as_json=True)


def test_an_attack_that_fails_writes_no_page_and_changes_no_old_one(tmp_path: Path) -> None:
    class Fails(Guess):
        def measure(self, watch: OnProgress) -> int:
            raise ConfigError("no such data")

    old = tmp_path / "old.html"
    old.write_text("an old page")
    for page in tmp_path / "new.html", old:
        with pytest.raises(ConfigError, match="no such data"):
            show("guess", Fails(), page, as_json=True)
    assert list(tmp_path.iterdir()) == [old]
    assert old.read_text() == "an old page"


@pytest.mark.parametrize("outcome", Effect)
def test_every_outcome_has_a_level(outcome: Effect) -> None:
    assert isinstance(outcome.level, Level)
