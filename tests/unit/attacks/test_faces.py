"""Model inversion: a planted picture is recovered exactly, and the command reports what a model reveals."""

from pathlib import Path

import numpy as np
import pytest
from tests.support.records import record_of

from coterie.attacks.faces.measure import Faces, draw, invert_class
from coterie.errors import ConfigError


@pytest.mark.parametrize("label", [0, 3])
def test_a_planted_picture_is_recovered_exactly(label: int) -> None:
    """If one row of weights is a picture and the others are zero, the gradient has the direction of the picture."""
    face = np.random.default_rng(label).uniform(-1, 1, 64)
    face /= np.abs(face).max()
    weights = np.zeros((5, 64))
    weights[label] = face
    assert invert_class(weights, np.zeros(5), label) == pytest.approx(0.5 + 0.5 * face)


def test_a_fully_confident_model_can_still_be_inverted() -> None:
    weights = 1e6 * np.eye(3, 4)
    assert invert_class(weights, np.array([1e9, 0, 0]), 0)[0] == 1


def test_a_model_without_weights_reveals_nothing() -> None:
    assert (draw([np.zeros((3, 64)), np.zeros(3)], 0, np.random.default_rng(0).random((4, 8, 8))) < 1).all()


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"connection": 0.0}, {"connection": 1.5}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Faces(**wrong)  # type: ignore[arg-type]


def test_the_command_reports_the_attack_as_json_and_on_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ["--rounds", "2", "--epochs", "3", "--trials", "2"]
    told = record_of("attack", "faces", *options, "--html", page)
    outcomes = {line["against"]: line["outcome"] for line in told["card"]}
    assert outcomes["secure aggregation (SA), an eavesdropper"] == "eliminated"
    assert outcomes["plain averaging, an eavesdropper"] == "not eliminated"
    assert told["chance"] == pytest.approx(0.1)
    assert "data:image/png" in page.read_text()
