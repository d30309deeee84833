import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.support.data_files import CIFAR, CIFAR100, FACES, LOCATION, MNIST, SMALL, pixels, write_data
from tests.support.interpreter import printed_by

from coterie.errors import ConfigError, InputError
from coterie.host import install_command
from coterie.training.data import datasets
from coterie.training.data.datasets import DATA_VARIABLE, DATASETS, Dataset, load
from coterie.training.data.user_data import from_huggingface, from_torch

FROM_DISK = tuple(name for name, source in DATASETS.items() if source.files)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_data(tmp_path)
    return tmp_path


def small(name: str, folder: Path | str | None) -> Dataset:
    return load(name, folder, **SMALL.get(name, {}))


# ------------------------------------------------------------------------------------------- what is read


def test_digits_are_bundled_and_always_split_in_the_same_way() -> None:
    data, again = load("digits"), load("digits")
    assert data.train_x.shape == (1438, 1, 8, 8)
    assert data.test_x.shape == (359, 1, 8, 8)
    assert (data.train_x.min(), data.train_x.max()) == (0, 1)
    assert (data.classes, data.outputs, data.input_shape) == (10, 10, (1, 8, 8))
    assert np.array_equal(data.test_x, again.test_x)
    assert np.bincount(data.test_y, minlength=10).min() >= 20


@pytest.mark.slow
def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    data, (pictures, labels) = load("digits"), load_digits(return_X_y=True)
    mine = np.column_stack(
        [np.concatenate([data.train_x, data.test_x]).reshape(-1, 64) * 16, [*data.train_y, *data.test_y]]
    )
    theirs = np.column_stack([pictures, labels])
    assert sorted(map(tuple, mine)) == sorted(map(tuple, theirs))


def test_mnist_can_have_the_pixels_of_confined_descent(folder: Path) -> None:
    data = load("mnist", folder, unit=True)
    assert np.allclose(data.train_x[:, 0], 0.01 + 0.99 * MNIST["train-images"] / 255, atol=1e-6)


