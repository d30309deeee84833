"""Exposed clients of a whole log: the same as round by round, with every prime, and on logs too large for that."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.rationals import Matrix, matrices
from tests.support.rationals import rank as rational_rank

from coterie.auditing import auditor
from coterie.auditing.auditor import audit
from coterie.auditing.elimination import FIRST_PRIME, eliminate, multiply, reduce
from coterie.auditing.exposure import ColumnExposure, find_exposures
from coterie.auditing.kernel import prove_kernel
from coterie.auditing.row_space import RowSpace
from coterie.cohorts.participation import Participation

PRIMES = (2, 3, 5, 7, 11, FIRST_PRIME)  # small ones are unlucky most of the time


def round_by_round(matrix: NDArray[np.int64]) -> tuple[list[tuple[int, int]], RowSpace]:
    """Return (row, column) of each exposed column, found by adding one row after another."""
    space, since = RowSpace(matrix.shape[1]), dict[int, int]()
    for number, row in enumerate(matrix):
        space.add_row(np.flatnonzero(row).tolist())
        for column in space.units():
            since.setdefault(column, number)
    return sorted((row, column) for column, row in since.items()), space


def without_zeros(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    return matrix[matrix.any(axis=1)][:, matrix.any(axis=0)]


def compare(matrix: NDArray[np.int64], prime: int = FIRST_PRIME) -> tuple[list[ColumnExposure], RowSpace]:
    """Compare both ways on one matrix; return the exposed columns, and the row space."""
    expected, space = round_by_round(matrix)
    everybody = np.ones(matrix.shape[1], dtype=np.bool_)
    found, rank = find_exposures(sp.csr_matrix(matrix.astype(float)), everybody, prime=prime)
    assert [(one.row, one.column) for one in found] == expected
    assert rank == space.rank
    return found, space


def check(matrix: NDArray[np.int64], prime: int = FIRST_PRIME) -> int:
    """Compare both ways on one matrix, combinations included; return how many columns are exposed."""
    found, space = compare(matrix, prime)
    for one in found:
        assert one.combine().coefficients == space.unit(one.column).coefficients
    return len(found)


@settings(deadline=None)
@given(matrices(8, 8), st.sampled_from(PRIMES))
def test_exposures_are_the_same_as_round_by_round(matrix: Matrix, prime: int) -> None:
    array = without_zeros(np.array(matrix))
    if array.size:
        check(array, prime)


@pytest.mark.parametrize("prime", PRIMES)
def test_exposures_in_matrices_of_several_parts_with_repeated_rows_are_the_same(prime: int) -> None:
    rng = np.random.default_rng(prime)
    exposed = 0
    for _ in range(20):
        blocks = [(rng.random(rng.integers(2, 12, 2)) < rng.uniform(0.2, 0.7)).astype(int) for _ in range(3)]
        whole = sp.block_diag(blocks).toarray().astype(int)
        rows = rng.permutation(np.concatenate([np.arange(len(whole)), rng.integers(0, len(whole), 4)]))
        exposed += check(without_zeros(whole[rows]), prime)
    assert exposed > 50


def test_a_kernel_of_whole_numbers_proves_many_exposures_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two clients that alternate, one of them in every round: all others are exposed, these two never.
    rng = np.random.default_rng(1)
    others = (rng.random((80, 30)) < 0.5).astype(int)
    pair = (rng.random((80, 1)) < 0.5).astype(int)
    matrix = np.hstack([others, pair, pair, 1 - pair, 1 - pair])
    monkeypatch.setattr("coterie.auditing.exposure.lift", None)  # not needed
    found, _ = find_exposures(sp.csr_matrix(matrix.astype(float)), np.ones(34, dtype=np.bool_))
    assert {one.column for one in found} == set(range(30))


def late_clients(clients: int, late: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a log in which everybody else is exposed before the last clients first take part, one after the other."""
    matrix = (rng.random((2 * clients, clients)) < 0.4).astype(np.int64)
    for number in range(late):
        matrix[: 2 * clients - 3 * (late - number), clients - late + number] = 0
    return without_zeros(matrix)


