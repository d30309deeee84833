"""Settings in a query: understood, or refused with one line."""

from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.auditing.logs import FORMATS
from coterie.cli.audit_input import OPTIONS
from coterie.cohorts.log_size import check_size
from coterie.errors import CoterieError, InputError, LogTooLarge, Remedy
from coterie.explorer.audits import AuditSettings
from coterie.explorer.leaks import LeakSettings
from coterie.explorer.plans import PlanSettings
from coterie.explorer.requests import PANELS, describe, explain, read_query
from coterie.settings import Settings, declared


@given(
    st.builds(
        PlanSettings,
        st.integers(200, 2000),
        st.integers(50, 200),
        st.integers(1, 50),
        st.floats(0, 0.9),
        st.floats(0, 0.5),
        epsilon=st.floats(0.1, 50),
        active=st.booleans(),
    )
)
def test_settings_in_an_address_are_read_back(settings: PlanSettings) -> None:
    values = {setting.name: getattr(settings, setting.name) for setting in declared(PlanSettings)}
    texts = {name: str(value).lower() if isinstance(value, bool) else repr(value) for name, value in values.items()}
    assert read_query(PlanSettings, urlencode(texts)) == settings


@given(st.sampled_from(sorted(PANELS)), st.text(max_size=60))
def test_any_query_gives_settings_or_one_line(panel: str, query: str) -> None:
    kind: type[Settings] = PANELS[panel]
    try:
        assert isinstance(read_query(kind, query), kind)
    except CoterieError as error:
        assert "\n" not in explain(error)  # noqa: PT017 - not every query is refused


@given(st.sampled_from(["rounds", "seed", "lost", "story"]), st.text(max_size=300))
def test_any_value_gives_settings_or_one_line(name: str, text: str) -> None:
    try:
        read_query(LeakSettings, urlencode({name: text}))
    except CoterieError as error:
        assert 0 < len(explain(error)) < 600  # noqa: PT017


@pytest.mark.parametrize(
    ("kind", "query", "words"),
    [
        (LeakSettings, "rounds=4&rounds=5", "there twice"),
        (LeakSettings, "colour=red", "there is no setting 'colour'"),
        (LeakSettings, "rounds=many", "rounds is a number, not 'many'"),
        (LeakSettings, "rounds=1٣", "rounds is a number"),
        (LeakSettings, "rounds", "cannot be read"),
        (PlanSettings, "lost=nan", "lost must be a number"),
        (PlanSettings, "lost=1e400", "lost must be a number"),
        (PlanSettings, "active=maybe", "active is true or false"),
        (AuditSettings, f"name={'x' * 201}", "at most 200 characters"),
        (AuditSettings, "&".join(f"a{n}=1" for n in range(40)), "cannot be read"),
        (AuditSettings, "name=%ff", "cannot be read"),
    ],
)
def test_errors_are_explained(kind: type[Settings], query: str, words: str) -> None:
    with pytest.raises(CoterieError) as caught:
        read_query(kind, query)
    assert words in explain(caught.value)


def test_errors_use_the_names_of_the_page() -> None:
    where = Remedy("where", {"event": ["aggregated", "done"]})
    error = InputError("set ", where, ", ", Remedy("keep_order", True), " or ", Remedy("round_column"))
    assert explain(error) == "set “Rows that count” event=aggregated, event=done, “Keep order” or “Round column”"
    assert explain(InputError("limit ", Remedy("limit", 5))) == "limit “limit” 5"


def test_a_limit_that_the_page_cannot_raise_is_an_option_of_the_command() -> None:
    with pytest.raises(LogTooLarge) as caught:
        check_size(65_000_000, 64_000_000)
    assert explain(caught.value).endswith("raise the limit (coterie audit --limit MB)")


def test_the_page_has_the_bounds_that_are_checked() -> None:
    about: dict[str, Any] = describe()
    assert [person["name"] for person in about["people"]][:2] == ["Ada", "Ben"]
    for panel, kind in PANELS.items():
        shown = about["settings"][panel]
        assert shown.keys() == {setting.name for setting in declared(kind)}
        for setting in declared(kind):
            assert shown[setting.name]["default"] == setting.default
            assert shown[setting.name]["most"] == setting.option.most
    assert all(shown["label"] for shown in about["settings"]["plan"].values())
    assert {name for name, shown in about["settings"]["audit"].items() if shown["label"]} >= set(OPTIONS) - {"limit"}
    assert set(about["formats"]) == {row.name for row in FORMATS} - {"ledger"}