def test_frozen_features_depend_on_the_pictures_alone(folder: Path) -> None:
    data, again = small("cifar10-features", folder), small("cifar10-features", folder)
    assert data.train_x.shape == (10, 64)
    assert data.test_x.shape == (3, 64)
    assert np.array_equal(data.test_x, again.test_x)
    assert np.allclose(data.train_x.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(data.train_x.std(axis=0), 1, atol=1e-4)
    assert np.array_equal(data.train_y, small("cifar10", folder).train_y)


def test_mnist_is_read_plain_and_packed(folder: Path) -> None:
    data = load("mnist", folder)
    assert data.train_x.shape == (6, 1, 28, 28)
    restored = (data.train_x * 0.3081 + 0.1307) * 255
    assert np.allclose(restored[:, 0], MNIST["train-images"], atol=1e-3)
    assert data.train_y.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.test_y.tolist() == [9, 0]


def test_mnist_is_also_read_from_a_folder_of_its_name(folder: Path) -> None:
    (folder / "MNIST" / "raw").rename(folder / "mnist")
    assert len(load("mnist", str(folder)).train_x) == 6


def test_cifar_is_read_as_python_2_wrote_it(folder: Path) -> None:
    data = load("cifar10", folder)
    assert data.train_x.shape == (10, 3, 32, 32)
    assert data.train_y.tolist() == [9, 1] * 5
    assert data.test_y.tolist() == [9, 1, 2]
    mean, deviation = (np.array(values).reshape(3, 1, 1) for values in datasets._CIFAR_SCALE)
    restored = (data.train_x * deviation + mean) * 255
    written = np.concatenate([CIFAR[f"data_batch_{number}"] for number in range(1, 6)])
    assert np.allclose(restored, written.reshape(-1, 3, 32, 32), atol=1e-3)


def test_cifar_100_has_fine_and_coarse_labels(folder: Path) -> None:
    fine, coarse = load("cifar100", folder), load("cifar100", folder, coarse=True)
    assert (fine.classes, fine.train_y.tolist(), fine.test_y.tolist()) == (100, [99, 0, 37, 5], [99, 0])
    assert (coarse.classes, coarse.train_y.tolist(), coarse.test_y.tolist()) == (20, [19, 4, 1, 9], [19, 4])
    assert np.array_equal(fine.train_x, coarse.train_x)
    mean, deviation = (np.array(values).reshape(3, 1, 1) for values in datasets._CIFAR100_SCALE)
    restored = (fine.train_x * deviation + mean) * 255
    assert np.allclose(restored, CIFAR100["train"].reshape(-1, 3, 32, 32), atol=1e-3)


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100"])
def test_training_pictures_may_be_cut_short(name: str, folder: Path) -> None:
    everything, first = load(name, folder), load(name, folder, train_rows=2)
    assert np.array_equal(first.train_x, everything.train_x[:2])
    assert np.array_equal(first.train_y, everything.train_y[:2])
    assert np.array_equal(first.test_x, everything.test_x)
    for rows in (-1, len(everything.train_y) + 1):
        with pytest.raises(ConfigError, match=f"there are {len(everything.train_y)} training pictures"):
            load(name, folder, train_rows=rows)


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100"])
def test_validation_pictures_are_the_last_of_training_and_are_not_trained_on(name: str, folder: Path) -> None:
    everything, held = load(name, folder), load(name, folder, validation_rows=1)
    assert np.array_equal(held.train_x, everything.train_x[:-1])
    assert np.array_equal(held.test_x, everything.train_x[-1:])
    assert held.test_y.tolist() == everything.train_y[-1:].tolist()
    with pytest.raises(ConfigError, match="1 for validation cannot be taken"):
        load(name, folder, train_rows=len(everything.train_y), validation_rows=1)
    with pytest.raises(ConfigError, match="cannot be taken"):
        load(name, folder, validation_rows=-1)


def test_faces_are_labelled_by_person_and_split_for_each(folder: Path) -> None:
    data = small("faces", folder)
    assert data.train_y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert data.test_y.tolist() == [0, 1, 2]
    assert np.allclose(data.train_x[:, 0] * 255, FACES[:, :3].reshape(9, 5, 6), atol=1e-3)
    assert np.allclose(data.test_x[:, 0] * 255, FACES[:, 3], atol=1e-3)


def test_location30_is_split_in_the_order_of_the_file(folder: Path) -> None:
    data = small("location30", folder)
    assert data.train_y.tolist() == [12, 0, 29, 1]
    assert data.test_y.tolist() == [6, 12]
    assert np.array_equal(np.concatenate([data.train_x, data.test_x]), LOCATION)


# ------------------------------------------------------------------------------------------- what is missing


@pytest.mark.parametrize("name", FROM_DISK)
def test_the_environment_variable_names_the_folder(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every folder in the folder of column-files is a group.
    monkeypatch.setenv(DATA_VARIABLE, str(folder / "regions" if name == "column-files" else folder))
    assert small(name, None).name == name


@pytest.mark.parametrize("name", FROM_DISK)
def test_without_any_folder_the_error_says_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=f"data_dir.*{DATA_VARIABLE}.*nothing is downloaded"):
        load(name)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("mnist", "MNIST/raw/train-images-idx3-ubyte"),
        ("mnist", "MNIST/raw/t10k-labels-idx1-ubyte.gz"),
        ("cifar10", "cifar-10-batches-py/data_batch_3"),
        ("cifar100", "cifar-100-python/train"),
        ("cifar100", "cifar-100-python/test"),
        ("faces", "att_faces/s1/1.pgm"),
        ("faces", "att_faces/s2/1.pgm"),
        ("faces", "att_faces/s2/3.pgm"),
        ("location30", "location30/bangkok"),
    ],
)
def test_a_missing_file_is_named_with_all_that_belong_there(name: str, missing: str, folder: Path) -> None:
    (folder / missing).unlink()
    with pytest.raises(ConfigError) as caught:
        small(name, folder)
    message = str(caught.value)
    assert str(folder / missing.removesuffix(".gz")) in message
    assert "nothing is downloaded" in message
    assert missing.split("/")[0] in message.split("read from")[1]


def test_an_empty_folder_is_a_missing_data_set(tmp_path: Path) -> None:
    for name in FROM_DISK:
        with pytest.raises(ConfigError, match="nothing is downloaded"):
            load(name, tmp_path)


