"""Examples of users in every accepted form."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data import Dataset as TorchDataset

from coterie.errors import ConfigError, InputError
from coterie.training.data.datasets import Dataset, load
from coterie.training.data.example_readers import read_source
from coterie.training.data.user_data import from_anything, from_clients, from_torch

X, Y = np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(6) % 3
TENSORS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


class Endless(IterableDataset[Any]):
    """Examples that can only be iterated over."""

    def __iter__(self) -> Any:  # noqa: ANN401
        return iter(TENSORS[index] for index in range(6))


SOURCES = {
    "data set": TENSORS,
    "iterable": Endless(),
    "arrays": (X, Y),
    "tensors": (torch.from_numpy(X), torch.from_numpy(Y)),
    "pairs": list(zip(X, Y, strict=True)),
    "loader": DataLoader(TENSORS, batch_size=4),
    "shuffled loader": DataLoader(TENSORS, batch_size=4, shuffle=True, drop_last=True),
    "iterable's loader": DataLoader(Endless(), batch_size=4),
}


@pytest.mark.parametrize("form", SOURCES)
def test_all_forms_are_the_same_examples_in_the_same_order(form: str) -> None:
    read = read_source(SOURCES[form], form)
    x, y = read.x, read.y
    assert np.array_equal(x, X)
    assert np.array_equal(y, Y)
    assert x.dtype == np.float32


def test_a_loader_covers_what_its_sampler_does() -> None:
    read = read_source(DataLoader(TENSORS, sampler=SubsetRandomSampler([4, 1])), "some")
    assert np.array_equal(read.x, X[[1, 4]])


class Restless(TorchDataset[Any]):
    """Examples with random numbers from a generator of their own, which a run cannot seed."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401
        return X[index] + self.rng.random(2), Y[index]


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        (
            DataLoader(TENSORS, sampler=WeightedRandomSampler([1.0] * 6, 6)),
            "WeightedRandomSampler draws other examples",
        ),
        (DataLoader(TENSORS, sampler=RandomSampler(TENSORS, replacement=True)), "RandomSampler draws other examples"),
        (DataLoader(TENSORS, sampler=[0, 1, 1]), "list repeats an example"),
        (Restless(), r"example 0 changes whenever it is read.*list\(data_set\)"),
    ],
)
def test_loader_features_that_a_run_cannot_keep_are_refused(source: Any, wrong: str) -> None:  # noqa: ANN401
    with pytest.raises(InputError, match=wrong):
        read_source(source, "mine")


def test_differences_from_the_loader_are_reported() -> None:
    loader = DataLoader(TENSORS, batch_size=4, sampler=[5, 0, 3], drop_last=True)
    data = from_torch(loader)
    assert np.array_equal(data.train_x, X[[0, 3, 5]])
    assert data.loaded == {"training.batch_size": {"": 4}, "training.drop_last": {"": True}}
    assert [note.split(" is not kept")[0] for note in data.notes] == ["The order of the list of custom"]
    grouped = from_torch(DataLoader(TENSORS, batch_sampler=[[1, 2], [4]]))
    assert np.array_equal(grouped.train_x, X[[1, 2, 4]])
    assert "The batches of the" in grouped.notes[0]
    assert not grouped.loaded


def test_shuffling_a_list_in_a_loader_changes_nothing_about_its_examples() -> None:
    pairs = list(zip(X, Y, strict=True))
    for _ in range(3):
        assert np.array_equal(read_source(DataLoader(pairs, batch_size=2, shuffle=True), "pairs").x, X)  # type: ignore[arg-type]


@given(st.integers(2, 5), st.integers(1, 9), st.sampled_from(["float32", "float64", "int64", "bool"]))
def test_one_hot_rows_are_labels(classes: int, count: int, dtype: str) -> None:
    labels = np.arange(count) % classes
    data = from_torch((np.zeros((count, 2)), np.eye(classes, dtype=dtype)[labels]))
    assert data.classes == classes
    assert np.array_equal(data.train_y, labels)
    assert data.notes
    if dtype.startswith("float"):
        numbers = from_torch((np.zeros((count, 2)), np.eye(classes, dtype=dtype)[labels]), one_hot=False)
        assert numbers.classes is None
        assert numbers.train_y.shape == (count, classes)
        softer = np.eye(classes, dtype=dtype)[labels] * 0.5
        assert from_torch((np.zeros((count, 2)), softer)).classes is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [("int64", "int64"), ("int32", "int64"), ("uint8", "float32"), ("bool", "float32"), ("float64", "float32")],
)
def test_signed_whole_numbers_stay_whole(given: str, kept: str) -> None:
    x = read_source((X.astype(given), Y), "typed").x
    assert x.dtype == kept
    pairs = read_source(list(zip(X.astype(given), Y, strict=True)), "typed").x
    assert pairs.dtype == kept


