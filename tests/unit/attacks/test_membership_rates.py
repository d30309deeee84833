"""ROC curves and decisions, compared with their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.attacks.ranking import Decisions, Roc, area_under_curve
from coterie.cohorts.circles import Mask, Reals
from coterie.errors import InputError


@st.composite
def scored(draw: st.DrawFn) -> tuple[Reals, Mask]:
    """Scores with ties, of at least one member and one other."""
    members = draw(st.lists(st.booleans(), min_size=2, max_size=30).filter(lambda some: len(set(some)) == 2))
    scores = draw(st.lists(st.integers(-3, 3), min_size=len(members), max_size=len(members)))
    return np.array(scores, float), np.array(members)


@given(scored())
def test_the_area_is_the_share_of_pairs_in_which_the_member_scores_higher(case: tuple[Reals, Mask]) -> None:
    scores, members = case
    pairs = [(one > other) + (one == other) / 2 for one in scores[members] for other in scores[~members]]
    assert Roc.of(scores, members).area == pytest.approx(np.mean(pairs))
    assert area_under_curve(scores, members) == Roc.of(scores, members).area


def test_scores_that_are_no_numbers_are_equal_and_below_all_others() -> None:
    members = np.array([True, False, True, False])
    assert area_under_curve(np.array([np.nan, np.nan, 0.0, -np.inf]), members) == (0.5 + 0 + 1 + 1) / 4


@given(scored(), st.sampled_from([0.0, 0.1, 0.34, 0.5, 1.0]))
def test_members_found_at_a_rate_are_the_most_that_any_threshold_finds(case: tuple[Reals, Mask], rate: float) -> None:
    scores, members = case
    found = [
        int((scores[members] >= threshold).sum())
        for threshold in (*scores, np.inf)
        if (scores[~members] >= threshold).sum() <= rate * (~members).sum() + 1e-9
    ]
    assert Roc.of(scores, members).hits_at(rate) == max(found)


@given(scored())
def test_no_threshold_is_better_than_the_best(case: tuple[Reals, Mask]) -> None:
    scores, members = case
    best = Roc.of(scores, members).best_threshold
    accuracies = [Decisions.of(scores >= threshold, members).balanced_accuracy for threshold in (*scores, np.inf)]
    assert Decisions.of(scores >= best, members).balanced_accuracy == pytest.approx(max(accuracies))


def test_equal_scores_reveal_nothing() -> None:
    curve = Roc.of(np.zeros(20), np.arange(20) < 10)
    assert (curve.area, curve.hits_at(0.01)) == (0.5, 0)


def test_decisions_are_counted() -> None:
    found = Decisions.of(np.array([True, True, False, False, True]), np.array([True, False, True, False, True]))
    assert found == Decisions(hits=2, misses=1, false_alarms=1, correct_rejections=1)
    assert found.recall == pytest.approx(2 / 3)
    assert found.precision == pytest.approx(2 / 3)
    assert found.balanced_accuracy == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert Decisions(0, 1, 0, 1).precision is None


@pytest.mark.parametrize("scores", [np.array([1.0, np.nan]), np.array([1.0])])
def test_invalid_scores_are_refused(scores: Reals) -> None:
    with pytest.raises(InputError):
        Roc.of(scores, np.array([True, False]))
