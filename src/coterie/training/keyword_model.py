"""A user's model whose inputs have names: it is called with keyword arguments, as tokenizers' models are."""

import torch
from torch import nn

from coterie.training.data.keyword_inputs import InputFields


class KeywordModel(nn.Module):
    """Takes packed rows apart, and calls the model with the named parts.

    Models of the transformers library return an object with the attribute ``logits``, which stands for their outputs.
    """

    def __init__(self, model: nn.Module, fields: InputFields) -> None:
        super().__init__()
        self.model, self.fields = model, fields

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs for packed rows."""
        found = self.model(**self.fields.unpack(x))
        outputs: torch.Tensor = getattr(found, "logits", found)
        return outputs


def user_model(module: nn.Module) -> nn.Module:
    """Return the model as the user gave it."""
    return module.model if isinstance(module, KeywordModel) else module
