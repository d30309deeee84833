"""Data supplied by the user: torch data sets, data loaders, arrays and columns, for all clients or for each one.

Examples are (input, target) pairs. They are read once into memory and used unchanged, with three exceptions. PIL
images (8 bits) become channels x height x width from 0 to 1. Signed integers stay integers, as tokens must; all other
inputs become float32. Targets of an integer type and one-hot rows are labels; other targets are those of a regression.

:mod:`coterie.training.data.example_readers` describes which examples are read again in every pass.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import ConfigError, InputError
from coterie.reports.words import count
from coterie.training.data.column_data import in_columns, join_columns
from coterie.training.data.dataset import Dataset, ExampleSource, Inputs
from coterie.training.data.example_readers import Examples, ReadExamples, are_arrays, one_hot_labels, read_source

_TEST_SET = "test set"
_SHOWN = 10  # classes that an error names


def from_torch(
    train: Examples, test: Examples = None, *, classes: int | None = None, name: str = "custom", one_hot: bool = True
) -> Dataset:
    """Read two torch data sets, or other sources of examples. By default ``classes`` is the largest label plus 1.

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
    columns: bool = True,
    client_tests: Mapping[str, Examples] | Sequence[Examples] | None = None,
) -> Dataset:
    """Read the examples of each client, given by name or as a list; see :func:`from_torch`.

    With ``columns``, a client may be a group whose members have different columns: ``({member: columns, ...},
    targets)``; see :mod:`coterie.training.data.column_data`. Otherwise such a dictionary is one of named inputs.
    ``client_tests`` are test examples of single clients, in the same form as ``clients``; some clients may have none.
    """
    if not isinstance(clients, Mapping):
        clients = dict(zip(client_names(len(clients)), clients, strict=True))
    for client in clients:
        if not (isinstance(client, str) and client):
            raise InputError(f"{name}: the name of a client is a text that is not empty, such as 'ann', not {client!r}")
    members: Mapping[str, int] | None = None
    if columns and any(map(in_columns, clients.values())):
        tested = {_TEST_SET: test} if in_columns(test) else {}
        joined, members = join_columns({**clients, **tested}, name)
        test = joined.pop(_TEST_SET, test)
        clients = joined
    read = {client: read_source(held, f"{name}, {client}") for client, held in clients.items()}
    if not read:
        raise InputError(f"{name}: there are no clients")
    first, model = next(iter(read.items()))
    for client, one in read.items():
        shapes = (one.x.shape[1:], one.y.shape[1:], one.fields) == (model.x.shape[1:], model.y.shape[1:], model.fields)
        if not shapes or one.x.dtype != model.x.dtype or (one.y.dtype.kind == "f") != (model.y.dtype.kind == "f"):
            raise InputError(
                f"{name}: the examples of {client!r} and {first!r} differ in shape or in kind: {client!r} has "
                f"{_form(one)}, and {first!r} has {_form(model)}"
            )
    held = _numbered(read, 0)
    common = _test(test, name)
    tests = _client_tests(client_tests, list(read), name)
    if tests and members:
        raise InputError(f"{name}: clients whose members have different columns cannot have tests of their own")
    together = _together([*([common] if common else []), *tests.values()], name)
    dataset = _dataset(name, read, together, classes, held, one_hot=one_hot)
    own = _numbered(tests, len(common.y) if common else 0) if tests else None
    return replace(dataset, members=members, client_tests=own)


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
    """Read two columns of two splits of a Hugging Face ``DatasetDict``.

    With flwr-datasets: ``{split: federated.load_split(split) for split in ("train", "test")}``. Any object that is
    indexed by split and then by column works.
    """

    def pairs(split: str) -> Iterable[Any]:
        try:
            return zip(splits[split][input_column], splits[split][label_column], strict=True)
        except KeyError as error:
            raise ConfigError(f"{name}: there is no split or column {error}") from error

    return from_torch(pairs(train_split), pairs(test_split), classes=classes, name=name)


