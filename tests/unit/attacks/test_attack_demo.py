"""The demonstration of attacks: digits are recovered under random selection, and not with circles."""

from pathlib import Path

import numpy as np
import pytest
from tests.support.records import record_of
from typer.testing import CliRunner

from coterie.attacks.demo.measure import AttackDemo, writers
from coterie.cli import app
from coterie.errors import ConfigError


def test_each_client_has_one_example_of_each_digit() -> None:
    federation = writers(3)
    assert len(set(np.concatenate(federation.parts).tolist())) == 16 * 9
    for part in federation.parts:
        assert federation.dataset.train_y[part].tolist() == list(range(1, 10))


def test_the_demo_needs_at_least_one_round() -> None:
    with pytest.raises(ConfigError):
        AttackDemo(rounds=0)


def test_a_demo_in_which_the_attacked_client_took_part_in_no_round_is_refused() -> None:
    with pytest.raises(ConfigError, match="took part in none of 2 rounds"):
        AttackDemo(rounds=2, trials=2, steps=1).measure(lambda *_: None)


def test_the_demo_is_reported_on_a_page(tmp_path: Path) -> None:
    out = tmp_path / "talk"
    told = record_of("attack", "demo", "--trials", "1", "--rounds", "24", "--steps", "200", "--out", out)
    errors = [outcome["update_error"][0] for outcome in told["acts"]]
    assert errors[0] < 0.01 < 0.1 < errors[1] < errors[2]
    likeness = [outcome["psnr"][0] for outcome in told["acts"]]
    assert likeness[0] > 30 > 20 > likeness[1] > likeness[2]
    assert told["recognised"]["1"] == 1
    assert told["recognised"]["4"] <= told["recognised"]["2"] < 0.5
    assert [line["outcome"] for line in told["card"]] == ["not eliminated", "reduced", "reduced"]
    page = (out / "attack.html").read_text()
    assert page.count('<img src="data:image/png') == 5 * 9
    assert "Each of 24 rounds was secure" in page


SMALL = ["attack", "demo", "--trials", "2", "--rounds", "3", "--steps", "2"]


def test_json_writes_no_page_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {line["outcome"] for line in record_of(*SMALL)["card"]} == {"not shown"}  # two steps are too few
    assert list(tmp_path.iterdir()) == []
    record_of(*SMALL, "--html", "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert CliRunner().invoke(app, [*SMALL, "--html", "page.html", "--out", "folder"]).exit_code == 2


def test_by_default_a_page_is_written_and_a_table_has_spreads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, SMALL)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "coterie-attack-demo" / "attack.html").exists()
    head = next(line for line in result.output.splitlines() if "PSNR, dB" in line)
    assert head.count("±") == 2
