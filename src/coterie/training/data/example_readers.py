"""Readers of examples from data sets, data loaders, arrays and lists of pairs.

Most examples are read once into memory. Two kinds are read again in every pass: those of a torch data set that draws
random numbers (random transforms), and those of a data loader with its own ``collate_fn``. The batch size and the
shuffling of a data loader become settings of the run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.errors import CoterieError, InputError
from coterie.training.data.dataset import ExampleSource, InputArray, Inputs
from coterie.training.data.keyword_inputs import PADDING, InputFields, read_fields

Examples: TypeAlias = Any
"""A torch data set, map-style or iterable, a data loader, a pair of arrays (inputs, targets), or a list of pairs.

Inputs may have names: a dictionary of arrays, each with one row for each example.
"""
ExampleArrays: TypeAlias = tuple[Inputs, npt.NDArray[Any], InputFields | None]


_FORMS = "Give a pair of arrays (inputs, targets), a list of pairs (input, target), a torch data set or a data loader"
_TRIED = 64  # number of examples that are read twice to find out whether they change
_SEED = 1
_SHOWN_KEYS = 5


@dataclass(frozen=True, eq=False)
class ReadExamples:
    """Examples that were read, and their source if they change from one reading to the next."""

    x: Inputs
    y: npt.NDArray[Any]
    fields: InputFields | None = None
    """Where each named array is in ``x``, if inputs have names."""
    source: ExampleSource | None = None
    """None if the examples do not change or cannot be read again."""
    loaded: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_source(source: Examples, name: str) -> ReadExamples:
    """Read examples once. If another reading gives other examples, keep their source.

    Raise :class:`InputError` unless they are pairs of numbers of equal shapes.
    """
    _check_kind(source, name)
    try:
        if isinstance(source, tuple) and (are_arrays(source) or _has_names(source)):
            y = np.asarray(source[1])
            x, fields = _inputs(source[0], name)
            if len(x) != len(y):
                raise InputError(f"{name}: {len(x)} inputs and {len(y)} targets")
            return ReadExamples(x, y, fields)
        loader = _is_loader(source)
        if isinstance(source, Iterable) and not loader:
            return _read_once(source, name)
        if loader and _is_stream(source.dataset):
            pairs = (pair for x, y in source for pair in zip(x, y, strict=True))
            return replace(_read_once(pairs, name), loaded={"training.batch_size": source.batch_size or 1})
        form = _loader_form(source, name) if loader else _LoaderForm(tuple(range(len(source))))
        return _read_numbered(source.dataset if loader else source, form, name)
    except CoterieError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name}: not pairs of equally shaped arrays of numbers: {error}. {_FORMS}") from error


def _check_kind(source: object, name: str) -> None:
    """Refuse what has no examples in it, such as the path of a file."""
    if isinstance(source, str | bytes | PathLike):
        raise InputError(f"{name}: expected examples, not {source!r}. Read the file first. {_FORMS}")
    if isinstance(source, Mapping):
        keys = ", ".join(map(repr, list(source)[:_SHOWN_KEYS]))
        raise InputError(f"{name}: expected examples, not a dictionary with the keys {keys}. {_FORMS}")
    if not (isinstance(source, Iterable) or hasattr(source, "__getitem__") or _is_loader(source)):
        raise InputError(f"{name}: expected examples, not {source!r:.60}. {_FORMS}")


def one_hot_labels(y: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """Return the index of the 1 in each row if every row is one-hot; None otherwise."""
    if y.ndim != 2 or y.shape[1] < 2 or y.dtype.kind not in "fbiu" or not len(y):
        return None
    if not (((y == 0) | (y == 1)).all() and (np.count_nonzero(y, axis=1) == 1).all()):
        return None
    labels: npt.NDArray[np.int64] = y.argmax(1).astype(np.int64)
    return labels


def is_image(value: object) -> bool:
    """Return whether this is a PIL image, without importing PIL."""
    return hasattr(value, "getbands")


def as_image(image: Any) -> InputArray:  # noqa: ANN401 - an image of PIL, which is not imported
    """Return a PIL image as channels x height x width, from 0 to 1."""
    pixels: InputArray = np.asarray(image, np.float32) / np.float32(255)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


@dataclass(frozen=True)
class _LoaderForm:
    """A data loader's settings and the indices of its examples, in ascending order rather than shuffled.

    If the order changed with torch's random state, a resumed run would have other examples than before.
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
        notes.append(f"The batches of the {kind} of {name} are not kept: training.batch_size sets their size")
    else:
        sampler = batches.sampler if batches is not None else loader.sampler
        kind = type(sampler).__name__
        size = batches.batch_size if batches is not None else None
        if size is not None:
            loaded["training.batch_size"] = int(size)
            loaded["training.drop_last"] = bool(loader.drop_last)
        redraws = isinstance(sampler, WeightedRandomSampler) or (
            isinstance(sampler, RandomSampler) and (sampler.replacement or sampler.num_samples != len(loader.dataset))
        )
        if redraws:
            raise InputError(
                f"{name}: the data loader's {kind} draws other examples in every pass, but a client trains on all its "
                "examples in every pass; give the data set itself, or a loader without this sampler"
            )
        if isinstance(sampler, SequentialSampler | RandomSampler | SubsetRandomSampler):
            loaded["training.shuffle"] = not isinstance(sampler, SequentialSampler)
        else:
            notes.append(f"The order of the {kind} of {name} is not kept: training.shuffle sets it")
        with seeded(_SEED):
            found = list(sampler)
    numbers = tuple(sorted({int(number) for number in found}))
    if len(numbers) < len(found):
        raise InputError(
            f"{name}: the data loader's {kind} repeats an example, but a client trains on each example once per pass; "
            "give the data set itself"
        )
    own = loader.collate_fn is not default_collate and batches is not None
    return _LoaderForm(numbers, loader.collate_fn if own else None, loaded, tuple(notes))


