import gzip
import io
import os
import pickle
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.data_files import CIFAR, LOCATION, SMALL, Pixels, cifar_batch, idx, pgm, pixels, write_data

from coterie.errors import InputError
from coterie.training.data import readers
from coterie.training.data.datasets import load


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_data(tmp_path)
    return tmp_path


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("arrange", [np.ascontiguousarray, np.asfortranarray])
def test_cifar_is_read_as_python_3_writes_it(
    tmp_path: Path, protocol: int, arrange: Callable[[Pixels], Pixels]
) -> None:
    pictures = arrange(CIFAR["test_batch"])
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({b"data": pictures, b"labels": [3, 4, 5]}, protocol))
    read, labels = readers.read_cifar_batch(path)
    assert np.array_equal(read.reshape(3, 3072), pictures)
    assert labels.tolist() == [3, 4, 5]


IMAGES = "mnist", "MNIST/raw/train-images-idx3-ubyte"
LABELS = "mnist", "MNIST/raw/train-labels-idx1-ubyte"
PACKED = "mnist", "MNIST/raw/t10k-images-idx3-ubyte.gz"
BATCH = "cifar10", "cifar-10-batches-py/test_batch"
HUNDRED = "cifar100", "cifar-100-python/train"
FACE = "faces", "att_faces/s2/3.pgm"
FIFTH_FACE = "faces", "att_faces/s2/5.pgm"
ROWS = "location30", "location30/bangkok"
HOURLY = "pjm", "hec/DAYTON_hourly.csv"
Change = Callable[[bytes], bytes]


def swap(old: bytes, new: bytes) -> Change:
    return lambda content: content.replace(old, new, 1)


def first_label(content: bytes) -> bytes:
    return content.replace(b"(K\x09", b"(K\x0a", 1)


@pytest.mark.parametrize(
    ("file", "change", "wrong"),
    [
        (IMAGES, lambda _: b"", "starts with nothing"),
        (IMAGES, swap(b"\x08\x03", b"\x0d\x03"), "00000d03, not with the 00000803"),
        (IMAGES, lambda c: c[:9], "inside its header"),
        (IMAGES, lambda c: c[:-1], "6 x 28 x 28 bytes and holds 4703"),
        (IMAGES, lambda c: c + b"1", "holds 4705"),
        (LABELS, lambda _: idx(pixels(5)), "6 training inputs and 5 targets"),
        (LABELS, lambda _: idx(np.full(6, 10, np.uint8)), "from 0 to 9"),
        (PACKED, lambda c: c[:-20], "cannot be read"),
        (PACKED, gzip.decompress, "cannot be read"),
        (PACKED, lambda c: c[:40] + bytes(40) + c[80:], "cannot be read"),
        (BATCH, lambda c: c[:-9], "not a pickled CIFAR batch"),
        (BATCH, lambda _: b"", "not a pickled CIFAR batch"),
        (BATCH, lambda _: pickle.dumps([1]), "no entries 'data'"),
        (BATCH, swap(b"labels", b"Labels"), "no entries 'data'"),
        (BATCH, swap(b"u1", b"i1"), "not rows of 3072"),
        (BATCH, lambda _: cifar_batch(pixels(3, 9), [1, 2, 3]), "not rows of 3072"),
        (BATCH, swap(struct.pack("<i", 3072), b"\0\0\0\0"), "not rows of 3072"),
        (BATCH, first_label, "from 0 to 9"),
        (BATCH, swap(b"(K\x09", b"("), "3 pictures and 2 labels"),
        (HUNDRED, swap(b"(K\x63", b"(K\x64"), "'fine_labels' that are not whole numbers from 0 to 99"),
        (HUNDRED, swap(b"fine_labels", b"Fine_labels"), "no entries 'data' and 'fine_labels'"),
        (FACE, swap(b"P5", b"P2"), "header of a binary PGM"),
        (FACE, swap(b"255", b"127"), "a white of 127"),
        (FACE, lambda c: c[:-1], "6 x 5 pixels and holds 29"),
        (FACE, lambda _: pgm(pixels(6, 5)), "4 of one size"),
        (FIFTH_FACE, lambda _: pgm(pixels(5, 6)), "13 pictures, not 4"),
        (ROWS, lambda _: b"", "no rows"),
        (ROWS, lambda _: b'"1",0,1\n', "3 columns"),
        (ROWS, lambda c: c + b'"1",0,1\n', "at row 7"),
        (ROWS, swap(b'"7"', b'"seven"'), "seven"),
        (ROWS, swap(b'"7"', b'"31"'), "row 5: the class is not one of 1 to 30"),
        (ROWS, swap(b'"1",0' if not LOCATION[1, 0] else b'"1",1', b'"1",2'), "row 2: a feat"),
        (ROWS, swap(b'"7"', b"\xff\xfe"), "cannot be read"),
        (HOURLY, swap(b"DAYTON_MW", b"AEP_MW"), "'Datetime,AEP_MW', not 'Datetime,DAYTON_MW'"),
        (HOURLY, lambda _: b"Datetime,DAYTON_MW\n", "no rows"),
        (HOURLY, swap(b",30.0", b",many"), "many"),
        (HOURLY, swap(b",30.0", b",nan"), "row 6: no time or no finite number"),
        (HOURLY, swap(b",30.0", b""), "cannot be read"),
        (HOURLY, swap(b"2016-01-01 05", b"2016-13-01 05"), "2016-13-01"),
        (HOURLY, swap(b" 05:00", b" 05:30"), "not on the hour, at 2016-01-01T05:30"),
        (HOURLY, swap(b"Datetime", b"\xff\xfe"), "cannot be read"),
        (HOURLY, lambda c: re.sub(rb",\d+\.\d", b",5.0", c), "the same value"),
    ],
)
def test_a_damaged_file_is_named_with_its_fault(
    file: tuple[str, str], change: Change, wrong: str, folder: Path
) -> None:
    name, place = file
    path = folder / place
    path.write_bytes(change(path.read_bytes() if path.exists() else b""))
    with pytest.raises(InputError, match=re.escape(wrong)) as caught:
        load(name, folder, **SMALL.get(name, {}))
    assert str(path) in str(caught.value) or wrong.startswith(("6 training", "from 0", "4 of one", "13 pictures"))


