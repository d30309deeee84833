"""The trial of a model before a run: it is applied to a few examples, so that errors are found at once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from coterie.cohorts.circles import Indices
from coterie.errors import ConfigError, CoterieError
from coterie.reports.words import count
from coterie.training import flatten
from coterie.training.data.dataset import Dataset
from coterie.training.evaluate import evaluate
from coterie.training.local import Batch, Data, LocalSGD, Loss, Problem, cross_entropy, one_thread, squared_error

_COLUMNS = "; if these are columns of different members, training.algorithm must be confined, which keeps them apart"
_TIMES = 5
_INTEGERS = "; the inputs are integers, as an embedding needs them: for other layers give floating-point numbers"
_REGRESSION = (
    "; the targets are floating-point numbers, so the model needs an output for each of their columns; to learn "
    "classes give labels as integers"
)
_LOSS = "A loss takes two tensors, outputs and targets, and returns one number for each example, or their mean"


@dataclass(frozen=True, eq=False)
class ChosenExamples:
    """Some of the examples."""

    data: Data
    chosen: Indices

    def __len__(self) -> int:
        return self.chosen.size

    def batch(self, indices: Indices) -> Batch:
        """Return the inputs and the targets of chosen examples, by their positions among the chosen ones."""
        return self.data.batch(self.chosen[indices])


def try_out(problem: Problem, dataset: Dataset, model: str, data: str) -> None:
    """Apply the model to two examples, including the one with the largest label; shapes, types and labels must fit.

    ``model`` and ``data`` are their names in errors.
    """
    odd = int(np.argmax(dataset.train_y)) if dataset.classes is not None else 0
    few = ChosenExamples(problem.data, np.array([0, odd]))
    with _explained(dataset, model, data):
        _check_parameters(problem)
        check_outputs(problem, few, dataset)
        outputs, targets = _outputs(problem, few)
    _check_loss(problem.loss, outputs, targets)
    with _explained(dataset, model, data):
        evaluate(problem, flatten.read(problem.model), few)
        check_mean(problem, few)


@contextmanager
def _explained(dataset: Dataset, model: str, data: str) -> Iterator[None]:
    """Turn an error of the model into one that says what the model was applied to."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{model}: {error}") from None
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        shape = " x ".join(map(str, dataset.input_shape))
        what = f"inputs of shape {shape}" if shape else "inputs that are single numbers"
        what += f" (type {dataset.train_x.dtype})"
        if dataset.fields:
            names = ", ".join(field.name for field in dataset.fields.fields)
            what = f"the keyword arguments {names}"
        raise ConfigError(f"{model} fails on {data}, which has {what}: {error}{_hint(dataset, error)}") from error


def _hint(dataset: Dataset, error: Exception) -> str:
    """Return what may be wrong when a model fails, if the data has something unusual."""
    if dataset.fields:
        return _COLUMNS
    if dataset.train_x.dtype == np.int64 and "dtype" in str(error):
        return _INTEGERS
    return _REGRESSION if dataset.classes is None and "targets" in str(error) else ""


def _check_parameters(problem: Problem) -> None:
    if not all(np.isfinite(array).all() for array in flatten.read(problem.model)):
        raise ConfigError("some of its parameters are NaN or infinite before the first round")


def check_outputs(problem: Problem, few: ChosenExamples, dataset: Dataset) -> None:
    """Refuse a classifier with fewer outputs than there are classes, in the training and the test examples."""
    if dataset.classes is None or problem.loss is not cross_entropy:
        return
    x, y = few.batch(np.arange(len(few)))
    with one_thread(), torch.inference_mode():
        outputs = problem.instance(flatten.read(problem.model)).eval()(x)
    if y.is_floating_point() or y.dim() != 1 or outputs.dim() < 2:
        return
    number = outputs.shape[1]
    for whose, labels in (("data", y.numpy()), ("test set", dataset.test_y)):
        if (largest := int(labels.max(initial=-1))) >= number:
            fitting = f"the labels 0 to {number - 1}" if number > 1 else "the label 0"
            raise ConfigError(
                f"it has {count(number, 'output')}, for {fitting}, and the {whose} has the label {largest}; give the "
                f"model {largest + 1} outputs or more, or number the labels again, from 0 on"
            )


def _outputs(problem: Problem, few: ChosenExamples) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs for the first example and its target, several times, but not as many times as it has outputs.

    A loss that confuses outputs with examples then fails.
    """
    x, y = few.batch(np.arange(1))
    with one_thread(), torch.random.fork_rng(devices=[]):
        outputs = problem.instance(flatten.read(problem.model)).eval()(x)
    times = _TIMES + 1 if outputs.dim() > 1 and outputs.shape[1] == _TIMES else _TIMES
    return torch.cat([outputs] * times), torch.cat([y] * times)


def _check_loss(loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Refuse a loss of the user that fails on a batch, returns no tensor, or cannot be differentiated."""
    if loss in (cross_entropy, squared_error):
        return
    where = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}, {targets.dtype}"
    try:
        with one_thread(), torch.random.fork_rng(devices=[]):
            losses = loss(outputs, targets)
    except CoterieError:
        raise
    except Exception as error:
        raise ConfigError(f"the loss fails on {where}: {type(error).__name__}: {error}. {_LOSS}") from error
    if not isinstance(losses, torch.Tensor):
        raise ConfigError(f"the loss returned {type(losses).__name__} for {where}. {_LOSS}")
    if outputs.requires_grad and not losses.requires_grad:
        raise ConfigError(f"the loss cannot be differentiated: its result does not depend on the outputs. {_LOSS}")


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
            f"training.batch_size = {size}: {alone[0]!r} has {count(parts[alone[0]].size, 'example')}, so its last "
            f"batch has a single one, and the model cannot train on that ({error}); {remedy}"
        ) from None
