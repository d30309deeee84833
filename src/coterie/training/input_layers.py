"""The first layer of a model, linear in the input: an ``nn.Linear``, or the input projection of a recurrent layer.

Vertical members of a group each have some columns of the input. They can compute the first layer together only if it is
a sum over columns, x W^T = sum_j x_j W_j^T. :func:`find_input_layer` finds that layer. :class:`RestOfModel` is the
model without it, which takes the sum and never sees an input.
"""

import copy
from dataclasses import dataclass

import torch
from torch import nn

from coterie.errors import ConfigError
from coterie.training import flatten

_EXAMPLES = 3  # number of inputs in the trial of a model
_SEED = 1
_TOLERANCE = 1e-3  # relative to the largest entry: rounding is far below, a different function far above


@dataclass(frozen=True)
class InputLayer:
    """The layer that reads the input, with its shapes."""

    name: str
    """The name of the module."""
    weight: str
    """The name of its weight among the model's parameters."""
    position: int
    """The position of its weight among the model's arrays."""
    input_shape: tuple[int, ...]
    """The shape of one example, as the model gets it."""
    shape: tuple[int, ...]
    """The shape of one example, as the layer gets it; columns are the last axis."""

    @property
    def columns(self) -> int:
        """The number of columns."""
        return self.shape[-1]


class RestOfModel(nn.Module):
    """A model without the product of its input layer: it takes the sums ``z``, and shares all other parameters."""

    def __init__(self, model: nn.Module, layer: InputLayer) -> None:
        super().__init__()
        shared = {id(parameter): parameter for parameter in model.parameters()}
        whole = copy.deepcopy(model, shared)  # a memo: parameters are shared
        stand_in = _stand_in(model.get_submodule(layer.name))
        if layer.name:
            parent, _, name = layer.name.rpartition(".")
            setattr(whole.get_submodule(parent), name, stand_in)
        else:
            whole = stand_in
        self._whole, self._stand_in, self._input_shape = whole, stand_in, layer.input_shape

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """Return the outputs for these sums. The model gets zeros as its input, which no layer reads."""
        self._stand_in.given = z
        outputs: torch.Tensor = self._whole(torch.zeros(len(z), *self._input_shape, dtype=z.dtype))
        self._stand_in.given = _NOTHING
        return outputs


_NOTHING = torch.empty(0)


def _stand_in(layer: nn.Module) -> "_GivenSum | _GivenProjection":
    if isinstance(layer, nn.Linear):
        return _GivenSum(layer)
    if isinstance(layer, nn.RNNBase):
        return _GivenProjection(layer)
    raise _unsuitable(f"is {type(layer).__name__}")


class _GivenSum(nn.Module):
    """Stands in for a linear layer: its output is a given sum plus the bias."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.bias = layer.bias
        self.given = _NOTHING

    def forward(self, _x: torch.Tensor) -> torch.Tensor:
        return self.given if self.bias is None else self.given + self.bias


class _GivenProjection(nn.Module):
    """Stands in for a recurrent layer: its input is projected already, so its own projection is the identity."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.given = _NOTHING
        inner = copy.deepcopy(layer)
        weights = dict(layer.named_parameters())
        for name, parameter in weights.items():
            setattr(inner, name, parameter)
        gates = len(weights["weight_ih_l0"])
        inner.weight_ih_l0 = nn.Parameter(torch.eye(gates, dtype=weights["weight_ih_l0"].dtype), requires_grad=False)
        inner.input_size = gates
        self.inner = inner

    def forward(self, _x: torch.Tensor, *state: object) -> object:
        return self.inner(self.given, *state)


