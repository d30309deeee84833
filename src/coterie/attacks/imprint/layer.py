"""The imprint layer (Fowl et al. 2022, "Robbing the Fed"): a linear layer that sorts examples into bins.

Unit i of the layer computes s (<w, x> - c_i), followed by a ReLU, with c_1 < ... < c_k quantiles of the statistic
<w, x> over public examples. All units feed the outputs with the same weights u, so that the gradient at unit i is g(x)
= <u, dL/doutput> if <w, x> > c_i, and 0 if not. Summed over any examples, row i of the weights' gradient minus row i +
1 is the sum of g(x) x over the examples between c_i and c_{i+1}; the same difference of the biases is the sum of g(x).
If there is one such example, their ratio is x. A sum over clients is a sum over examples, so no cohort hides it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from coterie.cohorts.circles import Reals
from coterie.errors import InputError
from coterie.training.flatten import ModelArrays

_SHRINK = 0.01
"""The factor s. It is small, so that the layer's outputs and the gradients after it are small beside its gradient."""


@dataclass(frozen=True, eq=False)
class Imprinter:
    """The parameters of the crafted layer: the direction w of the statistic, and the ends of its bins."""

    direction: Reals
    ends: Reals
    outward: Reals
    """The weights u from every unit to the outputs."""

    @classmethod
    def of(cls, public: npt.NDArray[Any], bins: int, outputs: int, rng: np.random.Generator) -> "Imprinter":
        """Choose a direction at random, and bins into which equally many public examples fall."""
        if bins < 2:
            raise InputError(f"{bins} bins cannot separate examples: take at least 2")
        flat = np.asarray(public, np.float64).reshape(len(public), -1)
        direction = rng.standard_normal(flat.shape[1]) / np.sqrt(flat.shape[1])
        values = flat @ direction
        ends = np.quantile(values, np.arange(bins) / bins)
        ends[0] -= np.ptp(values)  # a value below all public examples is in the first bin
        ends += np.arange(bins) * 1e-9 * np.ptp(values)  # distinct, even if public examples coincide
        outward = rng.standard_normal(outputs) / (_SHRINK * bins * float(values.std()))
        return cls(direction, ends, outward)

    def expected(self, examples: int) -> float:
        """Return the expected number of examples that are alone in their bin, if bins are equally likely."""
        return examples * (1 - 1 / self.ends.size) ** (examples - 1)


def network(shape: tuple[int, ...], bins: int, outputs: int) -> nn.Module:
    """Return a network of two linear layers, of the form of the model ``mlp``, with a unit for every bin."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), bins), nn.ReLU(), nn.Linear(bins, outputs))


def craft(model: nn.Module, imprinter: Imprinter) -> None:
    """Write an imprint layer into a network of two linear layers with a ReLU between; its shape does not change."""
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if len(linear) != 2 or linear[0].out_features != imprinter.ends.size:
        raise InputError("an imprint layer is written into two linear layers, with a unit between for every bin")
    first, last = linear
    with torch.no_grad():
        first.weight.copy_(torch.from_numpy(_SHRINK * imprinter.direction).expand_as(first.weight))
        first.bias.copy_(torch.from_numpy(-_SHRINK * imprinter.ends))
        last.weight.copy_(torch.from_numpy(imprinter.outward)[:, None].expand_as(last.weight))
        last.bias.zero_()


def examples_in(update: ModelArrays, least: float = 1e-6) -> npt.NDArray[np.float64]:
    """Return the examples in a sum or mean of updates of a crafted model, one for each bin that is not empty.

    ``update`` is that of one step, by any number of clients. A bin is empty if its bias moved by less than ``least``
    times the largest move. A bin with several examples gives a mixture of them. A bin is left out if noise is so large
    that its numbers overflow.
    """
    weights, bias = (np.asarray(array, np.float64) for array in update[:2])
    with np.errstate(all="ignore"):
        rows = np.diff(weights, axis=0, append=np.zeros((1, weights.shape[1])))
        shifts = np.diff(bias, append=0.0)
        used = np.abs(shifts) > least * np.abs(shifts).max()
        found = rows[used] / shifts[used, None]
    return np.asarray(found[np.isfinite(found).all(1)])
