import numpy as np
import pytest
import torch
from torch import nn

from coterie.errors import ConfigError
from coterie.training.data.datasets import load
from coterie.training.models import MODELS, build, parameter_count
from coterie.training.models.networks import InputShape, PictureNetwork
from coterie.training.user_models import structure_digest

# (model, input, outputs, parameters), the sizes computed layer by layer as weights + biases.
SIZES = [
    ("mnist-cnn", (1, 28, 28), 10, 1_663_370),  # 832 + 51,264 + 1,606,144 + 5,130, as in McMahan et al. 2017
    ("lenet", (3, 32, 32), 10, 62_006),  # 456 + 2,416 + 48,120 + 10,164 + 850
    ("mnist-cnn-small", (1, 28, 28), 10, 62_346),
    ("vgg11", (3, 32, 32), 10, 9_220_480 + 5_130),
    ("vgg11", (3, 32, 32), 100, 9_220_480 + 51_300),
    ("mlp", (1, 28, 28), 10, 200_960 + 2_570),
    ("mlp", (1, 8, 8), 10, 16_640 + 2_570),
    ("softmax-regression", (1, 112, 92), 40, 412_200),
    ("softmax-regression", (446,), 30, 13_410),
    ("fcn", (446,), 30, 228_864 + 65_664 + 3_870),
    ("lstm", (100, 1), 1, 4 * 32 * (1 + 32 + 2) + 33),
]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def parameters(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(("name", "shape", "outputs", "expected"), SIZES)
def test_models_have_the_sizes_of_the_papers(name: str, shape: InputShape, outputs: int, expected: int) -> None:
    model = build(name, shape, outputs, seed=1)
    assert parameter_count(model) == expected
    answers = model(torch.randn(3, *shape, generator=torch.Generator().manual_seed(0)))
    assert answers.shape == (3, outputs)
    assert answers.isfinite().all()


def test_every_model_is_measured() -> None:
    assert {name for name, *_ in SIZES} == set(MODELS)


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shape, outputs, _ in SIZES if outputs != 100])
def test_outputs_are_linear_and_every_parameter_is_trained(name: str, shape: InputShape) -> None:
    model = build(name, shape, 4, seed=0)
    last = [module for module in model.modules() if not list(module.children())][-1]
    assert isinstance(last, nn.Linear)
    assert not list(model.buffers())  # nothing that averaging parameters would miss
    answers = model(torch.randn(8, *shape, generator=torch.Generator().manual_seed(0)))
    assert answers.min() < 0 < answers.max()
    answers.square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shape, outputs, _ in SIZES if outputs != 100])
def test_the_seed_alone_decides_the_start(name: str, shape: InputShape) -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    first = build(name, shape, 2, seed=7)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(456)
    assert torch.equal(parameters(first), parameters(build(name, shape, 2, seed=7)))
    assert not torch.equal(parameters(first), parameters(build(name, shape, 2, seed=8)))


@pytest.mark.parametrize(
    ("name", "side"),
    [*((name, side) for name in ("mnist-cnn", "mnist-cnn-small", "lenet") for side in range(16, 24)), ("vgg11", 33)],
)
def test_pictures_need_not_be_square_or_even(name: str, side: int) -> None:
    assert build(name, (2, side, side + 5), 2, seed=0)(torch.zeros(1, 2, side, side + 5)).shape == (1, 2)


@pytest.mark.parametrize("name", ["mnist-cnn", "mnist-cnn-small", "lenet", "vgg11"])
def test_pooling_before_relu_gives_the_same_bits(name: str) -> None:
    model = build(name, (3, 32, 32), 4, seed=0)
    assert isinstance(model, PictureNetwork)
    plain = nn.Sequential(*model)
    assert structure_digest(model) == structure_digest(plain)  # so runs of earlier versions can be resumed
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(8, 3, 32, 32, generator=random), torch.randint(4, (8,), generator=random)
    outputs = [one(x) for one in (model, plain)]
    assert torch.equal(*outputs)
    found = [torch.autograd.grad(nn.functional.cross_entropy(one, y), list(model.parameters())) for one in outputs]
    assert all(torch.equal(here, there) for here, there in zip(*found, strict=True))


def test_inputs_that_do_not_fit_are_refused() -> None:
    for name, shape, outputs, wrong in [
        ("resnet", (3, 32, 32), 10, "unknown model 'resnet'"),
        ("mlp", (4,), 0, "0 outputs"),
        ("mlp", (), 2, "inputs of shape"),
        ("mlp", (4, 0), 2, "inputs of shape"),
        ("lstm", (100,), 1, "time x values"),
        ("mnist-cnn", (446,), 10, "at least 4 x 4"),
        ("lenet", (1, 15, 28), 10, "at least 16 x 16"),
        ("vgg11", (1, 28, 28), 10, "at least 32 x 32"),
    ]:
        with pytest.raises(ConfigError, match=wrong):
            build(name, shape, outputs, seed=0)


def train(model: nn.Module, loss: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int, rate: float) -> None:
    """Plain gradient descent: importing torch's optimisers would take longer than the training."""
    order, weights = np.random.default_rng(0), list(model.parameters())
    for _ in range(epochs):
        for batch in np.array_split(order.permutation(len(x)), len(x) // 32):
            gradients = torch.autograd.grad(loss(model(x[batch]), y[batch]), weights)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight.sub_(gradient, alpha=rate)


def test_the_bundled_digits_are_learnt_in_a_second() -> None:
    data = load("digits")
    model = build("mlp", data.input_shape, data.outputs, seed=0)
    train(model, nn.CrossEntropyLoss(), torch.from_numpy(data.train_x), torch.from_numpy(data.train_y), 5, 0.3)
    guesses = model(torch.from_numpy(data.test_x)).argmax(dim=1).numpy()
    assert np.mean(guesses == data.test_y) > 0.9


def test_the_forecaster_is_an_lstm_over_each_window_by_itself() -> None:
    model = build("lstm", (7, 1), 1, seed=0)
    x = torch.randn(5, 7, 1, generator=torch.Generator().manual_seed(0))
    weights = dict(model.named_parameters())
    wx, wh = weights["recurrent.weight_ih_l0"], weights["recurrent.weight_hh_l0"]
    b = weights["recurrent.bias_ih_l0"] + weights["recurrent.bias_hh_l0"]
    for window, forecast in zip(x, model(x), strict=True):
        hidden = cell = torch.zeros(32)
        for value in window:
            i, f, g, o = (wx @ value + wh @ hidden + b).chunk(4)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
        expected = weights["readout.weight"] @ hidden + weights["readout.bias"]
        assert torch.allclose(forecast, expected, atol=1e-5)


def test_the_forecaster_beats_repeating_the_last_value() -> None:
    wave = torch.sin(torch.arange(600) * 0.5)
    x, y = wave.unfold(0, 12, 1)[:-1, :, None], wave[12:, None]
    model = build("lstm", (12, 1), 1, seed=0)
    train(model, nn.MSELoss(), x, y, 12, 0.1)
    error = nn.functional.mse_loss(model(x), y)
    assert error < 0.5 * nn.functional.mse_loss(x[:, -1], y)