def from_anything(
    given: Any,  # noqa: ANN401 - the result of a user's function
    *,
    name: str = "custom",
    columns: bool = True,
) -> Dataset:
    """Read a user function's result: a data set, examples, or examples by client; optionally a test set.

    A pair of arrays is the inputs and targets of examples. Any other pair is the training data and the test set.
    """
    if isinstance(given, Dataset):
        return given
    train, test = given if isinstance(given, tuple) and len(given) == 2 and not are_arrays(given) else (given, None)
    if isinstance(train, Mapping):
        return from_clients(train, test, name=name, columns=columns)
    return from_torch(train, test, name=name)


def client_names(count: int) -> list[str]:
    """Return default names for ``count`` clients."""
    width = len(str(count))
    return [f"client-{number:0{width}}" for number in range(1, count + 1)]


def _numbered(read: Mapping[str, ReadExamples], first: int) -> dict[str, npt.NDArray[np.int64]]:
    """Return the indices of each client's examples, which stand one after the other from ``first`` on."""
    ends = first + np.cumsum([len(one.y) for one in read.values()])
    return {client: np.arange(end - len(read[client].y), end) for client, end in zip(read, ends, strict=True)}


def _client_tests(
    tests: Mapping[str, Examples] | Sequence[Examples] | None, clients: Sequence[str], name: str
) -> dict[str, ReadExamples]:
    if tests is None:
        return {}
    if isinstance(tests, str) or not isinstance(tests, Mapping | Sequence):
        raise InputError(
            f"{name}: client_tests are the test examples of clients, by name or in a list, not {tests!r:.60}"
        )
    if not isinstance(tests, Mapping):
        if len(tests) != len(clients):
            raise InputError(
                f"{name}: client_tests has the tests of {len(tests)} clients, and there are {len(clients)}"
            )
        tests = dict(zip(clients, tests, strict=True))
    if unknown := sorted(set(tests) - set(clients)):
        raise InputError(f"{name}: client_tests names {unknown[0]!r}, which is no client; the first is {clients[0]!r}")
    return {client: read_source(tests[client], f"{name}, tests of {client}") for client in clients if client in tests}


def _together(parts: Sequence[ReadExamples], name: str) -> ReadExamples | None:
    """Return the test examples of several sources as one."""
    if not parts:
        return None
    shapes = {(one.x.shape[1:], one.y.shape[1:], one.x.dtype, one.y.dtype.kind, one.fields) for one in parts}
    if len(shapes) > 1:
        raise InputError(f"{name}: the test examples of the clients, or those of all, differ in shape or in kind")
    sources = [one.source for one in parts if one.source]
    return replace(
        parts[0],
        x=_joined([one.x for one in parts]),
        y=_joined([one.y for one in parts]),
        source=sources[0] if sources else None,
    )


def _test(test: Examples, name: str) -> ReadExamples | None:
    return None if test is None else read_source(test, f"{name}, test set")


def _refuse_infinite(one: ReadExamples, who: str) -> None:
    for what, values in (("inputs", one.x), ("targets", one.y)):
        if values.dtype.kind == "f" and (bad := int(np.count_nonzero(~np.isfinite(values)))):
            raise InputError(
                f"{who}: {what} must be finite numbers, but {bad:,} of {values.size:,} values are NaN or infinite"
            )


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
    given = {**read, **({_TEST_SET: test} if test else {})}
    for client, one in given.items():
        _refuse_infinite(one, f"{name}, {client}" if client else name)
    if test and test.fields != parts[0].fields:
        raise InputError(f"{name}: training and test examples have different named inputs, or in other shapes")
    train_x = _joined([one.x for one in parts])
    # numpy joins uint64 and int64 to floats, which would not be labels.
    train_y = _joined([one.y.astype(np.int64) if one.y.dtype == np.uint64 else one.y for one in parts])
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
    kept: dict[str, Any] = {
        "clients": clients,
        "sources": _sources(parts),
        "loaded": _loaded(read),
        "fields": parts[0].fields,
    }
    _refuse_text(name, given)
    if train_y.dtype.kind == "f" and classes is None:
        if one_hot and np.array_equal(train_y, np.round(train_y)):
            notes.append(
                f"Targets are whole, but of type {train_y.dtype}, and are taken as numbers: the loss is the squared "
                "error, and there is no accuracy; give labels as integers"
            )
        columns = [y.reshape(len(y), math.prod(y.shape[1:])).astype(np.float32) for y in (train_y, test_y)]
        return Dataset(name, train_x, columns[0], test_x, columns[1], None, notes=tuple(notes), **kept)
    _refuse_other_labels(name, given, train_y, test_y)
    for client, one in given.items():
        if (least := one.y.min(initial=0)) < 0:
            who = f"{name}, {client}" if client else name
            raise InputError(f"{who}: labels are whole numbers from 0 on, not {least}; number them again, from 0")
    number = classes or 1 + int(max(y.max(initial=0) for y in (train_y, test_y)))
    whole = [y.astype(np.int64) for y in (train_y, test_y)]
    return Dataset(name, train_x, whole[0], test_x, whole[1], number, notes=tuple(notes), **kept)


