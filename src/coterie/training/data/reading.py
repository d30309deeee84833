"""Readers of examples: data sets, data loaders, arrays and lists of pairs, once or anew in every pass.

Examples of a torch data set that draws random numbers when it is read (random transforms), and those of a data loader
with a ``collate_fn`` of its own, are read anew in every pass. All others are read once, into memory. A data loader also
says how large batches are and whether they are shuffled.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.training.data.dataset import ExampleSource, InputArray, Inputs

Examples: TypeAlias = Any
"""A torch data set, map-style or iterable, a data loader, a pair of arrays (inputs, targets), or a list of pairs."""
ExampleArrays: TypeAlias = tuple[Inputs, npt.NDArray[Any]]


_TRIED = 64  # examples that are read again to see whether they are the same
_SEED = 1


@dataclass(frozen=True, eq=False)
class ReadExamples:
    """Examples as they were read, and how to read them again where that gives others."""

    x: Inputs
    y: npt.NDArray[Any]
    source: ExampleSource | None = None
    """None where they stay the same, or cannot be read again."""
    loaded: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_examples(source: Examples, name: str) -> ExampleArrays:
    """Read examples into two arrays; :class:`InputError` where they are not equally shaped pairs of numbers."""
    read = read_source(source, name)
    return read.x, read.y


def read_source(source: Examples, name: str) -> ReadExamples:
    """Read examples once, and find out whether another reading gives others: then keep where they come from."""
    try:
        if isinstance(source, tuple) and are_arrays(source):
            x, y = (np.asarray(part) for part in source)
            if len(x) != len(y):
                raise InputError(f"{name}: {len(x)} inputs and {len(y)} targets")
            return ReadExamples(_inputs(x), y)
        loader = _is_loader(source)
        if isinstance(source, Iterable) and not loader:
            return _read_once(source, name)
        if loader and _is_stream(source.dataset):
            pairs = (pair for x, y in source for pair in zip(x, y, strict=True))
            return replace(_read_once(pairs, name), loaded={"training.batch_size": source.batch_size or 1})
        form = _loader_form(source, name) if loader else _LoaderForm(tuple(range(len(source))))
        return _read_numbered(source.dataset if loader else source, form, name)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name}: not pairs of equally shaped arrays of numbers: {error}") from error


def one_hot_labels(y: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """Return the place of the only 1 in each row, if every row has one beside zeros; None otherwise."""
    if y.ndim != 2 or y.shape[1] < 2 or y.dtype.kind not in "fbiu" or not len(y):
        return None
    if not (((y == 0) | (y == 1)).all() and (np.count_nonzero(y, axis=1) == 1).all()):
        return None
    labels: npt.NDArray[np.int64] = y.argmax(1).astype(np.int64)
    return labels


def is_image(value: Any) -> bool:  # noqa: ANN401
    """Tell whether this is a PIL image; importing PIL to say so is not worth it."""
    return hasattr(value, "getbands")


def as_image(image: Any) -> InputArray:  # noqa: ANN401
    """Return a PIL image as channels x height x width, from 0 to 1."""
    pixels: InputArray = np.asarray(image, np.float32) / np.float32(255)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


@dataclass(frozen=True)
class _LoaderForm:
    """What a data loader says of the examples it covers, in their order and not as they are shuffled.

    An order that changed with torch's random state would give a run that goes on other examples than it began with.
    """

    numbers: tuple[int, ...]
    collate: Callable[[list[Any]], Any] | None = None
    loaded: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _loader_form(loader: Examples, name: str) -> _LoaderForm:
    from torch.utils.data import (
        BatchSampler,
        RandomSampler,
        SequentialSampler,
        SubsetRandomSampler,
        WeightedRandomSampler,
        default_collate,
    )

    from coterie.training.data.generators import seeded

    loaded: dict[str, Any] = {}
    notes: list[str] = []
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        kind = type(batches).__name__
        with seeded(_SEED):
            found = [number for batch in batches for number in batch]
        notes.append(f"How the {kind} of {name} forms batches is not kept: training.batch_size says how large they are")
    else:
        sampler = batches.sampler if batches is not None else loader.sampler
        kind = type(sampler).__name__
        size = batches.batch_size if batches is not None else None
        if size is not None:
            loaded["training.batch_size"] = int(size)
        redraws = isinstance(sampler, WeightedRandomSampler) or (
            isinstance(sampler, RandomSampler) and (sampler.replacement or sampler.num_samples != len(loader.dataset))
        )
        if redraws:
            raise InputError(
                f"{name}: the data loader's {kind} draws other examples in every pass, and clients go through all of "
                "their own; give the data set itself, or a loader without this sampler"
            )
        if isinstance(sampler, SequentialSampler | RandomSampler | SubsetRandomSampler):
            loaded["training.shuffle"] = not isinstance(sampler, SequentialSampler)
        else:
            notes.append(f"The order of the {kind} of {name} is not kept: training.shuffle says what it is")
        with seeded(_SEED):
            found = list(sampler)
    numbers = tuple(sorted({int(number) for number in found}))
    if len(numbers) < len(found):
        raise InputError(
            f"{name}: the data loader's {kind} names an example twice, and clients go through their own once in a "
            "pass; give the data set itself"
        )
    if loader.drop_last:
        notes.append(f"The drop_last of the data loader of {name} is not kept: a last, smaller batch is trained on too")
    own = loader.collate_fn is not default_collate and batches is not None
    return _LoaderForm(numbers, loader.collate_fn if own else None, loaded, tuple(notes))


def _read_once(pairs: Iterable[Any], name: str) -> ReadExamples:
    """Read what comes one after the other and may not come again."""
    if isinstance(pairs, list | tuple):
        return ReadExamples(*_stacked(pairs))
    from coterie.training.data.generators import generator_states, seeded

    with seeded(_SEED):
        before = generator_states()
        x, y = _stacked(pairs)
        drew = generator_states() != before
    note = f"The examples of {name} have no numbers and are read once: what is random in them is drawn once"
    return ReadExamples(x, y, notes=(note,) if drew else ())


def _read_numbered(items: Examples, form: _LoaderForm, name: str) -> ReadExamples:
    """Read the examples of a torch data set, some of them more than once."""
    from coterie.training.data.generators import generator_states, seeded

    def one(number: int) -> Any:  # noqa: ANN401 - an input and a target
        if form.collate is None:
            return items[number]
        x, y = form.collate([items[number]])
        return x[0], y[0]

    def again(number: int, seed: int) -> tuple[bytes, bytes]:
        with seeded(seed):
            x, y = _stacked([one(number)])
        return x.tobytes(), y.tobytes()

    with seeded(_SEED):
        before = generator_states()
        x, y = _stacked([one(number) for number in form.numbers])
        fresh = generator_states() != before or form.collate is not None
    for number in form.numbers[:: max(1, len(form.numbers) // _TRIED)]:
        first = again(number, _SEED)
        if again(number, _SEED) != first:
            raise InputError(
                f"{name}: example {number} is another whenever it is read, whatever torch, numpy and random are seeded "
                "with, so that no run could be repeated or resumed; draw from one of their global generators, or read "
                "the examples once, by list(data_set)"
            )
        fresh = fresh or again(number, _SEED + 1) != first
    return ReadExamples(
        x, y, ExampleSource(items, form.numbers, form.collate) if fresh else None, form.loaded, form.notes
    )


def _stacked(pairs: Iterable[Any]) -> ExampleArrays:
    inputs, targets = zip(*pairs, strict=True)
    x = np.stack([as_image(one) if is_image(one) else np.asarray(one) for one in inputs])
    return _inputs(x), np.stack([np.asarray(one) for one in targets])


def _inputs(x: npt.NDArray[Any]) -> Inputs:
    return x.astype(np.int64) if x.dtype.kind == "i" else x.astype(np.float32)


def are_arrays(source: tuple[Any, ...]) -> bool:
    """Tell whether these are two arrays, inputs and targets, rather than two examples."""
    return len(source) == 2 and all(hasattr(part, "shape") for part in source)


def _is_loader(source: Examples) -> bool:
    return hasattr(source, "collate_fn") and hasattr(source, "sampler")


def _is_stream(dataset: Any) -> bool:  # noqa: ANN401
    from torch.utils.data import IterableDataset

    return isinstance(dataset, IterableDataset)
