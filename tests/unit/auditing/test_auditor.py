"""The auditor against brute force, round by round."""

import json
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.rationals import Matrix, all_matrices, least_weight, matrices, supports_a_vector

from coterie.auditing.auditor import Auditor, AuditReport, audit
from coterie.auditing.logs import Label, Participation
from coterie.errors import ConfigError, InputError


def audited(matrix: Matrix, **options: float) -> AuditReport:
    return audit(Participation.from_matrix(np.array(matrix)), **options)  # type: ignore[arg-type]


def strong_privacy(matrix: Matrix) -> int | None:
    return min(Counter(column for column in zip(*matrix, strict=True) if any(column)).values(), default=None)


def exposed_in(matrix: Matrix) -> set[int]:
    return {client for client in range(len(matrix[0])) if supports_a_vector(matrix, {client})}


def combine(matrix: Matrix, terms: dict[Label, Fraction]) -> dict[str, Fraction]:
    total = [Fraction(0)] * len(matrix[0])
    for label, coefficient in terms.items():
        total = [value + coefficient * bit for value, bit in zip(total, matrix[int(label) - 1], strict=True)]
    return {str(client): value for client, value in enumerate(total, start=1) if value}


def assert_right(matrix: Matrix, report: AuditReport) -> None:
    """Check every finding of the audit of a matrix with rounds and clients numbered from 1."""
    prefixes = [matrix[: count + 1] for count in range(len(matrix))]
    totals = np.cumsum(np.array(matrix), axis=0)
    numbers = np.arange(1, len(matrix) + 1)
    assert report.strong_privacy == strong_privacy(matrix)
    assert report.series.strong_privacy == tuple(map(strong_privacy, prefixes))
    assert report.series.exposed == tuple(len(exposed_in(prefix)) for prefix in prefixes)
    assert np.allclose(report.series.fairness_gap, np.ptp(totals, axis=1) / numbers)
    assert np.allclose(report.series.cardinality, totals.sum(axis=1) / numbers)
    assert report.fairness_gap == report.series.fairness_gap[-1]
    assert report.cardinality == report.series.cardinality[-1]
    assert list(report.frequency.values()) == totals[-1].tolist()
    assert sorted(client for group in report.groups for client in group) == sorted(
        client for client, count in report.frequency.items() if count
    )

    since = {str(c + 1): n + 1 for n in reversed(range(len(matrix))) for c in exposed_in(prefixes[n])}
    assert {exposure.client: exposure.round for exposure in report.exposed} == since
    assert [exposure.round for exposure in report.exposed] == sorted(since.values())
    for exposure in report.exposed:
        assert all(int(label) <= int(exposure.round) for label in exposure.witness)
        assert combine(matrix, exposure.witness) == {exposure.client: 1}

    if report.strong_privacy is None:
        assert (report.weak_privacy, report.leak, report.weak_privacy_exact) == (None, None, True)
    else:
        assert report.weak_privacy == least_weight(matrix, [1] * len(matrix[0]))
        assert report.weak_privacy_exact
        assert report.leak
        assert len(report.leak.clients) == report.weak_privacy
        assert combine(matrix, report.leak.witness) == report.leak.clients


def test_all_small_logs_are_audited_as_by_brute_force() -> None:
    for matrix in all_matrices(3, 3):
        assert_right(matrix, audited(matrix))


@settings(max_examples=60)
@given(matrices(7, 6))
def test_any_log_is_audited_as_by_brute_force(matrix: list[list[int]]) -> None:
    assert_right(matrix, audited(matrix))


@settings(max_examples=40)
@given(matrices(6, 6), st.sets(st.integers(1, 6)))
def test_reports_between_rounds_change_nothing(matrix: list[list[int]], reported: set[int]) -> None:
    """Reports in between neither change nor are changed by what follows."""
    clients = [str(number + 1) for number in range(len(matrix[0]))]
    auditor = Auditor(clients)
    reports = []
    for number, row in enumerate(matrix, start=1):
        auditor.add_round(number, [client for client, bit in zip(clients, row, strict=True) if bit])
        if number in reported:
            reports.append((number, auditor.report()))
    assert_right(matrix, auditor.report())
    for number, report in reports:
        assert_right(matrix[:number], report)


