"""Examples that users bring along: torch data sets, data loaders, arrays, columns, and a set of them for each client.

Examples are (input, target) pairs. They are read once, into memory, and taken as they come, with three exceptions. PIL
images (of 8 bits) become channels x height x width from 0 to 1. Signed whole numbers stay whole, as tokens must; all
other inputs become float32. Targets of whole-number type are labels, and so are one-hot rows; other targets are those
of a regression.

Examples of a torch data set that draws random numbers when it is read (random transforms), and those of a data loader
with a ``collate_fn`` of its own, are read anew in every pass. A data loader also says how large batches are and whether
they are shuffled.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.errors import ConfigError, InputError
from coterie.training.data.datasets import Dataset, ExampleSource, InputArray, Inputs

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


def from_torch(
    train: Examples, test: Examples = None, *, classes: int | None = None, name: str = "custom", one_hot: bool = True
) -> Dataset:
    """Take the examples of two torch data sets, or of anything alike; labels are of ``classes``, or as occur.

    With ``one_hot``, targets that are rows with a single 1 are labels; otherwise they are numbers.
    """
    return _dataset(name, {"": read_source(train, name)}, _test(test, name), classes, one_hot=one_hot)


def from_clients(
    clients: Mapping[str, Examples] | Sequence[Examples],
    test: Examples = None,
    *,
    classes: int | None = None,
    name: str = "custom",
    one_hot: bool = True,
) -> Dataset:
    """Take the examples of each client, by its name or in a list; see :func:`from_torch`."""
    if not isinstance(clients, Mapping):
        clients = dict(zip(client_names(len(clients)), clients, strict=True))
    read = {client: read_source(held, f"{name}, {client}") for client, held in clients.items()}
    if not read:
        raise InputError(f"{name}: there are no clients")
    first, model = next(iter(read.items()))
    for client, one in read.items():
        shapes = (one.x.shape[1:], one.y.shape[1:]) == (model.x.shape[1:], model.y.shape[1:])
        if not shapes or one.x.dtype != model.x.dtype or (one.y.dtype.kind == "f") != (model.y.dtype.kind == "f"):
            raise InputError(f"{name}: the examples of {client!r} and {first!r} differ in shape or in kind")
    ends = np.cumsum([len(one.y) for one in read.values()])
    held = {client: np.arange(end - len(read[client].y), end) for client, end in zip(read, ends, strict=True)}
    return _dataset(name, read, _test(test, name), classes, held, one_hot=one_hot)


def from_huggingface(
    splits: Mapping[str, Any],
    input_column: str,
    label_column: str,
    *,
    train_split: str = "train",
    test_split: str = "test",
    classes: int | None = None,
    name: str = "custom",
) -> Dataset:
    """Take two columns of two splits of a Hugging Face ``DatasetDict``.

    With flwr-datasets: ``{split: federated.load_split(split) for split in ("train", "test")}``. Anything that is
    indexed by split and then by column will do.
    """

    def pairs(split: str) -> Iterable[Any]:
        try:
            return zip(splits[split][input_column], splits[split][label_column], strict=True)
        except KeyError as error:
            raise ConfigError(f"{name}: there is no split or column {error}") from error

    return from_torch(pairs(train_split), pairs(test_split), classes=classes, name=name)


def from_anything(given: Any, *, classes: int | None = None, name: str = "custom") -> Dataset:  # noqa: ANN401
    """Take what a function returns: a data set, examples, or a dictionary of them by client; or that and a test set.

    Two arrays are the inputs and the targets of examples; any other two things are what to train on and a test set.
    """
    if isinstance(given, Dataset):
        return given
    train, test = given if isinstance(given, tuple) and len(given) == 2 and not _are_arrays(given) else (given, None)
    if isinstance(train, Mapping):
        return from_clients(train, test, classes=classes, name=name)
    return from_torch(train, test, classes=classes, name=name)


def client_names(count: int) -> list[str]:
    """Return names for clients that have none."""
    width = len(str(count))
    return [f"client-{number:0{width}}" for number in range(1, count + 1)]


def read_examples(source: Examples, name: str) -> ExampleArrays:
    """Read examples into two arrays; :class:`InputError` where they are not equally shaped pairs of numbers."""
    read = read_source(source, name)
    return read.x, read.y


def read_source(source: Examples, name: str) -> ReadExamples:
    """Read examples once, and find out whether another reading gives others: then keep where they come from."""
    try:
        if isinstance(source, tuple) and _are_arrays(source):
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

    from coterie.training.data.fresh import seeded

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
    from coterie.training.data.fresh import generator_states, seeded

    with seeded(_SEED):
        before = generator_states()
        x, y = _stacked(pairs)
        drew = generator_states() != before
    note = f"The examples of {name} have no numbers and are read once: what is random in them is drawn once"
    return ReadExamples(x, y, notes=(note,) if drew else ())


def _read_numbered(items: Examples, form: _LoaderForm, name: str) -> ReadExamples:
    """Read the examples of a torch data set, some of them more than once."""
    from coterie.training.data.fresh import generator_states, seeded

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


def _are_arrays(source: tuple[Any, ...]) -> bool:
    return len(source) == 2 and all(hasattr(part, "shape") for part in source)


def _is_loader(source: Examples) -> bool:
    return hasattr(source, "collate_fn") and hasattr(source, "sampler")


def _is_stream(dataset: Any) -> bool:  # noqa: ANN401
    from torch.utils.data import IterableDataset

    return isinstance(dataset, IterableDataset)


def _test(test: Examples, name: str) -> ReadExamples | None:
    return None if test is None else read_source(test, f"{name}, test set")


def _dataset(
    name: str,
    read: Mapping[str, ReadExamples],
    test: ReadExamples | None,
    classes: int | None,
    clients: Mapping[str, npt.NDArray[np.int64]] | None = None,
    *,
    one_hot: bool,
) -> Dataset:
    parts = list(read.values())
    train_x, train_y = (_joined([one.x for one in parts]), _joined([one.y for one in parts]))
    test_x, test_y = (test.x, test.y) if test else (train_x[:0], train_y[:0])
    notes = list(dict.fromkeys(note for one in parts for note in one.notes))
    if test and test.source:
        notes.append("Test examples are read once: what is random in them is drawn once")
    if one_hot and train_y.ndim == 2 and (labels := one_hot_labels(train_y)) is not None:
        notes.append(
            "Targets are one-hot rows and are taken as labels; give a loss of your own to learn them as numbers"
        )
        classes, train_y = classes or train_y.shape[1], labels
        test_y = test_y if len(test_y) else labels[:0]
    if one_hot and train_y.dtype.kind in "biu" and (labels := one_hot_labels(test_y)) is not None:
        test_y = labels
    kept: dict[str, Any] = {"clients": clients, "sources": _sources(parts), "loaded": _loaded(read)}
    if train_y.dtype.kind == "f" and classes is None:
        if one_hot and np.array_equal(train_y, np.round(train_y)):
            notes.append(
                f"Targets are whole, but of type {train_y.dtype}, and are taken as numbers: the loss is the squared "
                "error, and there is no accuracy; give labels as integers"
            )
        columns = [y.reshape(len(y), math.prod(y.shape[1:])).astype(np.float32) for y in (train_y, test_y)]
        return Dataset(name, train_x, columns[0], test_x, columns[1], None, notes=tuple(notes), **kept)
    if not {train_y.dtype.kind, test_y.dtype.kind} <= set("biu"):
        raise InputError(f"{name}: labels must be whole numbers, not {train_y.dtype} and {test_y.dtype}")
    count = classes or 1 + int(max(y.max(initial=0) for y in (train_y, test_y)))
    whole = [y.astype(np.int64) for y in (train_y, test_y)]
    return Dataset(name, train_x, whole[0], test_x, whole[1], count, notes=tuple(notes), **kept)


class ExamplePairs:
    """Examples in two arrays, by number."""

    def __init__(self, x: Inputs, y: npt.NDArray[Any]) -> None:
        self._x, self._y = x, y

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        return self._x[number], self._y[number]


def _sources(parts: Sequence[ReadExamples]) -> tuple[ExampleSource, ...]:
    """Return where all examples are read from, if some are to be read anew."""
    if not any(part.source for part in parts):
        return ()
    return tuple(
        part.source or ExampleSource(ExamplePairs(part.x, part.y), tuple(range(len(part.y)))) for part in parts
    )


def _loaded(read: Mapping[str, ReadExamples]) -> dict[str, dict[str, Any]]:
    """Return what the loaders say, by setting and then by client."""
    keys = dict.fromkeys(key for one in read.values() for key in one.loaded)
    return {key: {client: one.loaded[key] for client, one in read.items() if key in one.loaded} for key in keys}


def _joined(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
