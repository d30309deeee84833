"""Colours of methods: one colour for one method in all reports, and different styles for all rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.reproduce.declarations import declared, read_declaration
from coterie.reproduce.palette import ATTACKED, METHODS, looks

SETTINGS = {name: read_declaration(file).settings for name, file in declared().items()}
ROWS = {
    name: [row["name"] for row in settings.get("schemes") or settings.get("rows", ())]
    for name, settings in SETTINGS.items()
}


@given(st.lists(st.sampled_from([*METHODS, *map(str, range(12))]), unique=True, max_size=14))
def test_known_methods_have_their_colour_whatever_else_is_drawn(names: list[str]) -> None:
    found = looks(names)
    assert [found[name].color for name in names if name in METHODS] == [METHODS[n] for n in names if n in METHODS]
    widths = [found[name].linewidth for name in names]
    assert widths == sorted(widths, reverse=True)  # so that what coincides is seen


@pytest.mark.parametrize("name", ROWS)
def test_all_rows_of_a_report_have_different_styles(name: str) -> None:
    found = looks(ROWS[name])
    assert len({(look.color, str(look.linestyle)) for look in found.values()}) == len(found)


def test_attacks_have_the_colours_of_their_methods() -> None:
    assert ATTACKED["fedavg"] == METHODS["FedAvg"]
    assert ATTACKED["confined"] == METHODS["CGD"]
    assert len(set(ATTACKED.values())) == len(ATTACKED)