def find_input_layer(model: nn.Module, examples: torch.Tensor) -> InputLayer:
    """Return the layer that reads the input; :class:`ConfigError` unless the model is linear in the input up to there.

    The model is tried on random inputs of the examples' shape: its outputs and gradients must be those of the rest of
    the model applied to the sums. So a model that also uses its input elsewhere is refused.
    """
    trial = copy.deepcopy(model).train()
    generator = torch.Generator().manual_seed(_SEED)
    with torch.no_grad():  # a model of zeros would pass every trial
        for parameter in trial.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    x = examples[:_EXAMPLES]
    if x.is_floating_point():
        x = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    name, seen = _first_call(trial, x)
    kind = trial.get_submodule(name)
    called = type(kind).__name__
    if not isinstance(kind, nn.Linear | nn.RNNBase):
        raise _unsuitable(f"is {called}")
    if isinstance(kind, nn.RNNBase) and kind.bidirectional:
        raise _unsuitable(f"is a bidirectional {called}, which reads the input twice")
    if seen.shape[:1] != x.shape[:1] or not torch.equal(seen.reshape(x.shape), x):
        raise _unsuitable(f"is {called}, but the model changes its input before that by more than a new shape")
    own = "weight" if isinstance(kind, nn.Linear) else "weight_ih_l0"
    weight = f"{name}.{own}" if name else own
    names = list(flatten.parameters(model))
    if weight not in names:
        raise _unsuitable(f"is {called}, whose weight {weight} is frozen or shared")
    layer = InputLayer(name, weight, names.index(weight), tuple(x.shape[1:]), tuple(seen.shape[1:]))
    _check_split(trial, layer, x)
    return layer


def _first_call(model: nn.Module, x: torch.Tensor) -> tuple[str, torch.Tensor]:
    """Run a model; return the first module with parameters and no children that was called, and what it read."""
    calls: list[tuple[str, torch.Tensor]] = []
    for name, module in model.named_modules():
        if any(True for _ in module.parameters(recurse=False)) and not any(True for _ in module.children()):
            module.register_forward_pre_hook(
                lambda _module, inputs, name=name: calls.append((name, inputs[0].detach().clone()))
            )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model(x)
    for module in model.modules():
        module._forward_pre_hooks.clear()
    if not calls:
        raise _unsuitable("cannot be found: it has no module of its own")
    return calls[0]


def _check_split(model: nn.Module, layer: InputLayer, x: torch.Tensor) -> None:
    """Compare a model with its rest, applied to the sums over columns: same outputs, same gradients."""
    weights = flatten.parameters(model)
    others = [parameter for name, parameter in weights.items() if name != layer.weight]
    weight = weights[layer.weight]
    z = nn.functional.linear(x.reshape(-1, *layer.shape), weight.detach()).requires_grad_()
    elsewhere = f"is {layer.name or 'the model'}, but the model uses its input or that weight elsewhere too"
    found = []
    for part, given in ((model, x), (RestOfModel(model, layer), z)):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(_SEED)
            try:
                outputs = part(given)
            except (AttributeError, RuntimeError, TypeError, ValueError) as error:
                raise _unsuitable(elsewhere) from error
        gradients = torch.autograd.grad(
            outputs.square().sum(), [weight, z, *others], allow_unused=True, materialize_grads=True
        )
        found.append([outputs.detach(), *gradients])
    whole, split = found
    by_members = nn.functional.linear(_rows(split[2]).T, _rows(x.reshape(-1, *layer.shape)).T)
    pairs = [(whole[0], split[0]), (whole[1], by_members + split[1]), *zip(whole[3:], split[3:], strict=True)]
    if any(not torch.allclose(a, b, atol=_TOLERANCE * float(a.abs().max() + 1e-6)) for a, b in pairs) or split[1].any():
        raise _unsuitable(elsewhere)


def _rows(array: torch.Tensor) -> torch.Tensor:
    return array.reshape(-1, array.shape[-1])


def _unsuitable(first: str) -> ConfigError:
    return ConfigError(
        f"model.name: the model's first layer {first}; members with different columns need a first layer that is "
        "linear in the input: nn.Linear (Flatten may come before it), or a recurrent layer such as nn.LSTM"
    )
