"""Property inference: the detector, the attribution to clients, the p-value of a ranking, and the report."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu
from tests.support.records import record_of

from coterie.attacks.property.detector import (
    Detector,
    attribute,
    best_by_circles,
    ranking_among_mates,
)
from coterie.attacks.property.measure import PropertyInference, PropertyTrial
from coterie.attacks.property.report import chance_of_ranking, draw_scores, report
from coterie.attacks.ranking import area_under_curve
from coterie.cohorts.circles import Circles, Mask, Reals
from coterie.cohorts.policies import PolicySettings, make_policy, simulate
from coterie.errors import ConfigError, InputError
from coterie.reports.findings import Effect, Findings
from coterie.reports.words import Level


@given(st.integers(0, 1000))
def test_the_detector_of_a_mean_is_the_mean_of_its_scores(seed: int) -> None:
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(12, 30))
    detector = Detector.fit(updates, np.arange(12) % 3 == 0)
    assert detector(updates.mean(0)) == pytest.approx(np.mean([detector(update) for update in updates]))


@given(st.integers(0, 1000))
def test_a_planted_trace_is_found_in_updates_that_change(seed: int) -> None:
    """The noise of updates is new in every round, and the trace of the property is the same."""
    rng = np.random.default_rng(seed)
    having = np.arange(12) % 4 == 0
    trace = rng.normal(size=40)
    settings = PolicySettings(np.zeros(12), 4)
    participation = simulate(make_policy("random", settings, rng), settings.dropout, 60, rng)
    own = np.arange(20) % 2 == 0
    scores = []
    for row in participation:
        detector = Detector.fit(own[:, None] * trace + 0.3 * rng.normal(size=(20, 40)), own)
        updates = having[:, None] * trace + 0.3 * rng.normal(size=(12, 40))
        scores.append(detector(updates[row].mean(0)))
    assert area_under_curve(attribute(participation, np.array(scores)), having) == 1


@given(st.integers(0, 1000), st.sampled_from([0.0, 3.0]))
def test_circle_mates_get_equal_scores_whatever_the_detector_says(seed: int, ridge: float) -> None:
    rng = np.random.default_rng(seed)
    circles = Circles.of([(0, 3), (1, 4), (2, 5), (6, 7)])
    participation = np.zeros((9, 8), np.bool_)
    for row in participation:
        row[circles.union(rng.choice(4, 2, replace=False))] = True
    scores = attribute(participation, rng.normal(size=9), ridge)
    assert all(np.ptp(scores[list(circle)]) == 0 for circle in circles)
    assert ranking_among_mates(scores, np.isin(np.arange(8), [0, 1]), circles) == 0.5


def test_rankings_match_hand_computed_values() -> None:
    having, scores = np.array([True, False, True, False]), np.array([0.9, 0.1, 0.4, 0.4])
    assert area_under_curve(scores, having) == pytest.approx((1 + 1 + 1 + 0.5) / 4)
    assert ranking_among_mates(scores, having, Circles.of([(0, 1), (2, 3)])) == pytest.approx(0.75)
    assert ranking_among_mates(scores, having, Circles.of([(0, 2), (1, 3)])) is None
    assert best_by_circles(having, Circles.of([(0, 2), (1, 3)])) == 1
    assert best_by_circles(having, Circles.of([(0, 1), (2, 3)])) == 0.5


def test_no_ranking_that_is_constant_on_circles_beats_the_one_by_counts() -> None:
    rng = np.random.default_rng(3)
    circles = Circles.of([(4 * number, 4 * number + 1, 4 * number + 2, 4 * number + 3) for number in range(5)])
    having = np.isin(np.arange(20), rng.choice(20, 5, replace=False))
    best = best_by_circles(having, circles)
    for _ in range(200):
        scores = np.repeat(rng.permutation(5).astype(float), 4)
        assert area_under_curve(scores, having) <= best


def test_clients_with_and_without_the_property_are_needed() -> None:
    with pytest.raises(InputError, match="with the property and without"):
        Detector.fit(np.ones((3, 2)), np.ones(3, np.bool_))
    for updates in np.zeros((4, 2)), np.full((4, 2), np.nan):
        with pytest.raises(ConfigError, match="learn nothing, or diverge"):
            Detector.fit(updates, np.arange(4) < 2)
    with pytest.raises(InputError, match="positives and others"):
        area_under_curve(np.ones(3), np.zeros(3, np.bool_))
    for wrong in (
        *({"holders": 40}, {"share": 0.0}, {"own_clients": 2}, {"ridge": -1.0}, {"privacy": ()}),
        *({"dropouts": math.nan}, {"dropouts": 1.0}),
    ):
        with pytest.raises(ConfigError):
            PropertyInference(**wrong)
    with pytest.raises(ConfigError, match="too few for these clients"):
        PropertyInference(examples=100).prepare(0)
    with pytest.raises(ConfigError, match="no labelled pictures"):
        PropertyInference(data="energy").prepare(0)


def test_clients_and_attacker_share_no_example() -> None:
    federation, auxiliary, having = PropertyInference().prepare(0)
    size = len(federation.dataset.train_x)
    held = np.concatenate(federation.parts)
    assert np.unique(held % size).size == held.size
    assert not np.isin(auxiliary.ordinary, held % size).any()
    turned = np.array([np.count_nonzero(part >= size) for part in federation.parts])
    assert turned.tolist() == (8 * having).tolist()
    x = federation.problem.data.batch(np.array([3, 3 + size]))[0].numpy()
    assert np.array_equal(x[0, :, ::-1, ::-1], x[1])


def test_the_command(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    small = ("--clients", "16", "--cohort", "4", "--holders", "4", "--rounds", "40", "--trials", "1", "--privacy", "2")
    printed = record_of("attack", "property", *small, "--html", page)
    policies = printed["policies"]
    assert list(policies) == ["random", "multi-round", "multi-round naive"]
    assert policies["random"]["auc"] > 0.8
    assert policies["multi-round"]["auc_among_mates"] in (0.5, None)
    assert policies["multi-round"]["auc"] <= policies["multi-round"]["auc_by_circle_counts"]
    assert printed["no_information"] == {"auc": 0.5, "accuracy": 0.75}
    shown = page.read_text()
    assert "upside down" in shown
    assert "Score of each client" in shown


def test_the_figure_shows_every_client_of_every_selection() -> None:
    attack = PropertyInference(clients=16, cohort=4, holders=4, rounds=10, privacy=(2,), dropouts=0.0)
    federation, auxiliary, having = attack.prepare(0)
    selections = attack.selections(0)
    found = {selection.name: [attack.attack(federation, auxiliary, having, selection)] for selection in selections}
    there, others = draw_scores(selections, found).traces
    assert (len(there["x"]), len(others["x"])) == (4 * len(selections), 12 * len(selections))
    assert sorted(there["x"][:4]) == sorted(found["random"][0].scores[having].tolist())
    assert (
        {round(place) for place in there["y"]} == {round(place) for place in others["y"]} == set(range(len(selections)))
    )
    assert min(there["y"]) > min(others["y"])


def trial_of(scores: Reals, having: Mask, circles: Circles) -> PropertyTrial:
    return PropertyTrial(
        scores,
        having,
        auc=area_under_curve(scores, having),
        among_mates=ranking_among_mates(scores, having, circles),
        accuracy=0.5,
        best_by_circles=best_by_circles(having, circles),
        equal_scores=all(np.ptp(scores[list(circle)]) == 0 for circle in circles),
    )


def guessed(rng: np.random.Generator, circles: Circles) -> PropertyTrial:
    """Return scores that are equal within circles and independent of the property."""
    scores = np.zeros(40)
    for circle in circles:
        scores[list(circle)] = rng.normal()
    having = np.isin(np.arange(40), rng.choice(40, 8, replace=False))
    # The p-value depends on these two alone; computing the rest would take most of the time.
    return PropertyTrial(scores, having, 0.5, None, accuracy=0.5, best_by_circles=0.5, equal_scores=True)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("trials", [1, 3])
def test_guessing_is_called_significant_in_about_one_case_of_twenty(size: int, trials: int) -> None:
    """Equal scores of circle mates do not change that."""
    rng = np.random.default_rng(size)
    circles = Circles.of(np.arange(40).reshape(-1, size).tolist())
    chances = [chance_of_ranking([guessed(rng, circles) for _ in range(trials)]) for _ in range(600)]
    assert 0.02 < np.mean(np.array(chances) < 0.05) < 0.08


def test_chances_of_rankings() -> None:
    having, alone = np.arange(40) < 8, Circles.of([[one] for one in range(40)])
    best, worst = trial_of(-np.arange(40.0), having, alone), trial_of(np.arange(40.0), having, alone)
    tied = trial_of(np.floor(best.scores / 3), having, alone)
    for one in best, tied:
        parts = one.scores[having], one.scores[~having]
        expected = mannwhitneyu(*parts, use_continuity=False, alternative="greater", method="asymptotic")
        assert chance_of_ranking([one]) == pytest.approx(expected.pvalue)
    assert chance_of_ranking([best, worst]) == pytest.approx(0.5)
    assert chance_of_ranking([trial_of(np.zeros(40), having, alone)]) == 1


def judged(random: float, circles: float) -> Findings:
    """Report on a trial in which these shares of the 8 clients with the property rank first, by selection."""
    attack = PropertyInference(privacy=(2,), dropouts=0.0, trials=1)
    having = np.arange(40) < 8
    found = {}
    for selection, share in zip(attack.selections(0), (random, circles), strict=True):
        scores = (np.arange(40) % 4 == 0).astype(float)
        scores[: round(8 * share)] = 2.0
        for circle in selection.mates if selection.circles else ():
            scores[list(circle)] = scores[list(circle)].max()
        found[selection.name] = [trial_of(scores, having, selection.mates)]
    return report(attack, found)


def test_an_attack_no_better_than_guessing_gives_no_verdict() -> None:
    """An AUC above 0.5 in the only trial proves nothing."""
    finding = judged(0.25, 0.0)
    assert finding.level is Level.NOTHING
    assert finding.numbers["policies"]["random"]["auc"] > 0.55
    assert "is not shown to find clients" in finding.headline
    assert finding.headline.endswith("So this run says nothing about circles.")
    assert [line.outcome for line in finding.card] == [Effect.NOT_SHOWN, Effect.ELIMINATED, Effect.NOT_SHOWN]
    assert finding.numbers["policies"]["random"]["auc_spread"] is None
    assert [row[2] for row in finding.tables[0].rows] == ["", ""]


def test_the_headline_says_what_is_learnt_about_circles() -> None:
    finding = judged(1.0, 1.0)
    assert finding.level is Level.CAUTION
    assert "it learns which circles" in finding.headline
    assert [line.outcome for line in finding.card] == [Effect.NOT_ELIMINATED, Effect.ELIMINATED, Effect.REDUCED]
    hidden = judged(1.0, 0.0)
    assert hidden.level is Level.CAUTION
    assert "it is not shown to learn which circles" in hidden.headline
    assert [line.outcome for line in hidden.card] == [Effect.NOT_ELIMINATED, Effect.ELIMINATED, Effect.NOT_SHOWN]
