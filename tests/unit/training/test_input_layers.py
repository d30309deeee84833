"""The layer that reads a model's input: found where the model is linear in it, and refused in one line elsewhere."""

import pytest
import torch
from torch import nn

from coterie.errors import ConfigError
from coterie.training.input_layers import RestOfModel, find_input_layer
from coterie.training.models import build


class Recurrent(nn.Module):
    def __init__(self, layer: nn.RNNBase, outputs: int) -> None:
        super().__init__()
        self.layer, self.readout = layer, nn.Linear(layer.hidden_size, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.readout(self.layer(x)[0][:, -1])
        return found


class Skip(nn.Module):
    """A model that reads its input twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(torch.relu(self.first(x)) + x)
        return found


class Tied(Skip):
    """A model that uses the first weight twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(torch.relu(self.first(x)) @ self.first.weight)
        return found


class Scaled(Skip):
    """A model that scales its input by a parameter that begins with 1."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(torch.relu(self.first(x * self.scale)))
        return found


class Turned(Recurrent):
    """A recurrent model that turns its input around."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flip(1))


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("model", "shape", "weight", "columns"),
    [
        (build("mlp", (1, 8, 8), 10, 0), (1, 8, 8), "1.weight", 64),
        (build("fcn", (446,), 30, 0), (446,), "1.weight", 446),
        (build("softmax-regression", (5,), 3, 0), (5,), "1.weight", 5),
        (build("lstm", (24, 3), 1, 0), (24, 3), "recurrent.weight_ih_l0", 3),
        (Recurrent(nn.GRU(4, 5, num_layers=2, batch_first=True), 2), (7, 4), "layer.weight_ih_l0", 4),
        (Recurrent(nn.RNN(4, 5, batch_first=True, bias=False), 2), (7, 4), "layer.weight_ih_l0", 4),
        (nn.Linear(6, 2, bias=False), (6,), "weight", 6),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)), (2, 3), "0.weight", 3),
        (nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 2)).double(), (6,), "0.weight", 6),
    ],
    ids=["mlp", "fcn", "softmax", "lstm", "gru", "rnn", "linear", "by position", "dropout later"],
)
def test_a_linear_first_layer_is_found(model: nn.Module, shape: tuple[int, ...], weight: str, columns: int) -> None:
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    dtype = next(model.parameters()).dtype
    layer = find_input_layer(model, torch.zeros(5, *shape, dtype=dtype))
    assert (layer.weight, layer.columns, layer.input_shape) == (weight, columns, shape)
    assert list(before)[layer.position] == weight
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
    # The rest of the model shares its parameters, and sees sums in place of inputs.
    x = torch.randn(4, *shape, dtype=dtype)
    z = nn.functional.linear(x.reshape(4, *layer.shape), dict(model.named_parameters())[weight])
    assert torch.allclose(RestOfModel(model.eval(), layer)(z), model(x), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "shape", "said"),
    [
        (build("lenet", (1, 28, 28), 10, 0), (1, 28, 28), "is Conv2d;"),
        (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 2)), (6,), "is LayerNorm;"),
        (nn.Sequential(nn.ReLU(), nn.Linear(6, 2)), (6,), "is Linear, but the model changes its input"),
        (nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 2)), (6,), "is Linear, but the model changes its input"),
        (Turned(nn.LSTM(6, 4, batch_first=True), 2), (5, 6), "is LSTM, but the model changes its input"),
        (Recurrent(nn.LSTM(6, 4, batch_first=True, bidirectional=True, proj_size=2), 2), (5, 6), "bidirectional LSTM"),
        (Skip(), (6,), "uses its input or that weight elsewhere"),
        (Tied(), (6,), "uses its input or that weight elsewhere"),
        (Scaled(), (6,), "changes its input"),
        (frozen(), (6,), "is frozen or shared"),
        (nn.Sequential(nn.Flatten(), nn.ReLU()), (6,), "cannot be found"),
    ],
    ids=[
        *("convolution", "normalisation", "activation first", "dropout first", "turned", "bidirectional"),
        *("skip", "tied", "scaled", "frozen", "nothing"),
    ],
)
def test_any_other_first_layer_is_refused_in_one_line(model: nn.Module, shape: tuple[int, ...], said: str) -> None:
    if isinstance(model, Recurrent) and model.layer.bidirectional:
        model.readout = nn.Linear(4, 2)
    with pytest.raises(ConfigError) as caught:
        find_input_layer(model, torch.zeros(3, *shape))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "linear in the input: nn.Linear" in str(caught.value)


def test_tokens_and_bare_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match="is Embedding"):
        find_input_layer(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2)), torch.zeros(3, 6, dtype=torch.int64))
    with pytest.raises(ConfigError, match="is Bare"):
        find_input_layer(Bare(), torch.zeros(3, 6))
