"""Small files in the official formats of the public data sets, written byte by byte."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
rng = np.random.default_rng(0)


def pixels(*shape: int) -> Pixels:
    return rng.integers(0, 256, shape, np.uint8)


def idx(array: Pixels) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def pgm(picture: Pixels, comment: bytes = b"") -> bytes:
    height, width = picture.shape
    return b"P5\n" + comment + b"%d %d\n255\n" % (width, height) + picture.tobytes()


def cifar_batch(pictures: Pixels, labels: list[int], coarse: list[int] | None = None) -> bytes:
    """Write what Python 2 wrote for the official files: protocol 2, 8-bit strings, numpy's old module names.

    With ``coarse`` labels it is a file of CIFAR-100, in which the others are the fine ones.
    """

    def string(content: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(content)) + content

    def numbers(values: list[int]) -> bytes:
        return b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"

    shape = b"".join(b"J" + struct.pack("<i", size) for size in pictures.shape) + b"\x86"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
        + shape
        + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + string(pictures.tobytes())
        + b"tb"
    )
    entries = string(b"batch_label") + string(b"testing batch 1 of 1")
    entries += string(b"labels" if coarse is None else b"fine_labels") + numbers(labels)
    entries += b"" if coarse is None else string(b"coarse_labels") + numbers(coarse)
    entries += string(b"data") + array
    return b"\x80\x02}(" + entries + b"u."


def location_rows(classes: list[int], features: Pixels) -> bytes:
    lines = [f'"{label}",' + ",".join(map(str, row)) for label, row in zip(classes, features, strict=True)]
    return ("\n".join(lines) + "\n").encode()


MNIST = {"train-images": pixels(6, 28, 28), "train-labels": np.arange(6, dtype=np.uint8)}
MNIST |= {"t10k-images": pixels(2, 28, 28), "t10k-labels": np.array([9, 0], np.uint8)}
CIFAR = {f"data_batch_{number}": pixels(2, 3072) for number in range(1, 6)} | {"test_batch": pixels(3, 3072)}
CIFAR100 = {"train": pixels(4, 3072), "test": pixels(2, 3072)}
FACES = pixels(3, 4, 5, 6)
LOCATION = rng.integers(0, 2, (6, 446), np.uint8)
# Ten days of hours, the first out of order and the third of them twice: it reads (10 + 30) / 2 = 20. Hour 7 is missing.
HOURS = [(3, 3.0), (0, 1.0), (2, 10.0), (1, 5.0), (2, 30.0), (4, 7.0), (5, 9.0), (6, 2.0)]
HOURS += [(hour, 100.0 + hour * hour % 17) for hour in range(8, 240)]
SMALL: dict[str, dict[str, Any]] = {
    "faces": {"test_pictures": 1},
    "location30": {"train_rows": 4},
    "cifar10-cnn-features": {"extractor_rows": 4, "epochs": 1},
    "pjm": {"window": 2, "test_from": "2016-01-09"},
}


def write_data(folder: Path) -> None:
    files: dict[str, bytes] = {}
    for name, array in MNIST.items():
        content = idx(array)
        packed = name.startswith("t10k")
        place = f"MNIST/raw/{name}-idx{array.ndim}-ubyte" + ".gz" * packed
        files[place] = gzip.compress(content) if packed else content
    for name, array in CIFAR.items():
        files[f"cifar-10-batches-py/{name}"] = cifar_batch(array, [9, 1, 2][: len(array)])
    for name, array in CIFAR100.items():
        fine, coarse = [99, 0, 37, 5], [19, 4, 1, 9]
        files[f"cifar-100-python/{name}"] = cifar_batch(array, fine[: len(array)], coarse[: len(array)])
    for person, pictures in enumerate(FACES, 1):
        for number, picture in enumerate(pictures, 1):
            files[f"att_faces/s{person}/{number}.pgm"] = pgm(picture, b"# a comment\n" * (number == 1))
    files["location30/bangkok"] = location_rows([13, 1, 30, 2, 7, 13], LOCATION)
    rows = [f"2016-01-{1 + hour // 24:02} {hour % 24:02}:00:00,{load}" for hour, load in HOURS]
    files["hec/DAYTON_hourly.csv"] = "\n".join(["Datetime,DAYTON_MW", *rows]).encode()
    files["ann.csv"], files["bob.csv"] = b"dose,age,ill\n1,2.5,0\n3,4,1\n", b"dose,age,ill\n5,6,1\n"
    for group in ("north", "south"):
        files[f"regions/{group}/bank.csv"], files[f"regions/{group}/shop.csv"] = (
            b"dose,age\n1,2\n3,4\n",
            b"visits\n5\n6\n",
        )
        files[f"regions/{group}/labels.csv"] = b"ill\n0\n1\n"
    for place, content in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
