"""The models of the papers, by name, for any suitable input size.

:data:`MODELS` is the table of names; :func:`build` builds a model. Reading the table does not import torch; building
a model does.

Every model has linear outputs, one for each class or regression target, and the loss applies softmax if it needs to.
(Code published with So et al. 2023 applies ReLU to the logits: a class is lost once its output is negative for all
inputs.) No model has batch normalisation or dropout. Its whole state is therefore in parameters, which can be
averaged, and its output depends only on them and the input.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from coterie.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

_NETWORKS = "coterie.training.models.networks"
MODELS = {
    "softmax-regression": f"{_NETWORKS}:softmax_regression",
    "mlp": f"{_NETWORKS}:mlp",
    "fcn": f"{_NETWORKS}:fcn",
    "mnist-cnn": f"{_NETWORKS}:mnist_cnn",
    "mnist-cnn-small": f"{_NETWORKS}:mnist_cnn_small",
    "lenet": f"{_NETWORKS}:lenet",
    "vgg11": f"{_NETWORKS}:vgg11",
    "lstm": f"{_NETWORKS}:lstm",
}
"""The names that :func:`build` accepts, each with its function as ``module:function``.

The function takes the shape of an input and the number of outputs, and returns a torch module.
"""


def build(name: str, input_shape: tuple[int, ...], outputs: int, seed: int) -> "nn.Module":
    """Build the model ``name``, one of :data:`MODELS`. Its initial parameters depend on ``seed`` only.

    torch's global random state is neither used nor changed.
    """
    if name not in MODELS:
        raise ConfigError(f"unknown model {name!r}; known are {', '.join(MODELS)}")
    if outputs < 1 or not input_shape or min(input_shape) < 1:
        raise ConfigError(f"no model has inputs of shape {input_shape} and {outputs} outputs")
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed accelerators as well
        model: nn.Module = resolve_name(MODELS[name])(input_shape, outputs)
        # Convolutions are up to 1.5 times faster with the channels of a pixel adjacent; other layers are unaffected.
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's declaration
        return model


def parameter_count(model: "nn.Module") -> int:
    """Return the number of parameters of a model."""
    return sum(parameter.numel() for parameter in model.parameters())