def _read_once(pairs: Iterable[Any], name: str) -> ReadExamples:
    """Read a sequence of pairs that may not be readable a second time."""
    if isinstance(pairs, list | tuple):
        return ReadExamples(*_stacked(pairs, name))
    from coterie.training.data.generators import generator_states, seeded

    with seeded(_SEED):
        before = generator_states()
        x, y, fields = _stacked(pairs, name)
        drew = generator_states() != before
    note = f"The examples of {name} have no index and are read once, so their random transforms are drawn once"
    return ReadExamples(x, y, fields, notes=(note,) if drew else ())


def _read_numbered(items: Examples, form: _LoaderForm, name: str) -> ReadExamples:
    """Read the examples of a torch data set, and some of them again to find out whether they change."""
    from coterie.training.data.generators import generator_states, seeded

    def one(number: int) -> Any:  # noqa: ANN401 - an input and a target
        try:
            found = items[number]
        except CoterieError:
            raise
        except Exception as error:
            raise InputError(f"{name}: example {number} cannot be read: {type(error).__name__}: {error}") from error
        if form.collate is None:
            return found
        x, y = form.collate([found])
        return {key: rows[0] for key, rows in x.items()} if isinstance(x, Mapping) else x[0], y[0]

    def again(number: int, seed: int) -> tuple[bytes, bytes]:
        with seeded(seed):
            x, y, _ = _stacked([one(number)], name)
        return x.tobytes(), y.tobytes()

    with seeded(_SEED):
        before = generator_states()
        x, y, fields = _stacked([one(number) for number in form.numbers], name)
        fresh = generator_states() != before or form.collate is not None
    for number in form.numbers[:: max(1, len(form.numbers) // _TRIED)]:
        first = again(number, _SEED)
        if again(number, _SEED) != first:
            raise InputError(
                f"{name}: example {number} changes whenever it is read, even with torch, numpy and random seeded, so a "
                "run could not be repeated or resumed; draw from one of their global generators, or read the examples "
                "once with list(data_set)"
            )
        fresh = fresh or again(number, _SEED + 1) != first
    return ReadExamples(
        x, y, fields, ExampleSource(items, form.numbers, form.collate) if fresh else None, form.loaded, form.notes
    )


def _stacked(pairs: Iterable[Any], name: str) -> ExampleArrays:
    listed = list(pairs)
    if listed and isinstance(listed[0], Mapping):
        raise InputError(
            f"{name}: an example is a dictionary with the keys {', '.join(map(str, listed[0]))}; give pairs instead: "
            "({name: input, ...}, target)"
        )
    inputs, targets = zip(*listed, strict=True)
    if isinstance(inputs[0], Mapping):
        keys = inputs[0].keys()
        odd = next((number for number, one in enumerate(inputs) if set(one) != set(keys)), None)
        if odd is not None:
            raise InputError(
                f"{name}: example {odd} has the inputs {', '.join(inputs[odd])}, and the first {', '.join(keys)}"
            )
        stacked: Any = {key: _stack([np.asarray(one[key]) for one in inputs], f"{name}, {key!r}") for key in keys}
    else:
        stacked = _stack([as_image(one) if is_image(one) else np.asarray(one) for one in inputs], name)
    x, fields = _inputs(stacked, name)
    return x, np.stack([np.asarray(one) for one in targets]), fields


def _stack(inputs: Sequence[npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    """Stack inputs of equal shapes."""
    odd = next((number for number, one in enumerate(inputs) if one.shape != inputs[0].shape), None)
    if odd is not None:
        raise InputError(
            f"{name}: input 0 has the shape {inputs[0].shape} and input {odd} the shape {inputs[odd].shape}; {PADDING}"
        )
    return np.stack(inputs)


def _inputs(x: Any, name: str) -> tuple[Inputs, InputFields | None]:  # noqa: ANN401 - an array, or named arrays
    """Return inputs as a data set has them; named arrays side by side."""
    if isinstance(x, Mapping):
        arrays = read_fields(x, name)
        fields = InputFields.of(arrays)
        return fields.pack(arrays), fields
    array = np.asarray(x)
    if array.dtype == object and array.ndim == 1 and not any(isinstance(one, str) for one in array):
        array = _stack([np.asarray(one) for one in array], name)
    if array.dtype.kind in "US" or (array.dtype == object and isinstance(array.flat[0], str)):
        raise InputError(f"{name}: inputs are text, not numbers; convert them first, for example with a tokenizer")
    if array.dtype.kind == "c":
        raise InputError(f"{name}: inputs are complex numbers; give their real and imaginary parts as two inputs")
    return array.astype(np.int64) if array.dtype.kind == "i" else array.astype(np.float32), None


def are_arrays(source: tuple[Any, ...]) -> bool:
    """Return whether this is a pair of arrays, inputs and targets, rather than two examples; inputs may have names."""
    if len(source) != 2:
        return False
    inputs = list(source[0].values()) if isinstance(source[0], Mapping) else [source[0]]
    return bool(inputs) and all(hasattr(part, "shape") for part in (*inputs, source[1]))


def _has_names(source: tuple[Any, ...]) -> bool:
    """Return whether this is a pair of named inputs, perhaps in lists, and targets."""
    return len(source) == 2 and isinstance(source[0], Mapping)


def _is_loader(source: Examples) -> bool:
    return hasattr(source, "collate_fn") and hasattr(source, "sampler")


def _is_stream(dataset: object) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(dataset, IterableDataset)