@pytest.mark.parametrize("other", ["int64", "uint64", "uint8", "bool"])
@pytest.mark.parametrize("classes", [None, 2])
def test_whole_numbers_of_any_type_are_labels(other: str, classes: int | None) -> None:
    labels = np.array([0, 1, 1, 0])
    data = from_clients({"ann": (X[:4], labels), "bob": (X[:4], labels.astype(other))}, classes=classes)
    assert data.classes == 2
    assert data.train_y.tolist() == [*labels, *labels]


def test_the_client_whose_numbers_are_not_finite_is_named() -> None:
    x, y = np.ones((4, 3)), np.linspace(0, 1, 4)
    bad_x, bad_y = x.copy(), y.copy()
    bad_x[2, 1], bad_y[0] = np.nan, np.inf
    with pytest.raises(InputError, match="custom, bob: inputs must be finite numbers, but 1 of 12 values"):
        from_clients({"ann": (x, y), "bob": (bad_x, y)})
    with pytest.raises(InputError, match="custom, bob: targets must be finite numbers, but 1 of 4 values"):
        from_clients({"ann": (x, y), "bob": (x, bad_y)})
    with pytest.raises(InputError, match="custom, test set: inputs must be finite numbers"):
        from_clients({"ann": (x, y)}, (bad_x, y))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_clients_keep_their_own_examples(sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    brought = {f"c{number}": (rng.random((size, 3)), rng.integers(0, 9, size)) for number, size in enumerate(sizes)}
    data = from_clients(brought, (rng.random((2, 3)), np.array([0, 9])))
    assert data.clients is not None
    assert list(data.clients) == list(brought)
    assert data.classes == 10
    assert sorted(np.concatenate(list(data.clients.values()))) == list(range(sum(sizes)))
    for name, (x, y) in brought.items():
        assert np.array_equal(data.train_x[data.clients[name]], x.astype(np.float32))
        assert np.array_equal(data.train_y[data.clients[name]], y)
    listed = from_clients(list(brought.values())).clients
    assert listed is not None
    assert list(listed) == [f"client-{number}" for number in range(1, len(sizes) + 1)]


@pytest.mark.parametrize(
    ("clients", "wrong"),
    [
        ({}, "no clients"),
        ({"ann": (X, Y), "bob": (X[:, :1], Y)}, "'bob' and 'ann' differ"),
        ({"ann": (X, Y), "bob": (X, Y + 0.5)}, "'bob' and 'ann' differ"),
        ({"ann": (X, Y), "bob": (X.astype(int), Y)}, "'bob' and 'ann' differ"),
        ({"ann": (X, Y), "bob": (X, Y[:2])}, "bob: 6 inputs and 2 targets"),
        ({"ann": (X, Y), "bob": []}, "bob: not pairs"),
        ({"ann": (X[:0], Y[:0])}, "no examples"),
    ],
)
def test_clients_that_do_not_fit_are_named(clients: Any, wrong: str) -> None:  # noqa: ANN401
    with pytest.raises(InputError, match=wrong):
        from_clients(clients)


def test_without_a_test_set_there_are_no_test_examples() -> None:
    for targets in (Y, Y + 0.5):
        data = from_torch((X, targets))
        assert len(data.test_x) == len(data.test_y) == 0
        assert data.outputs == (3 if targets is Y else 1)


def test_every_form_of_data_may_come_with_a_test_set() -> None:
    mine = from_torch((X, Y), (X, Y))
    assert from_anything(mine) is mine
    assert len(from_anything((X, Y)).test_x) == 0
    assert len(from_anything((TENSORS, TENSORS)).test_x) == 6
    for mapping in ({"ann": (X, Y)}, ({"ann": (X, Y)}, None), ({"ann": (X, Y)}, TENSORS)):
        data = from_anything(mapping)
        assert data.clients is not None
        assert list(data.clients) == ["ann"]


# ------------------------------------------------------------------------------------------- a file for each client


def client_folder(folder: Path) -> Path:
    np.savez(folder / "ann.npz", x=X, y=Y)
    rows = [",".join(map(str, (*x, y))) for x, y in zip(X, Y, strict=True)]
    (folder / "bob.csv").write_text("first,second,label\n" + "\n".join(rows))
    (folder / "notes.txt").write_text("not data")
    return folder


def test_a_folder_has_a_file_for_each_client(tmp_path: Path) -> None:
    data = load("client-files", client_folder(tmp_path))
    assert data.clients is not None
    assert list(data.clients) == ["ann", "bob"]
    assert np.array_equal(data.train_x, np.concatenate([X, X]))
    assert (data.classes, len(data.test_x)) == (3, 0)
    np.savez(tmp_path / "test.npz", x=X, y=Y)
    assert len(load("client-files", tmp_path).test_x) == 6
    assert load("client-files", tmp_path, regression=True).classes is None


def test_a_column_can_be_chosen_and_fractions_make_a_regression(tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        (tmp_path / f"{name}.csv").write_text("dose,age\n0.5,3\n2,4\n")
    chosen: Dataset = load("client-files", tmp_path, target="dose")
    assert chosen.classes is None
    assert chosen.train_x.ravel().tolist() == [3, 4, 3, 4]
    (note,) = chosen.notes
    assert "numbers to predict (a regression), not labels" in note
    assert load("client-files", tmp_path, target="dose", regression=True).notes == ()
    assert load("client-files", tmp_path).notes == ()
    assert load("client-files", tmp_path).classes == 5
    with pytest.raises(ConfigError, match="no column 'weight'; it has dose, age"):
        load("client-files", tmp_path, target="weight")


@pytest.mark.parametrize(
    ("file", "content", "wrong"),
    [
        ("bad.csv", b"a,b\n1,2\n1,x\n", "wrong in row 3: 'x' in the column 'b' is no number"),
        ("bad.csv", b"a,b\n1,2\n,2\n", "wrong in row 3: '' in the column 'a' is no number"),
        ("bad.csv", b"a;b\n1;2\n", "wrong in row 2: '1;2' in the column 'a;b' is no number"),
        ("bad.csv", b"a,b\n1,nan\n", "row 2"),
        ("bad.csv", b"0.5,1.5,2\n1,2,0\n", r"begins with numbers \(0.5, 1.5, 2\); its first line has to name"),
        ("bad.csv", b"a,b,c\n1,2\n", "3 names of columns and 2"),
        ("bad.csv", b"a,b\n", "no rows"),
        ("bad.npz", b"PK", "bad.npz is not an npz file as numpy.savez writes it$"),
        ("bad.npz", b"\x93NUMPY", "bad.npz is not an npz file"),
        ("ann.csv", b"a,b,c\n1,2,3\n", "two files for client 'ann'"),
    ],
)
def test_files_that_are_wrong_are_named(tmp_path: Path, file: str, content: bytes, wrong: str) -> None:
    (client_folder(tmp_path) / file).write_bytes(content)
    with pytest.raises(InputError, match=wrong):
        load("client-files", tmp_path)


def test_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ann.csv").write_text("age,dose,ill\n50,1,0\n60,2,1\n")
    (tmp_path / "bob.csv").write_text('\ufeff"age",dose, ill\n50,1,0\n60,2,1\n')
    assert load("client-files", tmp_path).train_x.shape == (4, 2)
    for name in ("bob", "test"):
        (tmp_path / f"{name}.csv").write_text("dose,age,ill\n1,50,0\n2,60,1\n")
        with pytest.raises(InputError, match=rf"{name}.csv has the columns dose, age, ill, but ann.csv has age, dose"):
            load("client-files", tmp_path)
        (tmp_path / f"{name}.csv").unlink()


def test_labels_below_zero_are_reported_with_their_client(tmp_path: Path) -> None:
    (tmp_path / "ann.csv").write_text("age,ill\n50,0\n60,1\n")
    (tmp_path / "bob.csv").write_text("age,ill\n50,-1\n60,1\n")
    with pytest.raises(InputError, match="client-files, bob: labels are whole numbers from 0 on, not -1"):
        load("client-files", tmp_path)


def test_npz_files_execute_no_code(tmp_path: Path) -> None:
    np.savez(tmp_path / "ann.npz", x=np.array([print], object), y=Y)
    with pytest.raises(InputError, match="cannot be read"):
        load("client-files", tmp_path)
    np.savez(tmp_path / "ann.npz", inputs=X)
    with pytest.raises(InputError, match="'x' and 'y'"):
        load("client-files", tmp_path)
