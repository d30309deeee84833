"""Examples that users bring along: torch data sets, data loaders, arrays, columns, and a set of them for each client.

Examples are (input, target) pairs. They are read once, into memory, and taken as they come, with three exceptions. PIL
images (of 8 bits) become channels x height x width from 0 to 1. Signed whole numbers stay whole, as tokens must; all
other inputs become float32. Whole targets are labels; targets with a fraction are those of a regression.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.errors import ConfigError, InputError
from coterie.training.data.datasets import Dataset, InputArray, Inputs

Examples: TypeAlias = Any
"""A torch data set, map-style or iterable, a data loader, a pair of arrays (inputs, targets), or a list of pairs."""
ExampleArrays: TypeAlias = tuple[Inputs, npt.NDArray[Any]]


def from_torch(train: Examples, test: Examples = None, *, classes: int | None = None, name: str = "custom") -> Dataset:
    """Take the examples of two torch data sets, or of anything alike; labels are of ``classes``, or as occur."""
    return _dataset(name, read_examples(train, name), _test(test, name), classes)


def from_clients(
    clients: Mapping[str, Examples] | Sequence[Examples],
    test: Examples = None,
    *,
    classes: int | None = None,
    name: str = "custom",
) -> Dataset:
    """Take the examples of each client, by its name or in a list; see :func:`from_torch`."""
    if not isinstance(clients, Mapping):
        clients = dict(zip(client_names(len(clients)), clients, strict=True))
    read = {client: read_examples(held, f"{name}, {client}") for client, held in clients.items()}
    if not read:
        raise InputError(f"{name}: there are no clients")
    first, (model_x, model_y) = next(iter(read.items()))
    for client, (x, y) in read.items():
        shapes = (x.shape[1:], y.shape[1:]) == (model_x.shape[1:], model_y.shape[1:])
        if not shapes or x.dtype != model_x.dtype or (y.dtype.kind == "f") != (model_y.dtype.kind == "f"):
            raise InputError(f"{name}: the examples of {client!r} and {first!r} differ in shape or in kind")
    ends = np.cumsum([len(y) for _, y in read.values()])
    held = {client: np.arange(end - len(read[client][1]), end) for client, end in zip(read, ends, strict=True)}
    together = np.concatenate([x for x, _ in read.values()]), np.concatenate([y for _, y in read.values()])
    return _dataset(name, together, _test(test, name), classes, held)


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
    try:
        if isinstance(source, tuple) and _are_arrays(source):
            x, y = (np.asarray(part) for part in source)
            if len(x) != len(y):
                raise InputError(f"{name}: {len(x)} inputs and {len(y)} targets")
        else:
            inputs, targets = zip(*_pairs(source), strict=True)
            x = np.stack([_image(one) if hasattr(one, "getbands") else np.asarray(one) for one in inputs])
            y = np.stack([np.asarray(one) for one in targets])
        return (x.astype(np.int64) if x.dtype.kind == "i" else x.astype(np.float32)), y
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name}: not pairs of equally shaped arrays of numbers: {error}") from error


def _are_arrays(source: tuple[Any, ...]) -> bool:
    return len(source) == 2 and all(hasattr(part, "shape") for part in source)


def _pairs(source: Examples) -> Iterator[Any]:
    if hasattr(source, "collate_fn") and hasattr(source, "sampler"):
        yield from _loaded(source)
    elif hasattr(source, "__iter__"):
        yield from source
    else:
        yield from (source[index] for index in range(len(source)))


def _loaded(loader: Examples) -> Iterator[Any]:
    """Go through what a torch data loader covers; where that has an order, in this order and not as it is shuffled.

    An order that changed with torch's random state would give a run that goes on other examples than it began with.
    """
    if hasattr(loader.dataset, "__iter__"):
        for x, y in loader:
            yield from zip(x, y, strict=True)
    else:
        for index in sorted(set(loader.sampler)):
            x, y = loader.collate_fn([loader.dataset[index]])
            yield x[0], y[0]


def _test(test: Examples, name: str) -> ExampleArrays | None:
    return None if test is None else read_examples(test, f"{name}, test set")


def _dataset(
    name: str,
    train: ExampleArrays,
    test: ExampleArrays | None,
    classes: int | None,
    clients: Mapping[str, npt.NDArray[np.int64]] | None = None,
) -> Dataset:
    (train_x, train_y), (test_x, test_y) = train, test or (train[0][:0], train[1][:0])
    if train_y.dtype.kind == "f" and classes is None:
        columns = [y.reshape(len(y), math.prod(y.shape[1:])).astype(np.float32) for y in (train_y, test_y)]
        return Dataset(name, train_x, columns[0], test_x, columns[1], None, clients)
    if not {train_y.dtype.kind, test_y.dtype.kind} <= set("biu"):
        raise InputError(f"{name}: labels must be whole numbers, not {train_y.dtype} and {test_y.dtype}")
    count = classes or 1 + int(max(y.max(initial=0) for y in (train_y, test_y)))
    return Dataset(name, train_x, train_y.astype(np.int64), test_x, test_y.astype(np.int64), count, clients)


def _image(image: Any) -> InputArray:  # noqa: ANN401  (a PIL image; importing PIL to say so is not worth it)
    pixels: InputArray = np.asarray(image, np.float32) / np.float32(255)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