def _refuse_text(name: str, given: Mapping[str, ReadExamples]) -> None:
    """Refuse labels that are text, and say how to number them."""
    text = {who: one.y for who, one in given.items() if _is_text(one.y)}
    if not text:
        return
    seen = sorted({str(label) for y in text.values() for label in y.ravel().tolist()})
    shown = seen if len(seen) <= _SHOWN else [*seen[:_SHOWN], "..."]
    numbers = next((who for who in given if who not in text), None)
    mixed = "" if numbers is None else f", in {_whose(next(iter(text)))}, and numbers in {_whose(numbers)}"
    raise InputError(
        f"{name}: labels are text, of {count(len(seen), 'class', 'classes')}: {', '.join(shown)}{mixed}. Map them to "
        f"the numbers from 0 to {len(seen) - 1}, in the same way for all clients and the test set: classes = "
        "sorted(set(labels)); numbers = [classes.index(label) for label in labels]"
    )


def _refuse_other_labels(name: str, given: Mapping[str, ReadExamples], *targets: npt.NDArray[Any]) -> None:
    """Refuse labels that are not whole numbers."""
    if all(y.dtype.kind in "biu" for y in targets):
        return
    who, odd = next((who, one.y) for who, one in given.items() if one.y.dtype.kind not in "biu")
    label = next((label for label in odd.ravel().tolist() if not isinstance(label, int)), None)
    raise InputError(
        f"{name}: labels must be whole numbers, and those of {_whose(who)} have the type {odd.dtype}, such as "
        f"{label!r}. Give every label a number from 0 on, in the same way for all clients and the test set"
    )


def _is_text(y: npt.NDArray[Any]) -> bool:
    return y.dtype.kind in "US" or (
        y.dtype == object and y.size > 0 and all(isinstance(label, str) for label in y.ravel().tolist())
    )


def _whose(who: str) -> str:
    """Return whose examples these are; in errors."""
    if not who:
        return "the training examples"
    return "the test set" if who == _TEST_SET else repr(who)


def _form(one: ReadExamples) -> str:
    """Return the shape and kind of examples; in errors."""
    inputs = "inputs " + " x ".join(map(str, one.x.shape[1:])) if one.x.shape[1:] else "single numbers as inputs"
    if one.fields:
        inputs = "the named inputs " + ", ".join(field.name for field in one.fields.fields)
    targets = " x ".join(map(str, one.y.shape[1:])) if one.y.shape[1:] else "single"
    return f"{inputs} ({one.x.dtype}) and {targets} targets ({one.y.dtype})"


class ExamplePairs:
    """Examples in two arrays, indexed by number."""

    def __init__(self, x: Inputs, y: npt.NDArray[Any]) -> None:
        self._x, self._y = x, y

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        return self._x[number], self._y[number]


def _sources(parts: Sequence[ReadExamples]) -> tuple[ExampleSource, ...]:
    """Return the sources of all examples if any source must be read again in every pass."""
    if not any(part.source for part in parts):
        return ()
    return tuple(
        part.source or ExampleSource(ExamplePairs(part.x, part.y), tuple(range(len(part.y)))) for part in parts
    )


def _loaded(read: Mapping[str, ReadExamples]) -> dict[str, dict[str, Any]]:
    """Return the settings taken from loaders, by setting and then by client."""
    keys = dict.fromkeys(key for one in read.values() for key in one.loaded)
    return {key: {client: one.loaded[key] for client, one in read.items() if key in one.loaded} for key in keys}


def _joined(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
