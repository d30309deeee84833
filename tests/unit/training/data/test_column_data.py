"""Data in columns of several members: from dictionaries of arrays, and from a folder for each group."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.errors import ConfigError, InputError
from coterie.training.data.datasets import load
from coterie.training.data.user_data import from_clients

RNG = np.random.default_rng(0)


def group(rows: int, **widths: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    return {member: RNG.normal(size=(rows, width)) for member, width in widths.items()}, RNG.integers(2, size=rows)


def test_columns_stand_side_by_side_in_the_order_of_the_first_group() -> None:
    north, south, test = group(5, bank=2, shop=3), group(4, shop=3, bank=2), group(3, bank=2, shop=3)
    data = from_clients({"north": north, "south": south}, test)
    assert data.members == {"bank": 2, "shop": 3}
    assert data.clients is not None
    assert {name: rows.tolist() for name, rows in data.clients.items()} == {"north": [*range(5)], "south": [5, 6, 7, 8]}
    for (columns, labels), x, y in (
        (north, data.train_x[:5], data.train_y[:5]),
        (south, data.train_x[5:], data.train_y[5:]),
        (test, data.test_x, data.test_y),
    ):
        expected = np.concatenate([columns["bank"], columns["shop"]], axis=1)
        assert np.array_equal(x, expected.astype(np.float32))
        assert np.array_equal(y, labels)


def test_time_series_have_columns_at_every_time() -> None:
    columns = {"weather": RNG.normal(size=(6, 4, 3)), "load": RNG.normal(size=(6, 4, 1))}
    data = from_clients([(columns, RNG.normal(size=(6, 1)))])
    assert data.members == {"weather": 3, "load": 1}
    assert data.train_x.shape == (6, 4, 4)
    assert data.classes is None


def test_data_that_is_not_split_by_columns_has_no_members() -> None:
    assert from_clients([(np.zeros((3, 2)), np.zeros(3, int))]).members is None


GOOD = group(5, bank=2, shop=3)


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (({**GOOD[0], "shop": np.zeros((4, 3))}, GOOD[1]), "'shop' has 4 rows and 'bank' has 5 rows"),
        ((GOOD[0], GOOD[1][1:]), "5 rows, and there are 4 labels"),
        (GOOD[0], "labels are missing"),
        ((GOOD[0], None), "labels are missing"),
        ((np.zeros((5, 5)), GOOD[1]), "labels are missing, or columns by member"),
        (group(5, bank=2), "two members or more are needed, not of 1"),
        (group(5, bank=2, rail=3), "the members of 'south' are bank, rail, and those of 'north' are bank, shop"),
        (group(5, bank=2, shop=4), "'shop' has 4 columns in 'south' and 3 in 'north'"),
        (({**GOOD[0], "shop": np.zeros(5)}, GOOD[1]), "must give examples x columns"),
        (({**GOOD[0], "shop": [["a"] * 3] * 5}, GOOD[1]), "not arrays of numbers"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_line(odd: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(InputError) as caught:
        from_clients({"north": GOOD, "south": odd}, name="own")
    assert said in str(caught.value)
    assert "own" in str(caught.value)
    assert "south" in str(caught.value)
    assert "\n" not in str(caught.value)


# Files.

FILES = {
    "north/bank.csv": "id,income,age\n1,2.5,30\n2,1.5,40\n",
    "north/shop.csv": "id,visits\n1,7\n2,9\n",
    "north/labels.csv": "id,leaves\n1,0\n2,1\n",
    "south/bank.csv": "id,income,age\n5,3.5,31\n6,4.5,41\n7,5.5,51\n",
    "south/shop.csv": "id,visits\n5,1\n6,2\n7,3\n",
    "south/labels.csv": "id,leaves\n5,1\n6,1\n7,0\n",
    "test/bank.csv": "id,income,age\n8,0.5,20\n",
    "test/shop.csv": "id,visits\n8,4\n",
    "test/labels.csv": "id,leaves\n8,1\n",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def test_a_folder_is_a_group_and_a_file_a_member(tmp_path: Path) -> None:
    data = load("column-files", write(tmp_path, FILES), identity="id")
    assert data.members == {"bank": 2, "shop": 1}
    assert data.train_x.tolist() == [[2.5, 30, 7], [1.5, 40, 9], [3.5, 31, 1], [4.5, 41, 2], [5.5, 51, 3]]
    assert data.train_y.tolist() == [0, 1, 1, 1, 0]
    assert data.test_x.tolist() == [[0.5, 20, 4]]
    assert data.test_y.tolist() == [1]
    assert data.clients is not None
    assert list(data.clients) == ["north", "south"]


def test_labels_may_be_in_a_members_file_and_columns_in_npz_files(tmp_path: Path) -> None:
    write(tmp_path, {"a/bank.csv": "income,leaves\n1,0\n2,1\n", "b/bank.csv": "income,leaves\n3,1\n"})
    np.savez(tmp_path / "a" / "shop.npz", x=np.array([[5.0, 6], [7, 8]]))
    np.savez(tmp_path / "b" / "shop.npz", x=np.array([[9.0, 9]]))
    data = load("column-files", tmp_path, target="leaves")
    assert data.members == {"bank": 1, "shop": 2}
    assert data.train_x.tolist() == [[1, 5, 6], [2, 7, 8], [3, 9, 9]]
    assert data.train_y.tolist() == [0, 1, 1]
    for name, y in (("a", [0.5, 1.5]), ("b", [2.5])):
        np.savez(tmp_path / name / "labels.npz", y=np.array(y))
        (tmp_path / name / "bank.csv").write_text("income\n" + "1\n" * len(y))
    found = load("column-files", tmp_path)
    assert found.classes is None
    assert "whole numbers" in found.notes[-1]
    assert load("column-files", tmp_path, regression=True).notes == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"north/labels.csv": None}, "labels are needed once, in a file labels.csv"),
        ({"south/shop.csv": "id,visits\n5,1\n6,2\n"}, "'shop' has 2 rows and 'bank' has 3 rows"),
        ({"south/shop.csv": "id,visits\n5,1\n7,2\n6,3\n"}, "shop.csv: row 3 is id 7, and in"),
        ({"south/shop.csv": "visits\n1\n2\n3\n"}, "has no column 'id'"),
        ({"south/bank.csv": "id,age,income\n5,1,1\n6,1,1\n7,1,1\n"}, "has the columns age, income, but"),
        ({"south/shop.csv": None}, "two members or more are needed"),
        ({"south/shop.csv": "id,id,visits\n5,5,1\n6,6,2\n7,7,3\n"}, "has two columns with the name 'id'"),
        ({"south/bank.csv": "id,age,age\n5,1,1\n6,1,1\n7,1,1\n"}, "has two columns with the name 'age'"),
        ({"south/shop.csv": "id,visits\n5,1\n6,many\n7,3\n"}, "row 3: 'many' in the column 'visits' is no number"),
        ({"north/labels.csv": "id,leaves,more\n1,0,1\n2,1,1\n"}, "must have one column of targets, not leaves, more"),
        ({"south/labels.csv": "id,leaves\n5,1\n6,1\n"}, "3 rows, and there are 2 labels"),
    ],
)
def test_files_that_do_not_fit_are_refused_in_one_line(
    tmp_path: Path, changes: dict[str, str | None], said: str
) -> None:
    files = {name: content for name, content in {**FILES, **changes}.items() if content is not None}
    with pytest.raises(InputError) as caught:
        load("column-files", write(tmp_path, files), identity="id")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_identities_are_compared_as_text(tmp_path: Path) -> None:
    """Two long customer numbers are equal as floats; codes such as A-7 are no numbers at all."""
    for first, second in (("9007199254740992", "9007199254740993"), ("A-7", "A-8")):
        files = {
            "north/bank.csv": f"id,income\n{first},1\n3,2\n",
            "north/shop.csv": f"visits, id\n1, {first}\n2,3\n",
            "north/labels.csv": f"id,leaves\n{first},0\n3,1\n",
        }
        assert load("column-files", write(tmp_path, files), identity="id").train_x.tolist() == [[1, 1], [2, 2]]
        write(tmp_path, {"north/shop.csv": f"visits,id\n1,{second}\n2,3\n"})
        with pytest.raises(InputError, match=f"row 2 is id {second}, and in .* it is {first}"):
            load("column-files", tmp_path, identity="id")


def test_folders_of_another_form_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no subfolders: each group needs one"):
        load("column-files", tmp_path)
    write(tmp_path, FILES)
    np.savez(tmp_path / "north" / "bank.npz", x=np.zeros((2, 2)))
    with pytest.raises(InputError, match="has two files for 'bank'"):
        load("column-files", tmp_path, identity="id")
    (tmp_path / "north" / "bank.csv").unlink()
    np.savez(tmp_path / "north" / "bank.npz", x=np.array([["a"], ["b"]]))
    with pytest.raises(InputError, match=r"bank.npz must have numbers, not <U1"):
        load("column-files", tmp_path, identity="id")
    np.savez(tmp_path / "north" / "bank.npz", z=np.zeros(2))
    with pytest.raises(InputError, match="is not an npz file with the array 'x'"):
        load("column-files", tmp_path, identity="id")
