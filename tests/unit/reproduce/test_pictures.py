"""Attacks that reconstruct pictures, as experiments: they run, report, and their reports can be rewritten."""

from pathlib import Path

import msgspec
import pytest
from tests.support.jobs import experiment_of
from tests.support.reports import checked_report

from coterie.errors import ConfigError
from coterie.reproduce.declarations import FULL, QUICK, Declaration, declared, read_declaration
from coterie.reproduce.pictures import PictureAttack
from coterie.reproduce.runner import Run

NAMES = ("ccesa-inversion", "multi-round-inversion")


def shipped(name: str) -> Declaration:
    return read_declaration(declared()[name])


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_experiments_can_be_run(name: str) -> None:
    declaration = shipped(name)
    assert {QUICK, FULL} <= set(declaration.sizes)
    for size in declaration.sizes:
        experiment_of(PictureAttack, declaration, size).make_attack(0, None)  # its settings are the attack's


def test_pictures_are_reported_and_can_be_rewritten(tmp_path: Path) -> None:
    inversion = shipped("multi-round-inversion")
    small = {"data": "digits", "model": "softmax-regression", "clients": 8, "examples": 1, "privacy": [2, 4]}
    declaration = msgspec.structs.replace(
        inversion,
        settings={"attack": "inversion", "settings": {**small, "budget": {"steps": 60}}},
        sizes={FULL: msgspec.structs.replace(inversion.sizes[FULL], settings={})},
    )
    run = Run("small", declaration, tmp_path, trials=3)
    findings, _ = checked_report(run)
    assert {claim["source"] for claim in findings.numbers["claims"]} == {"ours"}  # these are not the paper's updates
    assert len(findings.numbers["claims"]) == len(inversion.remarks["claims"])
    assert (tmp_path / "pictures.png").stat().st_size > 0


def test_settings_that_the_attack_does_not_have_are_refused() -> None:
    experiment = PictureAttack(attack="faces", settings={"mood": 1})
    with pytest.raises(ConfigError, match="mood"):
        experiment.make_attack(0, None)