@pytest.mark.parametrize("prime", PRIMES)
def test_exposures_in_logs_with_late_clients_are_the_same(prime: int) -> None:
    rng = np.random.default_rng(prime)
    for late in (1, 2, 5):
        assert check(late_clients(20, late, rng), prime) >= 15


def test_clients_that_join_late_do_not_make_the_others_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = late_clients(60, 6, np.random.default_rng(5))
    monkeypatch.setattr("coterie.auditing.exposure.lift", None)  # no client and no row is proved alone
    found, _ = compare(matrix)
    assert len({one.row for one in found}) > 3, "clients are exposed at different times"


def broken_circles(clients: int, rounds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a log of circles of four, in which members are missing now and then."""
    circles = np.repeat(rng.random((rounds, clients // 4)) < 0.4, 4, axis=1)
    return without_zeros((circles & (rng.random((rounds, clients)) < 0.97)).astype(np.int64))


def test_exposures_in_broken_circles_are_proved_in_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = broken_circles(60, 120, np.random.default_rng(8))
    monkeypatch.setattr("coterie.auditing.exposure.lift", None)  # no client and no row is proved alone
    monkeypatch.setattr("coterie.auditing.stages.prove_kernel", None)  # and no stage
    found, _ = compare(matrix)
    assert len({one.row for one in found}) > 10, "clients are exposed at different times"


@pytest.mark.parametrize("walk_prime", [2, 3, 11, 2**31 - 1])
@pytest.mark.parametrize("prime", PRIMES)
def test_walking_through_every_part_does_not_change_the_result(
    prime: int, walk_prime: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.auditing.stages._WALK_PRIME", walk_prime)
    monkeypatch.setattr("coterie.auditing.stages._FEW", 1 << 20)  # every part is walked through
    monkeypatch.setattr("coterie.auditing.exposure._FEW_ROWS", 0)
    rng = np.random.default_rng(prime)
    for matrix in (late_clients(12, 3, rng), broken_circles(16, 24, rng), broken_circles(24, 16, rng)):
        check(matrix, prime)


@settings(deadline=None)
@given(matrices(7, 9), st.sampled_from(PRIMES), st.sampled_from([0.0, np.inf]))
def test_a_proved_kernel_is_never_larger_than_the_real_one(matrix: Matrix, prime: int, effort: float) -> None:
    array = np.array(matrix)
    nullity = array.shape[1] - rational_rank(matrix)
    rows, rng = sp.csc_matrix(array.astype(float)), np.random.default_rng(0)
    proved = [size for size in range(array.shape[1] + 1) if prove_kernel(rows, size, prime, effort, rng)]
    assert max(proved, default=0) <= nullity
    if effort and prime == FIRST_PRIME:
        assert nullity in proved


def test_a_kernel_of_large_numbers_is_lifted_if_that_is_worth_it() -> None:
    rng = np.random.default_rng(6)
    square = (rng.random((40, 41)) < 0.5).astype(float)
    rows = sp.csc_matrix(np.vstack([square, square[:5]]))
    assert prove_kernel(rows, 1, FIRST_PRIME, 40**3, rng)
    assert not prove_kernel(rows, 1, FIRST_PRIME, 40**3 - 1, rng)
    extended = sp.csc_matrix(np.vstack([square, rng.random(41) < 0.5]).astype(float))
    assert not prove_kernel(extended, 1, FIRST_PRIME, np.inf, rng), "it has no kernel"
    assert prove_kernel(sp.csc_matrix(np.hstack([square, square])), 42, FIRST_PRIME, 40**3, rng), "41 are differences"


def wide_log(clients: int, rounds: int, cohort: int) -> sp.csr_matrix:
    """Return a log in which the last client is exposed by two rounds that differ by it alone."""
    rng = np.random.default_rng(2)
    rows = [np.sort(rng.choice(clients - 1, cohort, replace=False)) for _ in range(rounds)]
    rows[rounds // 2] = np.append(rows[rounds // 3], clients - 1)
    places, ends = np.concatenate(rows), np.cumsum([0, *map(len, rows)])
    return sp.csr_matrix((np.ones(len(places)), places, ends), shape=(rounds, clients))


def test_a_wide_log_has_one_exposed_client() -> None:
    matrix = wide_log(5_000, 300, 100)
    (found,), rank = find_exposures(matrix, np.ones(5_000, dtype=np.bool_))
    assert (found.column, found.row, rank) == (4_999, 150, 300)
    assert found.combine().coefficients == {100: -1, 150: 1}


def test_columns_that_decide_the_rank_are_found_wherever_they_are() -> None:
    # The rows agree on the fullest columns and differ in rare ones, which are chosen last.
    common = np.ones((40, 400))
    rare = np.eye(40)
    matrix = sp.csr_matrix(np.hstack([common, rare]))
    found = eliminate(matrix, FIRST_PRIME, np.random.default_rng(0))
    assert len(found.rows) == 40


def test_the_inverse_and_the_kernel_are_right_modulo_the_prime() -> None:
    matrix, rng = wide_log(900, 400, 60), np.random.default_rng(3)
    found = eliminate(matrix, FIRST_PRIME, rng)
    square = matrix[found.rows][:, found.pivots].toarray()
    assert np.array_equal(multiply(found.inverse, square, FIRST_PRIME), np.eye(len(found.rows)))
    assert not reduce(matrix @ found.random_null_vectors(3, rng), FIRST_PRIME).any()


@settings(deadline=None, max_examples=50)
@given(matrices(8, 8))
def test_both_ways_of_auditing_give_the_same_report(matrix: Matrix) -> None:
    log = Participation.from_matrix(np.array(matrix))
    reports = []
    with pytest.MonkeyPatch.context() as patch:
        for small in (np.inf, -1.0):
            patch.setattr(auditor, "_SMALL", small)
            reports.append(audit(log))
    by_round, at_once = reports
    assert at_once.series == by_round.series
    assert at_once.groups == by_round.groups
    first, second = by_round.as_dict(), at_once.as_dict()
    # The lightest combination need not be the only one of its weight.
    for found in (first, second):
        found["leak"] = found["leak"] and len(found["leak"]["clients"])
    assert second == first


@pytest.mark.parametrize("step", ["Rounds", "Exposed clients", "Weak T"])
def test_an_interrupted_audit_reports_what_it_knows(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "_SMALL", -1.0)
    rng = np.random.default_rng(4)
    log = Participation.from_matrix((rng.random((30, 12)) < 0.5).astype(int))

    def stop(now: str, part: float) -> None:
        if now == step and part >= (0.5 if step == "Rounds" else 0.0):
            raise KeyboardInterrupt

    report = audit(log, progress=stop)
    assert not report.complete
    assert report.as_dict()["complete"] is False
    assert len(report.rounds) == (15 if step == "Rounds" else 30)
    assert bool(report.exposed) == (step == "Weak T")
    json.dumps(report.as_dict())


def test_the_exposed_clients_can_be_written_to_a_file(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from coterie.cli import app

    log, out = tmp_path / "log.csv", tmp_path / "exposed.csv"
    log.write_text("round,client\n1,a\n1,b\n2,b\n2,c\n3,a\n3,c\n3,b\n")
    result = CliRunner().invoke(app, ["audit", str(log), "--exposed", str(out), "--json"])
    assert result.exit_code == 1
    assert out.read_text() == "client,since_round\n" + "".join(
        f"{one['client']},{one['round']}\n" for one in json.loads(result.stdout)["exposed"]
    )
    assert len(out.read_text().splitlines()) > 1
