"""The trial of a model before a run: it is applied to a few examples, so that errors are found at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from coterie.cohorts.circles import Indices
from coterie.errors import ConfigError
from coterie.training import flatten
from coterie.training.data.dataset import Dataset
from coterie.training.evaluate import evaluate
from coterie.training.local import Batch, Data, LocalSGD, Problem, cross_entropy, one_thread

_COLUMNS = "; if these are columns of different members, training.algorithm must be confined, which keeps them apart"


@dataclass(frozen=True, eq=False)
class ChosenExamples:
    """Some of the examples."""

    data: Data
    chosen: Indices

    def __len__(self) -> int:
        return self.chosen.size

    def batch(self, indices: Indices) -> Batch:
        """Return the inputs and the targets of these of the chosen examples."""
        return self.data.batch(self.chosen[indices])


def try_out(problem: Problem, dataset: Dataset, model: str, data: str) -> None:
    """Apply the model to two examples, including the one with the largest label; shapes, types and labels must fit.

    ``model`` and ``data`` are their names in errors.
    """
    odd = int(np.argmax(dataset.train_y)) if dataset.classes is not None else 0
    few = ChosenExamples(problem.data, np.array([0, odd]))
    try:
        check_outputs(problem, few, dataset.classes)
        evaluate(problem, flatten.read(problem.model), few)
        check_mean(problem, few)
    except ConfigError as error:
        raise ConfigError(f"{model}: {error}") from None
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        shape = " x ".join(map(str, dataset.input_shape))
        what = f"inputs of shape {shape}" if shape else "inputs that are single numbers"
        what += f" (type {dataset.train_x.dtype})"
        if dataset.fields:
            names = ", ".join(field.name for field in dataset.fields.fields)
            what = f"the keyword arguments {names}"
        hint = "" if not dataset.fields else _COLUMNS
        raise ConfigError(f"{model} fails on {data}, which has {what}: {error}{hint}") from error


def check_outputs(problem: Problem, few: ChosenExamples, classes: int | None) -> None:
    """Refuse a classifier with fewer outputs than there are classes; the largest label is among the examples."""
    if classes is None or problem.loss is not cross_entropy:
        return
    x, y = few.batch(np.arange(len(few)))
    with one_thread(), torch.inference_mode():
        outputs = problem.instance(flatten.read(problem.model)).eval()(x)
    largest = int(y.max()) if not y.is_floating_point() and y.dim() == 1 else -1
    if outputs.dim() > 1 and largest >= outputs.shape[1]:
        raise ConfigError(
            f"it has {outputs.shape[1]} outputs, for the labels 0 to {outputs.shape[1] - 1}, and the data has the "
            f"label {largest}; give the model {largest + 1} outputs or more, or number the labels again, from 0 on"
        )


def check_mean(problem: Problem, few: ChosenExamples) -> None:
    """Refuse a loss that returns the sum over a batch: for an example that is repeated, it is twice as large."""
    x, y = few.batch(np.array([0]))
    with one_thread(), torch.inference_mode():
        outputs = problem.instance(flatten.read(problem.model)).eval()(x)
        single, double = (problem.loss(torch.cat([outputs] * times), torch.cat([y] * times)) for times in (1, 2))
    if single.dim() == double.dim() == 0 and not torch.isclose(single, double, rtol=0.1, atol=1e-6):
        raise ConfigError(
            f"the loss is {float(single):.4g} for one example and {float(double):.4g} for the same example twice, so "
            "it is no mean; return one number for each example (reduction='none') or their mean (reduction='mean')"
        )


def check_last_batches(work: LocalSGD, problem: Problem, parts: Mapping[str, Indices]) -> None:
    """Refuse a model that cannot train on a single example, if a client has a batch of one.

    Batch normalisation fails on one example unless it has several values in each channel, such as the pixels of an
    image.
    """
    size = work.batch_size
    alone = [name for name, part in parts.items() if (work.used(part.size) % size or size) == 1]
    if not alone or not flatten.statistics(problem.model):
        return
    module = problem.instance(flatten.read(problem.model)).train()
    try:
        with one_thread(), torch.random.fork_rng(devices=[]), torch.no_grad():
            x, _ = problem.data.batch(parts[alone[0]][:1])
            module(x)
    except (RuntimeError, ValueError) as error:
        remedy = "set training.drop_last = true, or another training.batch_size"
        if parts[alone[0]].size == 1:
            remedy = "leave this client out, or take a model without batch normalisation"
        elif size == 1:
            remedy = "set a larger training.batch_size"
        raise ConfigError(
            f"training.batch_size = {size}: the last batch of {alone[0]!r}, with {parts[alone[0]].size:,} in all, has "
            f"a single example, and the model cannot train on that ({error}); {remedy}"
        ) from None
