"""Frozen features: files of them, and the extractor that is trained on pictures set aside."""

import io
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.data_files import write_data

from coterie.errors import ConfigError, InputError
from coterie.runs.engine.federation import find_federation
from coterie.runs.settings.toml import load_config
from coterie.training.data import extractor, readers
from coterie.training.data.dataset import Dataset
from coterie.training.data.datasets import load
from coterie.training.data.extractor import FEATURES, FOLDER, cnn_features
from coterie.training.data.feature_file import ARRAYS, read_features

RNG = np.random.default_rng(0)
GOOD = {
    "train_x": RNG.normal(size=(6, 3)),
    "train_y": np.array([0, 1, 2, 0, 1, 2]),
    "test_x": RNG.normal(size=(2, 3)),
    "test_y": np.array([0, 2]),
}


def write(path: Path, **arrays: object) -> Path:
    np.savez(path, **{**GOOD, **arrays})  # type: ignore[arg-type]
    return path


@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_saved_arrays_are_read(rows: int, columns: int, tests: int, labels: bool) -> None:
    rng = np.random.default_rng(rows)
    arrays: dict[str, Any] = {"train_x": rng.normal(size=(rows, columns)), "test_x": rng.normal(size=(tests, columns))}
    for part, count in (("train_y", rows), ("test_y", tests)):
        arrays[part] = rng.integers(0, 4, count) if labels else rng.normal(size=count)
    with TemporaryDirectory() as folder:
        np.savez_compressed(path := Path(folder) / "features.npz", **arrays)
        data = read_features(path)
    assert np.array_equal(data.train_x, arrays["train_x"].astype(np.float32))
    assert np.allclose(data.test_y.ravel(), arrays["test_y"])
    assert (data.classes is not None) == labels


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"train_y": np.arange(5)}, "6 inputs and 5 targets"),
        ({"test_x": np.ones((2, 4))}, "training and test examples differ in shape"),
        ({"train_x": np.ones(6)}, "train_x must have a row of features for each example, not shape"),
        ({"train_x": np.array(["a"] * 6)}, "train_x must hold numbers, not <U1"),
        ({"train_x": np.full((6, 3), np.nan)}, "must be finite numbers"),
        ({"train_y": np.array([0, 1, 2, 0, 1, -2])}, "labels are whole numbers from 0 on, not -2"),
        ({"train_y": np.ones((6, 2, 2))}, "train_y must have a label or a row of numbers"),
        ({"test_y": np.array([{}, {}], dtype=object)}, "Object arrays cannot be loaded"),
    ],
)
def test_wrong_arrays_get_one_clear_line(tmp_path: Path, changes: dict[str, object], complaint: str) -> None:
    path = write(tmp_path / "features.npz", **changes)
    with pytest.raises(InputError, match=complaint) as caught:
        read_features(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_arrays_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.features: there is no file .*none\.npz"):
        read_features(tmp_path / "none.npz")
    np.savez(tmp_path / "pair.npz", x=GOOD["train_x"], y=GOOD["train_y"])
    with pytest.raises(InputError, match="with the arrays 'train_x' and 'train_y' and 'test_x' and 'test_y'"):
        read_features(tmp_path / "pair.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(InputError, match=r"is not an npz file as numpy\.savez writes it"):
        read_features(tmp_path / "text.npz")


def test_an_array_that_announces_more_than_it_holds_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    path, forged = write(tmp_path / "good.npz"), tmp_path / "forged.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 3)})
    with zipfile.ZipFile(path) as good, zipfile.ZipFile(forged, "w") as bad:
        for name in ARRAYS:
            content = good.read(f"{name}.npy")
            bad.writestr(f"{name}.npy", header.getvalue() + b"few" if name == "train_x" else content)
    with pytest.raises(InputError, match="announces 1000000000000 x 3 values of 8 bytes for 'train_x' and holds 3"):
        read_features(forged)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "features.npz")
    monkeypatch.setattr(readers, "MOST_BYTES", 100)
    with pytest.raises(InputError, match="at most 100 are read"):
        read_features(path)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["data.features=mine.npz", "data.name=mnist"], r"data\.features: takes the place of the data set"),
        (["data.features=mine.npz", "data.options.train_rows=3"], r"data\.options: must be empty with data\.features"),
    ],
)
def test_features_exclude_options_of_other_data(settings: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_config(None, settings)


def test_a_run_takes_the_features(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.npz")
    config = load_config(None, [f"data.features={path}", "clients.count=4", "partition.kind=iid", "cohort.size=4"])
    federation = find_federation(config)
    assert len(federation.problem.data) == 6
    assert len(federation.test) == 2
    assert config.data.title == "mine.npz"
    assert config.title == "mine-npz"


# The extractor.


def cut(extractor_rows: int, tmp_path: Path, seed: int = 0, train_rows: int = 0) -> Dataset:
    return cnn_features(PICTURES, extractor_rows, train_rows, 1, seed, tmp_path)


SHAPE = (3, 8, 8)
PICTURES = Dataset(
    "pictures",
    RNG.normal(size=(30, *SHAPE)).astype(np.float32),
    RNG.integers(0, 10, 30),
    RNG.normal(size=(5, *SHAPE)).astype(np.float32),
    RNG.integers(0, 10, 5),
    classes=10,
)


def test_pictures_set_aside_are_not_among_the_examples(tmp_path: Path) -> None:
    data = cut(12, tmp_path)
    assert data.train_x.shape == (18, FEATURES)
    assert data.test_x.shape == (5, FEATURES)
    assert np.array_equal(data.train_y, PICTURES.train_y[:18])
    assert len(cut(12, tmp_path, train_rows=7).train_y) == 7


def test_the_extractor_sees_only_the_pictures_set_aside(tmp_path: Path) -> None:
    """Other labels of the examples and of the tests change no feature; other labels of those set aside do."""
    plain = cut(12, tmp_path)

    def relabelled(first: int, last: int) -> Dataset:
        labels = PICTURES.train_y.copy()
        labels[first:last] = (labels[first:last] + 1) % 10
        tests = (PICTURES.test_y + 1) % 10
        changed = Dataset("pictures", PICTURES.train_x, labels, PICTURES.test_x, tests, classes=10)
        return cnn_features(changed, 12, 0, 1, 0, tmp_path)

    assert np.array_equal(relabelled(0, 18).train_x, plain.train_x)
    assert not np.array_equal(relabelled(18, 30).train_x, plain.train_x)


def test_features_are_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cut(12, tmp_path)
    (file,) = (tmp_path / FOLDER).iterdir()
    monkeypatch.setattr(extractor, "_train", lambda *_: pytest.fail("trained again"))
    again = cut(12, tmp_path)
    assert np.array_equal(again.train_x, first.train_x)
    assert np.array_equal(read_features(file).test_x, first.test_x)
    assert again.notes == first.notes == ()
    with pytest.raises(pytest.fail.Exception):
        cut(12, tmp_path, seed=1)  # other settings, another file


def test_the_same_seed_gives_the_same_features(tmp_path: Path) -> None:
    one, other, third = (cut(12, tmp_path / name, seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert np.array_equal(one.train_x, other.train_x)
    assert not np.array_equal(one.train_x, third.train_x)


def test_a_folder_that_cannot_be_written_is_noted(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("in the way")
    data = cut(12, tmp_path)
    assert "could not be kept" in data.notes[0]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"extractor_rows": 10}, "extractor_rows must be from 1 to 9 of the 10 training pictures, not 10"),
        ({"extractor_rows": 4, "epochs": 0}, "epochs must be at least 1, not 0"),
        ({"extractor_rows": 4, "train_rows": 7}, "train_rows must be from 0 .* to 6"),
    ],
)
def test_impossible_settings_are_refused(tmp_path: Path, options: dict[str, int], complaint: str) -> None:
    write_data(tmp_path)
    with pytest.raises(ConfigError, match=complaint):
        load("cifar10-cnn-features", tmp_path, **options)