@pytest.mark.parametrize("name", ["client-files", "column-files"])
def test_a_file_in_place_of_the_data_folder_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").touch()
    with pytest.raises(ConfigError, match=rf"cannot read the data folder .*table\.csv: .* in it, '{name}' is read"):
        load(name, tmp_path / "table.csv")


def test_without_scikit_learn_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ConfigError, match=re.escape(install_command("train"))):
        load("digits")


def test_a_scikit_learn_without_the_file_of_digits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sklearn").mkdir()
    (tmp_path / "sklearn" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "sklearn", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="from which the digits are read"):
        load("digits")


def test_options_are_checked(folder: Path) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("imagenet", {}, "unknown data set 'imagenet'"),
        ("mnist", {"split": 3}, "no option 'split'; it has unit"),
        ("digits", {"split": 3}, "no option 'split'; it has none"),
        ("energy", {"split": 3}, "it has regions, window, test_from"),
        ("pjm", {"split": 3}, "it has regions, window, test_from, parts"),
        ("pjm", {"parts": 0}, "parts must be at least 1, not 0"),
        ("pjm", {"parts": 10**6, "window": 2, "test_from": "2016-01-09"}, "DAYTON has .* training examples, too few"),
        ("pjm", {"window": "100"}, "window must be of type int, not '100'"),
        ("faces", {"test_pictures": 4}, "test_pictures must be from 1 to 3"),
        ("location30", {}, "6 rows"),
        ("pjm", {"test_from": "yesterday"}, "a date"),
        ("pjm", {"test_from": "NaT"}, "a date"),
        ("pjm", {"window": 0}, "at least 1 hour"),
        ("pjm", {"regions": "AEP"}, "there is no AEP_hourly.csv in .*hec; regions are DAYTON"),
        ("pjm", {"regions": "DAYTON"}, "0 hours before 2016-01-01 and 240 from then on: too few for windows of 24"),
        ("pjm", {}, "no region has enough hours .* DAYTON is left out, having 0 hours before 2016-01-01 and 240 from"),
    ]
    for name, options, wrong in cases:
        with pytest.raises(ConfigError, match=wrong):
            load(name, folder, **options)


# ------------------------------------------------------------------------------------------- the user's own