@given(matrices(6, 6))
def test_running_measures_equal_those_of_a_report(matrix: list[list[int]]) -> None:
    clients = [str(number + 1) for number in range(len(matrix[0]))]
    auditor = Auditor(clients)
    assert (auditor.strong_privacy, auditor.fairness_gap, auditor.cardinality, auditor.revealed) == (None, 0, 0, 0)
    for number, row in enumerate(matrix, start=1):
        auditor.add_round(number, [client for client, bit in zip(clients, row, strict=True) if bit])
        report = audited(matrix[:number])
        assert auditor.strong_privacy == report.strong_privacy
        assert auditor.fairness_gap == report.fairness_gap
        assert auditor.cardinality == report.cardinality
        assert auditor.frequencies.tolist() == list(report.frequency.values())
        assert auditor.revealed == sum(map(any, matrix[:number]))
    auditor.frequencies[:] = 99  # a copy
    assert auditor.frequencies.tolist() == np.sum(matrix, axis=0).tolist()


@given(matrices(6, 6), st.integers(1, 4))
def test_colluders_in_a_group_do_not_hide_its_honest_members(matrix: list[list[int]], members: int) -> None:
    found = audited(matrix, collusion=members).collusion
    classes = Counter(column for column in zip(*matrix, strict=True) if any(column))
    alone = {str(n) for n, column in enumerate(zip(*matrix, strict=True), 1) if 0 < classes[column] <= members + 1}
    assert found
    assert found.members == members
    assert set(found.unprotected) == alone
    # The worst case: as many of each class as may collude, but not all, are known and drop out of it.
    honest = [max(1, size - members) for size in classes.values()]
    assert found.strong_privacy == min(honest, default=None)
    assert found.strong_privacy == 1 or not alone


def test_no_collusion_is_not_reported() -> None:
    assert audited([[1, 1]]).collusion is None
    with pytest.raises(ConfigError, match="at least 0"):
        audited([[1, 1]], collusion=-1)


@given(matrices(6, 6))
def test_without_time_weak_t_has_bounds(matrix: list[list[int]]) -> None:
    report = audited(matrix, weak_budget_seconds=-1)
    if any(map(any, matrix)):
        assert report.weak_privacy_at_least
        assert report.weak_privacy
        assert report.leak
        assert report.weak_privacy_at_least <= least_weight(matrix, [1] * len(matrix[0])) <= report.weak_privacy
        assert len(report.leak.clients) == report.weak_privacy
        assert combine(matrix, report.leak.witness) == report.leak.clients
        assert report.weak_privacy_at_least > 1 or report.exposed
        assert report.weak_privacy_exact == (report.weak_privacy_at_least == report.weak_privacy)


def test_clients_may_appear_with_their_first_round() -> None:
    auditor = Auditor(["idle"])
    auditor.add_round("a", ["x", "y", "x"])
    auditor.add_round("b", ["y", "z"])
    auditor.add_round("c", [])
    assert (auditor.strong_privacy, auditor.exposed) == (1, ())
    auditor.add_round("d", ["z"])
    report = auditor.report()
    assert report.clients == ("idle", "x", "y", "z")
    assert [(exposure.client, exposure.round) for exposure in report.exposed] == [("x", "d"), ("y", "d"), ("z", "d")]
    assert report.exposed[0].witness == {"a": 1, "b": -1, "d": 1}
    assert report.series.cardinality == (2, 2, 4 / 3, 5 / 4)
    assert report.series.fairness_gap == (1, 1, 2 / 3, 2 / 4)
    assert report.series.strong_privacy == (2, 1, 1, 1)


def test_a_round_is_recorded_once() -> None:
    auditor = Auditor()
    auditor.add_round(1, "ab")
    with pytest.raises(InputError, match="round 1"):
        auditor.add_round(1, "ab")


def test_an_empty_history_is_reported() -> None:
    report = Auditor().report(collusion=1)
    assert (report.strong_privacy, report.weak_privacy, report.weak_privacy_exact) == (None, None, True)
    assert (report.fairness_gap, report.cardinality, report.exposed, report.groups) == (0, 0, (), ())
    assert report.collusion
    assert report.collusion.strong_privacy is None


