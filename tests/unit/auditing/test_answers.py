"""Colluders, forecasts and circles in hindsight, compared with answers known in other ways."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logs import random_matrix
from tests.support.rationals import matrices, rank

from coterie.auditing import forecast as model
from coterie.auditing.answers import Answers, Questions
from coterie.auditing.auditor import AuditReport, audit
from coterie.auditing.colluders import NamedColluders, collude, find_clients, judge_any
from coterie.auditing.forecast import Forecast, forecast
from coterie.auditing.logs import Participation
from coterie.auditing.plain_answers import plain_answers
from coterie.auditing.what_if import with_circles
from coterie.errors import ConfigError, InputError

MATRICES = matrices(6, 6).filter(lambda matrix: len(matrix[0]) > 1)


def examined(matrix: object) -> tuple[Participation, AuditReport]:
    log = Participation.from_matrix(matrix)  # type: ignore[arg-type]
    return log, audit(log)


def known_with(matrix: list[list[int]], colluders: set[int]) -> set[str]:
    """The others whose unit vector is in the span of the sums and the colluders' unit vectors."""
    width = len(matrix[0])
    units = [[int(at == client) for at in range(width)] for client in range(width)]
    known = matrix + [units[client] for client in colluders]
    return {str(c + 1) for c in range(width) if c not in colluders and rank([*known, units[c]]) == rank(known)}


@given(MATRICES, st.sets(st.integers(0, 5), min_size=1, max_size=3))
def test_named_colluders_add_their_own_updates_to_what_the_server_knows(
    matrix: list[list[int]], colluders: set[int]
) -> None:
    colluders = {client for client in colluders if client < len(matrix[0])} or {0}
    log, report = examined(matrix)
    alone = {found.client for found in report.exposed}
    found = collude(log, [str(client + 1) for client in sorted(colluders)], alone)
    exposed = {one.client for one in found.exposed}
    assert exposed == known_with(matrix, colluders)
    assert found.by_collusion == len(exposed - alone)
    honest = [at for at in range(len(matrix[0])) if at not in colluders]
    columns = [tuple(row[at] for row in matrix) for at in honest]
    sizes = [columns.count(column) for column in columns if any(column)]
    assert found.strong_privacy == min(sizes, default=None)
    assert Answers(named=found).holds(1) == (not exposed)


@given(MATRICES, st.integers(1, 3))
def test_any_colluders_isolate_a_client_if_some_set_of_them_does(matrix: list[list[int]], members: int) -> None:
    _, report = examined(matrix)
    width = len(matrix[0])
    sets = [set(some) for size in range(members + 1) for some in combinations(range(width), size)]
    assert judge_any(report, members).isolate == any(known_with(matrix, some) for some in sets)


def test_colluders_are_described_in_words() -> None:
    log, report = examined([[1, 1, 0, 0], [0, 1, 1, 1]])
    answers = Questions.parse(["2"]).answer(log, report)
    assert answers.words() == [
        ("Named colluders", "With 1 colluder, 1 other client is exposed (none without the collusion): client 1.")
    ]
    assert answers.as_dict() == {
        "colluders": {
            "names": ["2"],
            "strong_privacy": 1,
            "exposed": [{"client": "1", "round": 1}],
            "by_collusion": 1,
        }
    }
    assert Questions.parse(["any 1"]).answer(log, report).words() == [
        ("Any colluders", "One client together with the server could compute another client's update.")
    ]
    assert not Questions.parse(["any:1"]).answer(log, report).holds(1)
    alone = Questions.parse(["any 2"]).answer(*examined([[1, 1], [1, 0]]))
    assert alone.words() == [
        ("Any colluders", "The server needs no colluders: it alone can compute the update of an exposed client.")
    ]
    assert alone.as_dict() == {"any_colluders": {"members": 2, "isolate": True}}
    (_, crowd), *_ = Questions.parse(["1"]).answer(*examined(np.eye(8, dtype=np.uint8))).words()
    assert crowd.endswith("client 6, ...")
    assert "still hides among 2 or more" in NamedColluders(("a",), 2, (), 0).words()
    assert "nothing to learn" in NamedColluders(("a",), None, (), 0).words()


def test_colluders_must_be_clients_of_the_log() -> None:
    assert find_clients(["ann, bob", "c,d"], ["ann", "bob", "c,d"]) == ("ann", "bob", "c,d")
    with pytest.raises(InputError, match="the log has no client anne; did you mean ann"):
        find_clients(["anne"], ["ann", "bob"])
    with pytest.raises(ConfigError, match="either names or, once"):
        Questions.parse(["any 5", "ann"])
    with pytest.raises(ConfigError, match="what_if is written as circles=4"):
        Questions.parse(what_if="circle=4")


def foresee(matrix: object, histories: int = 20, seed: int = 0) -> Forecast:
    return forecast(*examined(matrix), seed=seed, histories=histories)


@settings(max_examples=15, deadline=None)
@given(MATRICES.filter(lambda matrix: any(map(any, matrix))), st.integers(0, 3))
def test_a_forecast_is_ordered_and_reproducible(matrix: list[list[int]], seed: int) -> None:
    log, report = examined(matrix)
    found = forecast(log, report, seed=seed, histories=5)
    assert found == forecast(log, report, seed=seed, histories=5)
    for when in (found.first, found.last):
        known = [value if value is not None else np.inf for value in (when.low, when.median, when.high)]
        assert known == sorted(known)
        assert 0 <= when.share <= 1
    assert (found.first.since is None) == (not report.exposed)
    took_part = sum(times > 0 for times in report.frequency.values())
    assert (found.last.since is None) == (len(report.exposed) < took_part)
    assert found.first.share >= found.last.share


