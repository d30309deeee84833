"""Plans on the page are the plans of the library."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.commands import run_in

from coterie.errors import ConfigError
from coterie.explorer import plans
from coterie.explorer.plans import PlanSettings, make_plan
from coterie.planning.population import plan_population


@settings(max_examples=15)
@given(st.integers(12, 200), st.integers(2, 24), st.integers(1, 8), st.floats(0, 0.6), st.floats(0, 0.2), st.booleans())
def test_the_numbers_are_those_of_the_planner(
    clients: int, cohort: int, privacy: int, absent: float, lost: float, active: bool
) -> None:
    cohort = min(cohort, clients)
    wanted = PlanSettings(clients, cohort, min(privacy, cohort), absent, lost, 0.0, active=active)
    same: dict[str, Any] = {"lost": lost, "collusion": 0.0, "active": active, "simulate_gaps": False}
    try:
        whole = plan_population(clients, cohort, [absent], **same)
        only = plan_population(clients, cohort, [absent], **same, privacy=wanted.privacy)
    except ConfigError as error:
        with pytest.raises(ConfigError, match=re.escape(str(error))):
            make_plan(wanted)
        return
    plan = make_plan(wanted)
    assert plan["recommended"] == (whole.recommended.privacy if whole.recommended else None)
    assert [row["aggregated"] for row in plan["choices"]] == [choice.expected.aggregated for choice in whole.main]
    row = only.main[0].expected
    assert plan["chosen"]["aggregated"] == row.aggregated
    assert plan["numbers"][0]["value"] == f"{max(1, row.honest)}"
    assert plan["numbers"][1]["value"] == f"{row.aggregated:.1f}"
    assert (plan["level"] == "safe") == (row.protects and row.aggregated > 0)


@pytest.mark.parametrize(
    "wanted",
    [PlanSettings(), PlanSettings(200, 20, 5, 0.1, 0.01, 0.02, 50, 4.0, active=True)],
    ids=["default", "active"],
)
def test_the_commands_print_the_numbers_of_the_page(tmp_path: Path, wanted: PlanSettings) -> None:
    plan = make_plan(wanted)
    this, every = (
        json.loads(run_in(tmp_path, *shlex.split(shown["command"])[1:], "--json").said) for shown in plan["commands"]
    )
    numbers = [f"{this['honest_in_circle']}", f"{this['aggregated']:.1f}", f"{this['noise_multiplier']:.2f}"]
    assert [number["value"] for number in plan["numbers"]] == numbers
    printed = {row["privacy"]: row["aggregated"] for row in every["choices"] if row["composition"] == "any"}
    assert printed == {row["privacy"]: row["aggregated"] for row in plan["choices"]}


def test_without_the_accounting_package_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    plans._noise.cache_clear()
    number = make_plan(PlanSettings(epsilon=3.0))["numbers"][2]
    plans._noise.cache_clear()
    assert number["value"] == "–"
    assert "[train]" in number["note"]


def test_the_sentence_says_what_is_wrong_and_what_to_change() -> None:
    assert make_plan(PlanSettings(privacy=4))["sentence"].endswith("This is the recommended T.")
    assert "The recommended T is 4: " in make_plan(PlanSettings(privacy=3))["sentence"]
    assert "nothing is promised over several rounds" in make_plan(PlanSettings(privacy=1))["sentence"]
    assert "No T is recommended" in make_plan(PlanSettings(absent=0.8))["sentence"]
    crowded = make_plan(PlanSettings(collusion=0.05, active=True))
    assert "too small" in crowded["sentence"]
    assert crowded["level"] == "caution"


def test_a_session_that_cannot_be_planned_has_its_reason() -> None:
    session = make_plan(PlanSettings(collusion=0.2))["session"]
    assert list(session) == ["problem"]
    assert "all of them may collude" in session["problem"]


@pytest.mark.parametrize(("cohort", "privacy", "words"), [(13, 2, "cannot be drawn"), (5, 6, "does not fit")])
def test_sizes_that_contradict_each_other_are_refused(cohort: int, privacy: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PlanSettings(clients=12, cohort=cohort, privacy=privacy)
