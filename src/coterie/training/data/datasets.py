"""Data sets as arrays in memory: the bundled ones, and common public ones read from disk.

:func:`load` reads a data set by name and never downloads anything. :mod:`coterie.training.data.user_data` accepts data
that the user supplies. This module fixes the shape of an input, the scaling of numbers, and the test examples.
"""

import importlib.util
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import ConfigError, InputError, Remedy
from coterie.files import explain
from coterie.host import install_command
from coterie.training.data.dataset import Dataset, InputArray, Inputs, Targets
from coterie.training.data.readers import (
    Bytes,
    read_cifar_batch,
    read_idx,
    read_integers,
    read_labelled_rows,
    read_pgm,
)

__all__ = ["DATASETS", "DATA_VARIABLE", "Dataset", "InputArray", "Inputs", "Source", "load"]

DATA_VARIABLE = "COTERIE_DATA"
"""The environment variable with the data folder, used if no folder is passed."""

# Mean and standard deviation of the training pixels, on a scale from 0 to 1. They are constants because no client of a
# federation could compute them from its own data.
_MNIST_SCALE = (0.1307,), (0.3081,)
_CIFAR_SCALE = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_CIFAR100_SCALE = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


def load(name: str, data_dir: Path | str | None = None, **options: Any) -> Dataset:  # noqa: ANN401  (each loader's own)
    """Read the data set ``name``, one of :data:`DATASETS`, with its loader's ``options``.

    Bundled data sets need no folder. Those whose row in the table has files are read from ``data_dir`` or, by default,
    from the folder in the environment variable :data:`DATA_VARIABLE`. Nothing is ever downloaded. Missing files raise
    :class:`ConfigError` with the files expected; wrong files raise :class:`InputError`.
    """
    if name not in DATASETS:
        raise ConfigError(f"unknown data set {name!r}; known are {', '.join(DATASETS)}")
    source = DATASETS[name]
    known = {option.name: option.annotation for option in list(inspect.signature(source.read).parameters.values())[1:]}
    for option, value in options.items():
        if option not in known:
            raise ConfigError(f"data set {name!r} has no option {option!r}; it has {', '.join(known) or 'none'}")
        if not isinstance(value, known[option]):
            raise ConfigError(f"data set {name!r}: {option} must be of type {known[option].__name__}, not {value!r}")
    folder = data_dir or os.environ.get(DATA_VARIABLE, "")
    wanted = f"{name!r} is read from {source.files}; nothing is downloaded"
    if source.files and not folder:
        given = Remedy("data_dir", mention=True)
        raise ConfigError("no data folder: give one (", given, f") or set {DATA_VARIABLE}; in it, {wanted}")
    try:
        return source.read(Path(folder), **options)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no {error.filename}; in the data folder {folder}, {wanted}") from error
    except OSError as error:
        raise ConfigError(f"cannot read the data folder {folder}: {explain(error)}; in it, {wanted}") from error