def test_past_exposures_are_not_forecast() -> None:
    found = foresee([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])
    assert (found.first.since, found.last.since) == (3, 3)
    alike = "Nothing is left to forecast: every client that took part is exposed already, in round 3."
    assert found.words() == alike
    apart = replace(found, last=replace(found.last, since=4)).words()
    assert apart.endswith("is exposed already, the first in round 3, the last in round 4.")


def test_circles_that_stay_whole_are_expected_to_stay_whole() -> None:
    circles = np.repeat(random_matrix(6, 40, 2, 1), 3, axis=1)  # three clients in each circle
    found = foresee(circles)
    assert found.units == "groups"
    assert found.first.low is None
    assert found.first.share == found.last.share == 0
    assert "is not expected within" in found.words()
    assert "whole groups" in found.model()


def test_no_exposure_is_forecast_if_all_clients_are_in_every_round() -> None:
    found = foresee(np.ones((6, 5), dtype=np.uint8))
    assert found.first.share == 0


def test_exposures_that_can_only_come_together_are_forecast_together() -> None:
    """Three clients in rounds of two: no combination of two different rounds isolates a client, and the third does."""
    found = foresee([[1, 1, 0], [1, 0, 1]] * 2, histories=50)
    assert found.first == found.last
    assert found.first.since is None
    assert found.first.low is not None
    assert found.first.low >= 1


def test_drawn_cohorts_are_like_those_in_the_log() -> None:
    generator = np.random.default_rng(5)
    matrix = generator.random((400, 8)) < np.linspace(0.1, 0.9, 8)
    sizes = matrix.sum(axis=1)
    drawn = model._draw(model._odds(matrix, generator), sizes, generator)
    assert drawn.sum(axis=1).tolist() == sizes.tolist()
    assert np.abs(drawn.mean(axis=0) - matrix.mean(axis=0)).max() < 0.1


def test_the_interval_covers_what_really_happens() -> None:
    """Histories by the model's own law: the truth is within the 90% interval in most of them."""
    tried = first_covered = last_covered = 0
    for seed in range(10):
        matrix = random_matrix(12, 80, 4, seed)
        known = audit(Participation.from_matrix(matrix), weak_budget_seconds=0).exposed
        first, last = int(known[0].round) - 8, int(known[-1].round) - 8
        if first <= 0 or len(known) < 12 or not matrix[:8].any(axis=0).all():
            continue  # it has happened, never happens, or happens to a client that the first rounds do not name
        found = foresee(matrix[:8], histories=30, seed=seed)
        assert found.first.low is not None
        assert found.first.high is not None
        assert found.last.low is not None
        tried += 1
        first_covered += found.first.low <= first <= found.first.high
        last_covered += found.last.low <= last <= (np.inf if found.last.high is None else found.last.high)
    assert tried >= 6
    assert min(first_covered, last_covered) >= 0.75 * tried


def test_a_forecast_needs_clients_and_has_a_limit() -> None:
    with pytest.raises(InputError, match="no client was ever aggregated"):
        foresee([[0, 0], [0, 0]])
    with pytest.raises(ConfigError, match="at least one simulated history"):
        foresee([[1, 1]], histories=0)
    log = Participation.from_matrix(np.ones((1, 2001), dtype=np.uint8))
    with pytest.raises(InputError, match="up to 2,000 clients"):
        forecast(log, audit(log))


@given(MATRICES, st.integers(2, 3), st.integers(0, 5))
def test_only_whole_circles_are_left(matrix: list[list[int]], size: int, seed: int) -> None:
    size = min(size, len(matrix[0]))
    log = Participation.from_matrix(matrix)
    found = with_circles(log, size, seed=seed)
    assert sorted(name for circle in found.circles for name in circle) == sorted(log.clients)
    assert all(size <= len(circle) < 2 * size for circle in found.circles)
    kept = [{name for circle in found.circles if set(circle) <= set(members) for name in circle} for _, members in log]
    assert found.participations == sum(map(len, kept))
    assert found.rounds == sum(map(bool, kept))
    assert found.exposed == ()  # no circle has a single member
    assert (found.strong_privacy is None) == (not any(kept))
    assert found.strong_privacy is None or found.strong_privacy >= size
    assert 0 <= found.random_share <= 1


def test_circles_in_the_log_are_found_in_hindsight() -> None:
    found = with_circles(Participation.from_matrix(np.repeat(random_matrix(5, 20, 2, 3), 4, axis=1)), 4)
    assert found.share == 1.0
    assert found.strong_privacy == 4
    assert found.random_share < 0.5
    assert "strong T would be 4" in found.words()
    with pytest.raises(ConfigError, match="have 2 to 4 members, not 9"):
        with_circles(Participation.from_matrix([[1, 1, 1, 1]]), 9)


@pytest.mark.parametrize(
    "matrix",
    [
        [[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]],  # two clients are exposed
        [[1, 1, 1, 1], [1, 1, 0, 0]],  # two pairs
        [[1, 1, 1, 0], [0, 1, 1, 1]],  # unique histories
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],  # all are exposed
    ],
)
@pytest.mark.parametrize("who", [("1",), ("1", "2", "3"), ("any 1",), ("any 3",)])
def test_the_summary_answers_without_the_words_of_engineers(matrix: list[list[int]], who: tuple[str, ...]) -> None:
    log = Participation.from_matrix(matrix)
    report = audit(log)
    answers = Questions.parse(who, "circles=2", forecast=True).answer(log, report)
    said = " ".join(f"{title}. {text}" for title, text in plain_answers(answers))
    assert len(plain_answers(answers)) == len(answers.words()) == 3
    for word in ("client", "collud", "update", "strong T", "cohort", "sum "):
        assert word not in said, said
