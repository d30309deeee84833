"""Names that would make T too large: they are refused, unless the log is to be taken as it is written."""

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.auditing.auditor import audit
from coterie.auditing.logs import Participation, read_log
from coterie.auditing.logs.ambiguity import check_names
from coterie.errors import InputError, Remedy

DROPPED = [
    "round,clients\n1,\"['a', 'b', 'c', 'd']\"\n2,\"['a', 'b', 'c', 'd', 7]\"\n",
    'round\tclients\n1\t["a", "b", "c"]\n2\t["a", "b", "c", 4]\n',
]
HIDDEN = [
    "round,client\n1,a\n1,b\n1,c\n1,d\n2,a;b\n2,c;d\n",
    '{"round": 1, "client": "a"}\n{"round": 1, "client": "b"}\n{"round": 2, "client": "a;b"}\n',
    "round,client\n1,1\n1,01\n2,1\n2,01\n",
    "round,client\n1,e\u0301va\n1,\u00e9va\n",
    "round,client\n1,a\n1,a\u200b\n",
    "round,client\n1,a\n1,a\ufe0f\n",
    "round,client\n1,7\n1,7.0\n",
    "round,client\n1,7e0\n1,+7\n",
    "round,client\n1,a\n1,b\n1,c\n2,d\n2,e\n1,a\n1,b\n",
    '{"round": 1, "client": "a"}\n{"round": 2, "client": "c"}\n{"round": 1, "client": "a"}\n',
]


def read(text: str, **options: bool) -> Participation:
    return read_log(StringIO(text), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", DROPPED)
def test_no_member_of_a_list_is_dropped(text: str) -> None:
    log = read(text)
    (problem,) = log.problems
    assert problem.line == 3
    assert "quotes some names" in problem.reason


@pytest.mark.parametrize("text", HIDDEN)
def test_ambiguous_cells_that_may_hide_a_client_are_refused(text: str) -> None:
    with pytest.raises(InputError) as error:
        read(text)
    assert Remedy("as_written", True) in error.value.remedies
    assert audit(read(text, as_written=True)).clients  # taken as it stands


def test_a_client_needs_a_name(tmp_path: Path) -> None:
    (problem,) = read("round,clients\n1,\"['a', '', ' ']\"\n2,\"['a', 'b']\"\n").problems
    assert problem.reason == "a client has no name"
    np.savez(tmp_path / "log.npz", matrix=np.ones((2, 3), dtype=int), clients=np.array(["a", "", " "]))
    with pytest.raises(InputError, match="no name"):
        read_log(tmp_path / "log.npz", as_written=True)


@given(st.permutations([(number, client) for number in (1, 2, 3) for client in "abc"]))
def test_rows_in_any_order_are_read_as_one_run(rows: list[tuple[int, str]]) -> None:
    log = read("round,client\n" + "".join(f"{number},{client}\n" for number, client in rows))
    assert [set(members) for members in log.members] == [{0, 1, 2}] * 3


@pytest.mark.parametrize("name", ["Doe, Jane", "x;y", "a|b", "0", "007", "é", "A", "a b"])
def test_ordinary_names_are_taken(name: str) -> None:
    log = read(f'round,client\n1,"{name}"\n1,other\n2,"{name}"\n')
    assert set(log.clients) == {name, "other"}


INVISIBLE = (  # Unicode's Default_Ignorable_Code_Point, as DerivedCoreProperties.txt lists it, and three blanks
    "00AD 034F 061C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 FFF0-FFF8 "
    "1BCA0-1BCA3 1D173-1D17A E0000-E0FFF 2800 16FE4 1D159"
)
RANGES = [[int(end, 16) for end in part.split("-")] for part in INVISIBLE.split()]
HIDDEN_CHARACTERS = st.sampled_from(RANGES).flatmap(lambda ends: st.integers(ends[0], ends[-1])).map(chr)


@settings(max_examples=300)
@given(
    st.text("ann\u0301e 7\uac00\u1100", min_size=1).filter(str.strip),
    st.lists(st.tuples(st.integers(0, 9), HIDDEN_CHARACTERS), min_size=1, max_size=3),
)
def test_names_that_differ_in_characters_that_are_not_drawn_are_refused(
    name: str, inserted: list[tuple[int, str]]
) -> None:
    other = name
    for place, character in inserted:
        other = other[:place] + character + other[place:]
    with pytest.raises(InputError, match="may be one"):
        check_names([name, other])


def test_every_character_that_is_not_drawn_is_known() -> None:
    for ends in RANGES:
        for code in range(ends[0], ends[-1] + 1):
            with pytest.raises(InputError, match="may be one"):
                check_names(["ann", f"an{chr(code)}n"])