class Squares:
    """Map-style, as torch has it: a length and items, and no IndexError where they end."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[list[float], int]:
        return [index, index**2], index % 3


class Stream:
    """Iterable: no length and no items."""

    def __iter__(self) -> Iterator[tuple[list[float], int]]:
        yield from ([[0.0, 1.0], 0], [[2.0, 3.0], 5])  # type: ignore[misc]


def test_data_sets_with_items_and_streams_become_arrays() -> None:
    data = from_torch(Squares(), Stream(), name="mine")
    assert data.train_x.tolist() == [[0, 0], [1, 1], [2, 4], [3, 9]]
    assert data.train_y.tolist() == [0, 1, 2, 0]
    assert data.test_y.tolist() == [0, 5]
    assert data.classes == 6
    assert from_torch(Squares(), Stream(), classes=9).classes == 9


def test_torch_tensors_become_arrays() -> None:
    torch = pytest.importorskip("torch")
    tensors = torch.utils.data.TensorDataset(torch.arange(12.0).reshape(3, 1, 2, 2), torch.tensor([1, 0, 1]))
    data = from_torch(tensors, torch.utils.data.Subset(tensors, [2]))
    assert data.input_shape == (1, 2, 2)
    assert data.train_y.tolist() == [1, 0, 1]
    assert data.test_x.ravel().tolist() == [8, 9, 10, 11]
    curve = torch.utils.data.TensorDataset(torch.rand(5, 3), torch.rand(5))
    assert from_torch(curve, curve).train_y.shape == (5, 1)
    assert from_torch(curve, curve).classes is None


def test_hugging_face_columns_become_arrays() -> None:
    grey, colour = pixels(2, 4, 5), pixels(2, 4, 5, 3)
    for pictures in (grey, colour):
        column = [Image.fromarray(picture) for picture in pictures]
        splits = {"train": {"image": column, "digit": [3, 1]}, "valid": {"image": column[:1], "digit": [0]}}
        data = from_huggingface(splits, "image", "digit", test_split="valid", name="hf")
        channels_last = pictures if pictures.ndim == 4 else pictures[..., None]
        assert np.allclose(data.train_x * 255, channels_last.transpose(0, 3, 1, 2), atol=1e-3)
        assert data.train_y.tolist() == [3, 1]
        for label, split in (("digit", "test"), ("label", "valid")):
            with pytest.raises(ConfigError, match="no split or column"):
                from_huggingface(splits, "image", label, test_split=split)


@pytest.mark.parametrize(
    ("pairs", "classes", "wrong"),
    [
        ([([1.0], 0), ([1.0, 2.0], 1)], None, r"input 0 has the shape \(1,\) and input 1 the shape \(2,\); pad them"),
        ([(["a"], 0)], None, "inputs are text, not numbers"),
        ([([1.0], "cat")], None, "labels are text, of 1 class: cat. Map them to the numbers from 0 to 0"),
        ([([1.0], 0.5)], 2, "whole numbers"),
        ([([1.0], 3)], 2, "from 0 to 1"),
        ([([1.0], -1)], None, "from 0 on, not -1"),
        ([([1.0], [1, 2])], None, "from 0 to"),
        ([([np.nan], 1)], None, "finite"),
        ([([1.0], np.inf)], None, "finite"),
        ([1, 2], None, "pairs"),
        ([], None, "equally shaped"),
    ],
)
def test_examples_that_cannot_be_learnt_from_are_refused(pairs: list[Any], classes: int | None, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        from_torch(pairs, pairs, classes=classes)


def test_training_and_test_examples_must_have_one_form() -> None:
    one = np.zeros((2, 3), np.float32), np.zeros(2, np.int64)
    other = np.zeros((2, 4), np.float32), np.zeros(2, np.int64)
    with pytest.raises(InputError, match="differ in shape"):
        Dataset("mixed", *one, *other, classes=1)
    with pytest.raises(InputError, match="no examples to train on"):
        Dataset("empty", one[0][:0], one[1][:0], *one, classes=1)
    with pytest.raises(InputError, match="float32"):
        Dataset("wide", one[0].astype(np.float64), one[1], *one, classes=1)  # type: ignore[arg-type]


def test_reading_data_imports_neither_torch_nor_scikit_learn() -> None:
    program = "import sys, coterie.training; print({'torch', 'sklearn', 'scipy'} & set(sys.modules))"
    assert printed_by(program) == "set()\n"


# ------------------------------------------------------------------------------------------- the public data sets


@pytest.fixture(scope="session")
def real() -> Path:
    place = os.environ.get(DATA_VARIABLE)
    if not place:
        pytest.skip(f"set {DATA_VARIABLE} to a folder with the public data sets to read them in this test")
    return Path(place)


def test_real_mnist(real: Path) -> None:
    data = load("mnist", real)
    assert np.bincount(data.train_y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.test_y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert (data.train_x.mean(dtype=float), data.train_x.std(dtype=float)) == pytest.approx((0, 1), abs=1e-3)


@pytest.mark.slow
def test_real_cifar10(real: Path) -> None:
    data = load("cifar10", real)
    assert np.bincount(data.train_y).tolist() == [5000] * 10
    assert np.bincount(data.test_y).tolist() == [1000] * 10
    assert data.train_x.mean((0, 2, 3), dtype=float) == pytest.approx([0, 0, 0], abs=1e-3)
    assert data.train_x.std((0, 2, 3), dtype=float) == pytest.approx([1, 1, 1], abs=1e-3)


def test_real_faces(real: Path) -> None:
    data = load("faces", real)
    assert data.input_shape == (1, 112, 92)
    assert np.bincount(data.train_y).tolist() == [7] * 40
    assert np.bincount(data.test_y).tolist() == [3] * 40


def test_real_location30(real: Path) -> None:
    data = load("location30", real)
    assert (data.train_x.shape, data.test_x.shape) == ((4000, 446), (1010, 446))
    counts = np.bincount(np.concatenate([data.train_y, data.test_y]))
    assert (len(counts), counts.min(), counts.max()) == (30, 97, 308)