def digits(_folder: Path | None = None) -> Dataset:
    """The 1,797 handwritten digits (1 x 8 x 8) of scikit-learn, scaled from 0..16 to 0..1.

    A fixed fifth of them is the test set, so every run is evaluated on the same examples.
    """
    # Importing scikit-learn takes more than a second; reading its file takes some hundredths.
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise ConfigError(f"the bundled digits come with scikit-learn, which is missing: {install_command('train')}")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        raise ConfigError(f"this version of scikit-learn has no file {path}, from which the digits are read")
    table = read_integers(path, columns=65)
    x, y = (table[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8), table[:, 64]
    test, train = np.split(np.random.default_rng(0).permutation(len(x)), [len(x) // 5])
    return Dataset("digits", x[train], y[train], x[test], y[test], classes=10)


def mnist(folder: Path, unit: bool = False, train_rows: int = 0, validation_rows: int = 0) -> Dataset:
    """MNIST (1 x 28 x 28) from IDX files; pixels from 0 to 1, minus mean 0.1307, divided by deviation 0.3081.

    With ``unit``, pixels go from 0.01 to 1 instead, as in the code published with confined descent. ``train_rows``
    keeps only the first training pictures; 0 keeps all. ``validation_rows`` replaces the test pictures by the last
    training pictures, to choose settings without looking at the test set.
    """

    def read(name: str, dimensions: int) -> Bytes:
        places = [folder / place / f"{name}{ending}" for place in ("MNIST/raw", "mnist") for ending in ("", ".gz")]
        return read_idx(next((place for place in places if place.exists()), places[0]), dimensions)

    def part(name: str) -> tuple[InputArray, Targets]:
        pictures, labels = read(f"{name}-images-idx3-ubyte", 3), read(f"{name}-labels-idx1-ubyte", 1)
        scale = ((-0.01 / 0.99,), (1 / 0.99,)) if unit else _MNIST_SCALE
        return _scaled(pictures[:, None], *scale), labels.astype(np.int64)

    return _split("mnist", part("train"), lambda: part("t10k"), train_rows, validation_rows)


def cifar10(folder: Path, train_rows: int = 0, validation_rows: int = 0) -> Dataset:
    """CIFAR-10 (3 x 32 x 32) from its python batches; each channel minus its mean, divided by its deviation.

    ``train_rows`` and ``validation_rows`` work as in :func:`mnist`.
    """

    def part(*names: str) -> tuple[InputArray, Targets]:
        pictures, labels = zip(
            *(read_cifar_batch(folder / "cifar-10-batches-py" / name) for name in names), strict=True
        )
        return _scaled(np.concatenate(pictures), *_CIFAR_SCALE), np.concatenate(labels)

    train = part(*(f"data_batch_{number}" for number in range(1, 6)))
    return _split("cifar10", train, lambda: part("test_batch"), train_rows, validation_rows)


def cifar100(folder: Path, train_rows: int = 0, validation_rows: int = 0, coarse: bool = False) -> Dataset:
    """CIFAR-100 (3 x 32 x 32) from its python files; each channel minus its mean, divided by its deviation.

    The label is one of 100 classes; with ``coarse``, one of 20 groups of them. ``train_rows`` and ``validation_rows``
    work as in :func:`mnist`.
    """
    entry, classes = ("coarse_labels", 20) if coarse else ("fine_labels", 100)

    def part(name: str) -> tuple[InputArray, Targets]:
        pictures, labels = read_cifar_batch(folder / "cifar-100-python" / name, entry, classes)
        return _scaled(pictures, *_CIFAR100_SCALE), labels

    return _split("cifar100", part("train"), lambda: part("test"), train_rows, validation_rows, classes)


def cifar10_features(folder: Path, train_rows: int = 0) -> Dataset:
    """CIFAR-10 as 64 features of random convolutions; see :mod:`coterie.training.data.random_features`."""
    from coterie.training.data.random_features import random_features

    return random_features(cifar10(folder, train_rows))


def cifar10_cnn_features(
    folder: Path, train_rows: int = 0, extractor_rows: int = 25_000, epochs: int = 8, seed: int = 0
) -> Dataset:
    """CIFAR-10 as 64 features of a small network that is trained on its last ``extractor_rows`` training pictures.

    These pictures are set aside; ``train_rows`` keeps only the first of the others. The first use takes minutes; then
    the features are read from a file in the data folder. See :mod:`coterie.training.data.extractor`.
    """
    from coterie.training.data.extractor import cnn_features

    return cnn_features(cifar10(folder), extractor_rows, train_rows, epochs, seed, folder)


def faces(folder: Path, test_pictures: int = 3) -> Dataset:
    """The AT&T faces (1 x 112 x 92, scaled to 0..1). The label is the person, counted from 0.

    The last ``test_pictures`` of every person are test examples. Choi et al. 2020 train on these faces with one person
    per client; they do not state their split.
    """
    place = folder / "att_faces"
    people, each = (max(1, len(list(place.glob(pattern)))) for pattern in ("s*/1.pgm", "s1/*.pgm"))
    pictures = [read_pgm(place / f"s{i}" / f"{j}.pgm") for i in range(1, people + 1) for j in range(1, each + 1)]
    found = len(list(place.glob("s*/*.pgm")))
    if found != len(pictures) or len({picture.shape for picture in pictures}) > 1:
        raise InputError(f"{place} has {found} pictures, not {each} of one size for each of {people} people")
    if not 0 < test_pictures < each:
        raise ConfigError(f"test_pictures must be from 1 to {each - 1}, as each person has {each}, not {test_pictures}")
    x = _scaled(np.stack(pictures)[:, None], (0.0,), (1.0,))
    person, picture = np.divmod(np.arange(len(x)), each)
    train = picture < each - test_pictures
    return Dataset("faces", x[train], person[train], x[~train], person[~train], classes=people)


def location30(folder: Path, train_rows: int = 4000) -> Dataset:
    """Location30: 446 zeros and ones for each of 5,010 people, in 30 classes (Shokri et al. 2017).

    The first ``train_rows`` rows are for training and the others (1,010 by default) for testing.
    """
    path = folder / "location30" / "bangkok"
    values, y = read_labelled_rows(path, features=446, classes=30)
    if not 0 < train_rows < len(y):
        raise ConfigError(f"train_rows must be from 1 to {len(y) - 1}, as {path} has {len(y)} rows, not {train_rows}")
    x = values.astype(np.float32)
    return Dataset("location30", x[:train_rows], y[:train_rows], x[train_rows:], y[train_rows:], classes=30)


def energy(_folder: Path | None = None, regions: str = "", window: int = 24, test_from: str = "2018-07-16") -> Dataset:
    """Eight weeks of hourly load of ten PJM regions, bundled. Each region is a client; see :func:`pjm`.

    The last two weeks are for testing.
    """
    from coterie.training.data.energy import SAMPLE, read_regions

    return read_regions("energy", (SAMPLE,), regions, window, test_from)


def pjm(folder: Path, regions: str = "", window: int = 24, test_from: str = "2016-01-01", parts: int = 1) -> Dataset:
    """PJM's hourly load. Each region is a client and predicts the next hour from the last ``window`` hours.

    An input is window x 1 and a target is 1 number. Hours from ``test_from`` on are for testing, and test windows start
    there at the earliest. Each region is scaled by its training hours; see :mod:`coterie.training.data.series`.
    ``regions`` is a list of names separated by commas; an empty string means all regions with a file. With ``parts``
    above 1, each region's training hours are divided into this many consecutive parts, and each part is a client.
    """
    from coterie.training.data.energy import read_regions

    return read_regions("pjm", (folder / "hec", folder), regions, window, test_from, parts)


def client_files(folder: Path, target: str = "", regression: bool = False) -> Dataset:
    """Data in one file per client; see :mod:`coterie.training.data.client_files`."""
    from coterie.training.data.client_files import read_client_files

    return read_client_files(folder, target, regression=regression)


def column_files(folder: Path, target: str = "", identity: str = "", regression: bool = False) -> Dataset:
    """Data in one folder per group and one file per member; see :mod:`coterie.training.data.column_files`."""
    from coterie.training.data.column_files import read_column_files

    return read_column_files(folder, target, identity, regression=regression)


def _split(
    name: str,
    train: tuple[InputArray, Targets],
    test: Callable[[], tuple[InputArray, Targets]],
    train_rows: int,
    validation_rows: int,
    classes: int = 10,
) -> Dataset:
    """Keep the first ``train_rows`` training pictures (0: all); test with the last ``validation_rows`` if set."""
    x, y = train
    if len(x) != len(y):
        raise InputError(f"{name}: {len(x)} training inputs and {len(y)} targets")
    if validation_rows < 0 or train_rows < 0 or train_rows + validation_rows > len(y):
        requested = f"{train_rows} and {validation_rows} for validation" if validation_rows else f"{train_rows}"
        raise ConfigError(f"{name}: there are {len(y)} training pictures, of which {requested} cannot be taken")
    end = len(y) - validation_rows
    kept = train_rows or end
    held = (x[end:], y[end:]) if validation_rows else test()
    return Dataset(name, x[:kept], y[:kept], *held, classes=classes)


def _scaled(pictures: Bytes, mean: tuple[float, ...], deviation: tuple[float, ...]) -> InputArray:
    """Scale pixels to 0..1, then subtract the mean and divide by the deviation of their channel (second axis)."""
    scaled = pictures.astype(np.float32)
    scaled -= 255 * np.array(mean, np.float32)[:, None, None]
    scaled /= 255 * np.array(deviation, np.float32)[:, None, None]
    return scaled


@dataclass(frozen=True)
class Source:
    """The loader of a data set, and a description of the files it reads, if any."""

    read: Callable[..., Dataset]
    files: str = ""


_CIFAR_FILES = "cifar-10-batches-py/data_batch_1 to data_batch_5 and cifar-10-batches-py/test_batch"
DATASETS = {
    "digits": Source(digits),
    "mnist": Source(
        mnist,
        "MNIST/raw/ (or mnist/): train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte, each as it is or as .gz",
    ),
    "cifar10": Source(cifar10, _CIFAR_FILES),
    "cifar100": Source(cifar100, "cifar-100-python/train and cifar-100-python/test"),
    "cifar10-features": Source(cifar10_features, _CIFAR_FILES),
    "cifar10-cnn-features": Source(cifar10_cnn_features, _CIFAR_FILES),
    "faces": Source(faces, "att_faces/s1/1.pgm to att_faces/s40/10.pgm"),
    "location30": Source(location30, "location30/bangkok"),
    "energy": Source(energy),
    "pjm": Source(pjm, "hec/ (or the folder itself): REGION_hourly.csv for each region, as it is or as .gz"),
    "client-files": Source(
        client_files,
        "a file for each client, npz (arrays x and y) or CSV (a header; the target last), and perhaps test.npz or "
        "test.csv",
    ),
    "column-files": Source(
        column_files,
        "a folder for each group, with a file for each member (CSV, or npz with the array x), all with the same rows, "
        "and labels.csv; perhaps a folder test",
    ),
}
"""The data sets that :func:`load` can read, by name."""
