"""Stories of rounds: the page shows what the library finds."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.rationals import matrices, rank

from coterie.auditing.auditor import audit
from coterie.cohorts.participation import Participation
from coterie.errors import ConfigError
from coterie.explorer.leaks import SCALE, STORIES, LeakSettings, known_part, play_story, reduced_form
from coterie.explorer.people import NAMES

SEEDS = st.integers(0, 10_000)
EXAMPLES = 12  # each plays a story of twenty rounds or more
PEOPLE = len(NAMES)


def matrix_of(leak: dict[str, Any]) -> list[list[int]]:
    return [[int(person in one["summed"]) for person in range(PEOPLE)] for one in leak["rounds"]]


def full(triangle: list[int]) -> Any:  # noqa: ANN401 - an array
    matrix = np.zeros((PEOPLE, PEOPLE))
    matrix[np.triu_indices(PEOPLE)] = np.array(triangle) / SCALE
    return matrix + np.triu(matrix, 1).T


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(sorted(STORIES)), SEEDS, st.integers(2, 6), st.floats(0, 0.5))
def test_exposures_are_those_of_an_audit_of_the_same_rounds(story: str, seed: int, privacy: int, lost: float) -> None:
    leak = play_story(LeakSettings(story, seed, 16, 6, privacy, lost))
    report = audit(Participation.from_matrix(matrix_of(leak), NAMES))
    shown = [(NAMES[one["person"]], number) for number, row in enumerate(leak["rounds"], 1) for one in row["exposed"]]
    assert shown == [(found.client, found.round) for found in report.exposed]
    assert [row["strong"] for row in leak["rounds"]] == list(report.series.strong_privacy)


@settings(max_examples=EXAMPLES)
@given(SEEDS, st.integers(2, 6), st.floats(0, 0.5))
def test_stories_that_hold_expose_nobody_and_keep_t(seed: int, privacy: int, lost: float) -> None:
    holding = [name for name, story in STORIES.items() if story.holds]
    assert holding == ["circles", "whole"]
    for name in holding:
        leak = play_story(LeakSettings(name, seed, 16, 6, privacy, lost))
        assert not any(row["exposed"] for row in leak["rounds"])
        assert all(row["strong"] is None or row["strong"] >= privacy for row in leak["rounds"])


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(["random", "naive"]), SEEDS)
def test_a_witness_adds_up_to_one_person_and_reads_so(story: str, seed: int) -> None:
    leak = play_story(LeakSettings(story, seed))
    rows = matrix_of(leak)
    for number, row in enumerate(leak["rounds"], 1):
        for one in row["exposed"]:
            total = [Fraction(0)] * PEOPLE
            for term in one["terms"]:
                assert 1 <= term["round"] <= number
                factor = Fraction(term["coefficient"])
                total = [a + factor * b for a, b in zip(total, rows[term["round"] - 1], strict=True)]
            assert total == [int(person == one["person"]) for person in range(PEOPLE)]
            assert one["words"].endswith(f"= {NAMES[one['person']]}'s update")


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(sorted(STORIES)), SEEDS)
def test_a_picture_is_exact_if_and_only_if_its_person_is_exposed(story: str, seed: int) -> None:
    exposed: set[int] = set()
    for row in play_story(LeakSettings(story, seed))["rounds"]:
        exposed |= {one["person"] for one in row["exposed"]}
        known = full(row["known"])
        exact = {person for person in range(PEOPLE) if np.allclose(known[person], np.eye(PEOPLE)[person], atol=1e-3)}
        assert exact == exposed


@settings(max_examples=EXAMPLES)
@given(SEEDS, st.sampled_from([2, 3, 4, 6]), st.floats(0, 0.5))
def test_whole_circles_are_never_split_whatever_is_lost(seed: int, privacy: int, lost: float) -> None:
    leak = play_story(LeakSettings("whole", seed, 20, 6, privacy, lost))
    for row in leak["rounds"]:
        assert not row["exposed"]
        assert row["strong"] is None or row["strong"] >= privacy
        assert full(row["known"]).diagonal().max() <= 1 / privacy + 1e-3


def test_naive_dropout_reveals_what_whole_circles_hide() -> None:
    """The attack works with the rule off, and fails with it on, on the same circles, cohorts and losses."""
    naive, whole = (play_story(LeakSettings(story)) for story in ("naive", "whole"))
    assert naive["circles"] == whole["circles"]
    for key in ("selected", "lost"):
        assert [row[key] for row in naive["rounds"]] == [row[key] for row in whole["rounds"]]
    assert sum(len(row["exposed"]) for row in naive["rounds"]) >= 5
    assert sum(len(row["exposed"]) for row in whole["rounds"]) == 0
    assert any(row["stranded"] for row in whole["rounds"])


@settings(max_examples=EXAMPLES)
@given(SEEDS)
def test_random_cohorts_expose_all_after_about_as_many_rounds_as_people(seed: int) -> None:
    leak = play_story(LeakSettings("random", seed, 40))
    assert sum(len(row["exposed"]) for row in leak["rounds"]) == PEOPLE
    assert not any(row["exposed"] for row in leak["rounds"][:5])
    assert leak["circles"] == []


@settings(max_examples=EXAMPLES)
@given(matrices(8, 8))
def test_the_reduced_form_has_the_same_rows_in_its_span_and_single_pivots(matrix: list[list[int]]) -> None:
    reduced = reduced_form(matrix)
    assert len(reduced) == rank(matrix)
    pivots = [next(column for column, value in enumerate(row) if value) for row in reduced]
    assert pivots == sorted(pivots)
    for number, column in enumerate(pivots):
        assert [row[column] for row in reduced] == [int(number == other) for other in range(len(reduced))]
    for row in matrix:  # each row is the combination that its entries at the pivots give
        combined = [sum(row[p] * basis[at] for p, basis in zip(pivots, reduced, strict=True)) for at in range(len(row))]
        assert combined == row


def test_nothing_is_known_before_the_first_sum() -> None:
    assert not known_part([]).any()
    assert reduced_form([]) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"story": "fair"}, "there is no story 'fair'"),
        ({"privacy": 4, "cohort": 3}, "a circle of 4 does not fit into a cohort of 3"),
        ({"rounds": 41}, "rounds must be a whole number from 1 to 40"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"lost": 0.51}, "lost must be a number"),
    ],
)
def test_settings_outside_their_bounds_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LeakSettings(**wrong)