def test_json_has_everything_a_pipeline_needs() -> None:
    report = audited([[1, 1, 0], [0, 1, 1], [1, 0, 1]], collusion=1)
    found = json.loads(json.dumps(report.as_dict(witnesses=1)))
    assert (found["clients"], found["rounds"]) == (3, 3)
    assert (found["strong_privacy"], found["weak_privacy"], found["weak_privacy_exact"]) == (1, 1, True)
    assert (found["fairness_gap"], found["cardinality"]) == (0, 2)
    first, *others = found["exposed"]
    assert (first["client"], first["round"]) == ("1", 3)
    assert {term["round"]: term["coefficient"] for term in first["witness"]} == {1: "1/2", 2: "-1/2", 3: "1/2"}
    assert [other["witness"] for other in others] == [None, None]
    assert found["leak"]["clients"] == {"1": "1"}
    assert found["collusion"] == {"members": 1, "strong_privacy": 1, "unprotected": ["1", "2", "3"]}
    assert all(entry["witness"] for entry in report.as_dict()["exposed"])
    nothing = audited([[0, 0]]).as_dict()
    assert (nothing["leak"], nothing["exposed"]) == (None, [])
    assert "collusion" not in nothing


def history(clients: int, rounds: int, choose: str, size: int, seed: int = 1) -> list[list[int]]:
    """Draw cohorts of 12 of 120 clients, or as told, as the selection policies do."""
    generator = np.random.default_rng(seed)
    matrix = np.zeros((rounds, clients), dtype=int)
    for row in matrix:
        up = generator.random(clients) > generator.choice([0.1, 0.3, 0.5], clients)
        if choose == "circles":
            circles = np.flatnonzero(up.reshape(-1, size).all(axis=1))
            wanted = 12 // size
            if len(circles) >= wanted:
                row.reshape(-1, size)[generator.choice(circles, wanted, replace=False)] = 1
        elif choose == "random":
            row[generator.choice(np.flatnonzero(up), size, replace=False)] = 1
        elif choose == "iid":
            row[up & (generator.random(clients) < size / (clients * 0.7))] = 1
        elif choose == "weighted":
            frequency = matrix.sum(axis=0) + generator.random(clients) + 1e9 * ~up
            row[np.argsort(frequency)[:size]] = 1
        else:
            for half in np.split(np.arange(clients), 2):
                row[generator.choice(half[up[half]], size // 2, replace=False)] = 1
    return [list(map(int, row)) for row in matrix]


@pytest.mark.parametrize(
    ("choose", "size", "strong", "weak"),
    [
        ("circles", 6, 6, 6),
        ("circles", 4, 4, 4),
        ("circles", 3, 3, 3),
        ("circles", 2, 2, 2),
        ("circles", 12, 12, 12),
        ("random", 12, 1, 1),
        ("weighted", 12, 1, 1),
        ("iid", 12, 1, 1),
        ("halves", 12, 1, 2),
    ],
)
def test_every_policy_is_audited_exactly(choose: str, size: int, strong: int, weak: int) -> None:
    report = audited(history(120, 200, choose, size))
    assert (report.strong_privacy, report.weak_privacy, report.weak_privacy_exact) == (strong, weak, True)
    assert len(report.exposed) == (120 if weak == 1 else 0)


@pytest.mark.parametrize("seed", range(5))
def test_random_selection_exposes_everybody_after_as_many_rounds_as_clients(seed: int) -> None:
    """Theorem 3 of So et al.: K-uniform selection makes P of full rank in N rounds."""
    report = audited(history(40, 60, "random", 8, seed))
    assert len(report.exposed) == 40
    assert {int(exposure.round) for exposure in report.exposed} <= set(range(38, 46))


def test_broken_circles_expose_clients_at_different_times() -> None:
    """Sums over whoever survives split circles of 3; the exposures are proved while the rank is not full."""
    generator = np.random.default_rng(3)
    matrix = np.zeros((40, 15), dtype=int)
    for row in matrix:
        row.reshape(-1, 3)[generator.choice(5, 2, replace=False)] = 1
        row[generator.random(15) < 0.05] = 0
    report = audited(matrix.tolist())
    rounds = {int(exposure.round) for exposure in report.exposed}
    assert len(rounds) > 3
    for exposure in report.exposed:
        assert combine(matrix.tolist(), exposure.witness) == {exposure.client: 1}
    for count in (min(rounds), max(rounds)):
        by_then = {int(e.client) - 1 for e in report.exposed if int(e.round) <= count}
        assert by_then == exposed_in(matrix[:count].tolist())


@pytest.mark.slow
def test_a_thousand_clients_and_two_thousand_rounds_are_audited_exactly() -> None:
    matrix = history(1000, 2000, "random", 100)
    report = audited(matrix, weak_budget_seconds=1)
    assert (report.strong_privacy, report.weak_privacy, report.weak_privacy_exact) == (1, 1, True)
    assert len(report.exposed) == 1000
    exposure = report.exposed[500]
    assert combine(matrix, exposure.witness) == {exposure.client: 1}