def test_a_folder_in_the_place_of_a_file_is_no_data_set(folder: Path) -> None:
    path = folder / "location30" / "bangkok"
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        load("location30", folder)


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.marker),)


def test_a_pickle_executes_no_code(tmp_path: Path) -> None:
    path, marker = tmp_path / "batch", tmp_path / "marker"
    path.write_bytes(pickle.dumps({b"data": Payload(marker), b"labels": []}))
    with pytest.raises(InputError, match=r"it names \w+\.mkdir"):
        readers.read_cifar_batch(path)
    assert not marker.exists()


def test_a_pickle_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    before = dict(vars(readers._Inert))
    path.write_bytes(b"\x80\x02cnumpy\nndarray\n(N}U\x05stateK\x07stb.")  # set an attribute of the class itself
    with pytest.raises(InputError, match="not a pickled CIFAR batch"):
        readers.read_cifar_batch(path)
    assert dict(vars(readers._Inert)) == before


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02c_codecs\nencode\nX\x02\0\0\0\xc4\x80X\x06\0\0\0latin1\x86R.",  # a letter that latin-1 has not
        b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x05\0\0\0rot13\x86R.",
        b"\x80\x02K\x01.",
    ],
)
def test_values_that_are_not_bytes_are_refused(content: bytes) -> None:
    value = readers._InertUnpickler(io.BytesIO(content), encoding="bytes").load()
    assert readers._bytes(value) is None
    assert readers._array(value) is None


def test_a_truncated_pickle_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    path, content = tmp_path / "batch", cifar_batch(pixels(1, 3072), [4])
    for end in [*range(200), *range(len(content) - 60, len(content))]:
        path.write_bytes(content[:end])
        with pytest.raises(InputError):
            readers.read_cifar_batch(path)


TEXT_AND_PIXELS: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "picture.pgm": (pgm(pixels(3, 4)), readers.read_pgm),
    "images": (idx(pixels(2, 3, 4)), lambda path: readers.read_idx(path, 3)),
    "images.gz": (gzip.compress(idx(pixels(2, 3, 4)), mtime=0), lambda path: readers.read_idx(path, 3)),
    "rows": (b'"1",0,1,1\n"2",1,1,0\n', lambda path: readers.read_labelled_rows(path, 3, 2)),
    "hours.csv": (b"Datetime,A_MW\n2016-01-01 01:00:00,7.0\n", lambda path: readers.read_hourly(path, "A_MW")),
}


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(TEXT_AND_PIXELS)), st.integers(0, 80), st.integers(0, 3), st.binary(max_size=3))
def test_a_file_with_an_error_anywhere_is_read_or_refused(
    tmp_path: Path, name: str, start: int, dropped: int, inserted: bytes
) -> None:
    content, read = TEXT_AND_PIXELS[name]
    (tmp_path / name).write_bytes(content[:start] + inserted + content[start + dropped :])
    with suppress(InputError):
        read(tmp_path / name)
