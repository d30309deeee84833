"""A crafted model: planted examples are recovered exactly from any sum, and each defence is tested off and on."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.records import record_of
from torch import nn
from torch.nn.utils.parametrizations import orthogonal

from coterie.attacks.attack import run_attack
from coterie.attacks.imprint.layer import Imprinter, craft, examples_in, network
from coterie.attacks.imprint.measure import Imprint, compare, refused_for_architecture, refused_for_length
from coterie.errors import ConfigError, InputError, PeerProtocolError
from coterie.training.architecture import architecture, check_architecture
from coterie.training.flatten import ModelArrays
from coterie.training.models import build

SMALL = Imprint(cohorts=(4,), bins=(256,), examples=4, privacy=2, noise=(1e-9, 1.0), trials=1)


def gradient_sum(model: torch.nn.Module, x: np.ndarray, y: np.ndarray) -> ModelArrays:
    loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y), reduction="sum")
    return [gradient.numpy() for gradient in torch.autograd.grad(loss, list(model.parameters()))]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40))
def test_examples_alone_in_their_bins_are_recovered_from_a_sum_exactly(seed: int, size: int) -> None:
    """Each planted example has a bin of its own; the sum reveals all, whichever clients they belong to."""
    rng = np.random.default_rng(seed)
    public = rng.random((400, 1, 4, 4))
    imprinter = Imprinter.of(public, 100, 10, rng)
    values = public.reshape(400, -1) @ imprinter.direction
    bins = np.searchsorted(imprinter.ends, values)
    _, firsts = np.unique(bins, return_index=True)
    planted = public[rng.permutation(firsts)[:size]]
    model = network((1, 4, 4), 100, 10).double()
    craft(model, imprinter)
    found = examples_in(gradient_sum(model, planted, rng.integers(0, 10, len(planted))), least=1e-12)
    distances = np.abs(planted.reshape(len(planted), 1, -1) - found).max(-1).min(1)
    assert distances.max() < 1e-6


def test_a_bin_with_two_examples_gives_a_mixture() -> None:
    rng = np.random.default_rng(0)
    imprinter = Imprinter(np.ones(4), np.array([-1.0, 10.0]), rng.standard_normal(3))
    model = network((4,), 2, 3).double()
    craft(model, imprinter)
    pair = rng.random((2, 4))
    (mixture,) = examples_in(gradient_sum(model, pair, np.array([0, 0])))
    # Of one label, with nearly the same gradient: a mean, with weights that add up to 1.
    weight = (mixture - pair[1]) @ (pair[0] - pair[1]) / np.sum((pair[0] - pair[1]) ** 2)
    assert mixture == pytest.approx(weight * pair[0] + (1 - weight) * pair[1])
    assert 0 < weight < 1


def test_a_real_session_over_circles_reveals_examples_unless_noise_is_added() -> None:
    played = SMALL.round(0, 4, 256)
    assert played.bare.exact >= 0.7 * played.expected > 8
    assert played.guess.exact == 0
    assert played.noisy[1e-9].exact == played.bare.exact
    assert played.noisy[1.0].exact == 0
    assert played.noisy[1.0].psnr < played.guess.psnr


@pytest.mark.parametrize("noise", [1e200, 1e308])
def test_extreme_noise_hides_everything_and_is_still_reported(noise: float) -> None:
    told = run_attack(replace(SMALL, noise=(noise,)), lambda *_: None)
    assert told.numbers["noise"] == {f"{noise:g}": 0}
    assert told.card[-1].why.startswith("0% recovered exactly")


def test_if_nothing_was_found_originals_are_compared_with_a_blank_picture() -> None:
    truth = np.full((3, 4, 4), 0.5)
    caught = compare(truth, np.empty((0, 4, 4)))
    assert (caught.exact, caught.share) == (0, 0)
    assert caught.nearest.shape == truth.shape
    assert not caught.nearest.any()


def test_pins_refuse_an_inserted_layer_and_nothing_else() -> None:
    honest, inserted = build("softmax-regression", (1, 8, 8), 10, 0), network((1, 8, 8), 64, 10)
    assert refused_for_architecture(inserted, honest)
    assert refused_for_length(inserted, honest)
    wide = network((1, 8, 8), 64, 10)
    craft(inserted, Imprinter.of(np.random.default_rng(0).random((90, 1, 8, 8)), 64, 10, np.random.default_rng(0)))
    assert not refused_for_architecture(inserted, wide)
    assert not refused_for_length(inserted, wide)


def test_an_architecture_is_pinned_by_its_digest() -> None:
    agreed = architecture(build("mlp", (1, 8, 8), 10, 0))
    assert architecture(build("mlp", (1, 8, 8), 10, 1)) == agreed  # other numbers, the same shape
    check_architecture(build("mlp", (1, 8, 8), 10, 2), agreed)
    for other in build("fcn", (1, 8, 8), 10, 0), build("mlp", (1, 8, 8), 9, 0), build("mlp", (1, 4, 16), 9, 0):
        with pytest.raises(PeerProtocolError):
            check_architecture(other, agreed)


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def changed(change: Callable[[nn.Sequential], object]) -> nn.Sequential:
    model = small()
    change(model)
    return model


class Tanh(nn.ReLU):
    """A ReLU with the ``repr`` of another activation."""

    def extra_repr(self) -> str:
        return ""


@pytest.mark.parametrize(
    ("agreed", "sent"),
    [
        (small(), changed(lambda model: setattr(model, "1", Tanh()))),
        (small(), changed(lambda model: setattr(model[1], "forward", torch.relu))),
        (small(), changed(lambda model: model[0].register_forward_hook(lambda *_: None))),
        (small(), changed(lambda model: next(model.parameters()).register_hook(lambda gradient: 0 * gradient))),  # type: ignore[no-untyped-call]
        (small(), changed(lambda model: model[0].requires_grad_(requires_grad=False))),
        (small(), changed(lambda model: setattr(model[2], "weight", model[0].weight))),
        (small(), changed(lambda model: model[0].register_buffer("mask", torch.ones(8), persistent=False))),
        (nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 4)),
        (nn.TransformerEncoderLayer(8, 2, 8), nn.TransformerEncoderLayer(8, 2, 8, activation=nn.functional.gelu)),
        (nn.RNN(3, 4), nn.RNN(3, 4, nonlinearity="relu")),
        (orthogonal(nn.Linear(4, 4)), orthogonal(nn.Linear(4, 4), orthogonal_map="cayley")),
        (nn.AvgPool2d(2), nn.AvgPool2d(2, ceil_mode=True)),
    ],
)
def test_a_pin_detects_changes_that_repr_does_not_show(agreed: nn.Module, sent: nn.Module) -> None:
    assert repr(agreed) == repr(sent)
    check_architecture(copy.deepcopy(agreed).eval(), architecture(agreed))
    with pytest.raises(PeerProtocolError):
        check_architecture(sent, architecture(agreed))


def test_layers_that_do_not_fit_are_refused() -> None:
    imprinter = Imprinter.of(np.random.default_rng(0).random((9, 4)), 8, 3, np.random.default_rng(0))
    with pytest.raises(InputError):
        craft(network((4,), 9, 3), imprinter)
    with pytest.raises(InputError):
        Imprinter.of(np.zeros((9, 4)), 1, 3, np.random.default_rng(0))


@pytest.mark.parametrize("change", [{"cohorts": (5,)}, {"bins": (1,)}, {"noise": (0.0,)}, {"trials": 0}])
def test_impossible_settings_are_refused(change: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ConfigError):
        Imprint(**change)  # type: ignore[arg-type]


def test_a_layer_too_narrow_to_keep_examples_apart_shows_nothing_of_noise() -> None:
    finding = run_attack(Imprint(cohorts=(4,), bins=(2,), noise=(1.0,), trials=1), lambda _doing, _share: None)
    assert finding.level == "nothing"
    assert [line.outcome for line in finding.card] == ["not shown", "reduced", "not shown"]  # a pin refuses in any case


def test_the_command_says_that_circles_do_not_help(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ["--cohort", "4", "--bins", "256", "--noise", "1", "--trials", "1"]
    told = record_of("attack", "imprint", *options, "--html", page)
    assert told["verdict"].startswith("Circles do not help")
    assert [line["outcome"] for line in told["card"]] == ["not eliminated", "reduced", "reduced"]
    assert "data:image/png" in page.read_text()
