"""Inversion of updates: exact for a single example, and both ways to attack the mean of a circle."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.records import record_of

from coterie.attacks.attack import run_attack
from coterie.attacks.federation import Federation, make_selections, shaped
from coterie.attacks.inversion.descent import Budget, exact_input, invert
from coterie.attacks.inversion.measure import ALONE, TARGET, TOGETHER, Inversion, InversionTarget, Origin
from coterie.attacks.similarity import psnr
from coterie.errors import ConfigError, InputError
from coterie.training.local import LocalSGD


def target(seed: int, examples: int = 1, model: str = "softmax-regression") -> InversionTarget:
    return InversionTarget.prepare(Federation.deal("digits", model, 8, seed, examples=examples), 0)


@pytest.mark.parametrize("model", ["softmax-regression", "mlp"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_example_is_in_the_update_of_a_first_linear_layer_exactly(model: str, seed: int) -> None:
    set_up = target(seed, model=model)
    weights, bias, *_ = shaped(set_up.update([TARGET]), set_up.state)
    found = exact_input(weights, bias)
    planted = set_up.federation.dataset.train_x[set_up.federation.parts[TARGET][0]]
    # The digits have 17 levels of grey: with errors below half a level, rounding gives the exact picture.
    assert (np.round(16 * found) / 16).reshape(planted.shape) == pytest.approx(planted, abs=1e-6)


def test_no_example_is_in_an_update_that_does_not_move() -> None:
    with pytest.raises(InputError):
        exact_input(np.zeros((3, 4)), np.zeros(3))


def test_descent_finds_the_same_example() -> None:
    set_up = target(0)
    row = Origin(1, ALONE)
    drawn = set_up.recover(row, set_up.update([TARGET]), Budget(200))
    assert psnr(set_up.pictures([TARGET]), drawn)[0] > 40


def test_from_a_circle_of_two_both_examples_are_recovered_only_together() -> None:
    """If the mean is taken for one client's update, the pictures are much worse."""
    set_up = target(1)
    circle = set_up.circle(2)
    update, original = set_up.update(circle), set_up.pictures([TARGET])
    alone, together = (
        psnr(original, set_up.recover(Origin(2, way), update, Budget(300)))[0] for way in (ALONE, TOGETHER)
    )
    assert together > 35 > alone


def test_a_circles_mean_does_not_reveal_whose_example_is_whose() -> None:
    """The mean is the same if members exchange their examples, so no attack can attribute them."""
    set_up = target(2, examples=4)
    circle = set_up.circle(4)
    parts = list(set_up.federation.parts)
    for one, other in zip(circle, reversed(circle), strict=True):
        parts[one] = set_up.federation.parts[other]
    exchanged = replace(set_up, federation=replace(set_up.federation, parts=parts))
    work = LocalSGD(0.01, batch_size=4, shuffle=False)

    def mean(of: InversionTarget) -> "np.typing.NDArray[np.float64]":
        return np.asarray(of.federation.updates(of.state, 1, work, circle).mean(0))

    assert mean(exchanged) == pytest.approx(mean(set_up), abs=1e-12)


def test_a_gradient_that_does_not_fit_the_model_is_refused() -> None:
    set_up = target(0)
    network, shape = set_up.federation.problem.model, set_up.federation.dataset.input_shape
    labels = np.zeros(1, np.int64)
    with pytest.raises(InputError):
        invert(network, [np.zeros((2, 2))], labels, shape, set_up.scale, Budget(1), 0)
    with pytest.raises(InputError):
        invert(network, [np.zeros_like(array) for array in set_up.state], labels, shape, set_up.scale, Budget(1), 0)


def test_circles_are_those_of_the_policy() -> None:
    set_up = target(5)
    (selection,) = make_selections(("multi-round",), (4,), 8, 4, 5, naive=False)
    assert sorted(set_up.circle(4)) in [sorted(circle) for circle in selection.mates]


@pytest.mark.parametrize("change", [{"trials": 0}, {"privacy": ()}, {"privacy": (17,)}, {"examples": 0}])
def test_impossible_settings_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        replace(Inversion(), **change)  # type: ignore[arg-type]


def test_a_budget_without_steps_is_refused() -> None:
    with pytest.raises(ConfigError):
        Budget(0)


def test_the_finding_follows_from_the_numbers() -> None:
    attack = Inversion(examples=1, privacy=(2,), trials=2, steps=120)
    finding = run_attack(attack, lambda _doing, _share: None)
    rows = finding.numbers["rows"]
    assert rows["T = 1"]["recognised"]["mean"] == 1
    assert finding.card[0].outcome == "not eliminated"
    assert finding.card[1].outcome == "not eliminated"  # with one example each, both of a circle are recovered
    assert finding.level == "danger"
    assert "100% of a client's pictures" in finding.headline


def test_an_attack_that_fails_on_a_single_client_shows_nothing_about_circles() -> None:
    finding = run_attack(Inversion(examples=8, privacy=(2,), trials=2, steps=1), lambda _doing, _share: None)
    assert finding.level == "nothing"
    assert {line.outcome for line in finding.card} == {"not shown"}


def test_the_command(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ["--examples", "1", "--trials", "2", "--steps", "20", "-T", "2"]
    told = record_of("attack", "inversion", *options, "--html", page)
    assert set(told["rows"]) == {
        "T = 1", "T = 2, alone", "T = 2, together",
        "guess: mean picture of the label", "guess: another picture of the label",
    }  # fmt: skip
    assert told["unknown_pixels"] == {"1": 64, "2": 128}
    assert "data:image/png" in page.read_text()
