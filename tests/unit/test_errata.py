"""The errors of the papers, one by one: the printed statement fails, and the correction in ``docs/errata.md`` holds."""

import ast
import math
import re
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.rationals import Matrix, least_weight

import coterie
from coterie.cohorts.theory import selection_variance, trade_off
from coterie.graphs.guarantees import (
    paper_parameters,
    paper_threshold,
    privacy_bound_log2,
    reliability_bound_log2,
    reliability_union_log2,
)
from coterie.graphs.topology import ErdosRenyi
from coterie.reproduce.declarations import declared

PROJECT = Path(__file__).parents[2]
ERRATA = (PROJECT / "docs" / "errata.md").read_text()

# The document itself.


def test_every_test_named_there_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", ERRATA)
    assert len(named) > 20
    for file, name in named:
        tree = ast.parse((PROJECT / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"


def test_every_command_named_there_is_one() -> None:
    named = re.findall(r"`coterie reproduce ([\w-]+)", ERRATA)
    assert named
    assert set(named) <= set(declared())


def test_every_test_of_an_error_is_named_there() -> None:
    own = {name for name in globals() if name.startswith("test_") and not name.startswith("test_every_")}
    assert own == set(re.findall(r"`tests/unit/test_errata\.py::(\w+)`", ERRATA))


# CCESA (Choi et al. 2020).


def test_recall_of_membership_inference() -> None:
    """Accuracy and precision of plain averaging, as printed for 5,000 members and as many others."""
    accuracy, precision = np.array([0.7249, 0.7072, 0.7280, 0.6647]), np.array([0.7041, 0.6582, 0.6589, 0.6062])
    recall = (2 * accuracy - 1) * precision / (2 * precision - 1)
    false_alarms = recall - (2 * accuracy - 1)
    assert recall / (recall + false_alarms) == pytest.approx(precision)
    assert recall.round(2).tolist() == [0.78, 0.86, 0.95, 0.94]


@given(st.integers(2, 6), st.data())
def test_unmasking_signs(size: int, data: st.DataObject) -> None:
    """Masked inputs as in eq. (1), with dropouts: eq. (4) leaves the sum; eq. (2) does not."""
    modulus = 2**16
    words = st.integers(0, modulus - 1)
    inputs, selves = (data.draw(st.lists(words, min_size=size, max_size=size)) for _ in range(2))
    pairs = {pair: data.draw(words) for pair in combinations(range(size), 2)}
    dropped = set(data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 1)))
    survivors = sorted(set(range(size)) - dropped)

    def signed(client: int, peers: set[int]) -> int:
        """What a client's input carries of the masks with these peers: the smaller number adds."""
        return sum(
            (1 if client < peer else -1) * pairs[min(client, peer), max(client, peer)] for peer in peers - {client}
        )

    masked = sum(inputs[i] + selves[i] + signed(i, set(range(size))) for i in survivors)
    without_self_masks = masked - sum(selves[i] for i in survivors)
    correction = sum(signed(i, set(survivors)) for i in dropped)  # as the dropped would have sent it
    total = sum(inputs[i] for i in survivors)
    assert (without_self_masks + correction - total) % modulus == 0
    assume(2 * correction % modulus)
    assert (without_self_masks - correction - total) % modulus != 0


def test_a_field_of_characteristic_two_has_no_minus() -> None:
    """In GF(2^16), a + a = 0: two inputs with the same mask, added, lose the mask but are not an integer sum."""
    first, second, mask = 3, 1, 0xBEEF
    assert (first ^ mask) ^ (second ^ mask) != first + second
    assert ((first + mask) + (second - mask)) % 2**16 == first + second


def test_dropouts_leave_masks_on_all_neighbours() -> None:
    """A tenth of the clients leaves: what they leave on others outgrows n log n, and keeps up with n sqrt(n log n)."""
    masks = {}
    for clients in (500, 2000):
        probability = paper_parameters(clients, 0.1).connection_probability
        graph = ErdosRenyi(probability).graph(clients, b"seed")
        left = range(clients // 10)
        masks[clients] = graph.degrees_within(range(clients // 10, clients))[left].sum()
    logs = {clients: clients * math.log(clients) for clients in masks}
    grown, printed = masks[2000] / masks[500], logs[2000] / logs[500]
    assert printed == pytest.approx(4.9, abs=0.1)
    assert grown > 1.7 * printed
    assert grown == pytest.approx(4 * math.sqrt(printed), rel=0.02)


@pytest.mark.parametrize(("dropout", "printed", "inside"), [(0.0, 112, 111), (0.1, 133, 132)])
def test_one_is_added_outside_the_root(dropout: float, printed: int, inside: int) -> None:
    others = 499
    probability = paper_parameters(500, dropout).connection_probability
    assert paper_threshold(500, probability) == printed
    assert math.ceil((others * probability + math.sqrt(others * math.log(others) + 1)) / 2) == inside


def test_two_entries_of_the_table_of_p() -> None:
    for clients, dropout, printed, right in ((800, 0.01, 0.280, 0.2787), (600, 0.05, 0.344, 0.3426)):
        found = paper_parameters(clients, dropout).connection_probability
        assert found == pytest.approx(right, abs=5e-5)
        assert abs(found - printed) > 1e-3


def test_the_failure_bound_exceeds_one_percent_at_100_clients() -> None:
    def bound(clients: int, dropout: float) -> float:
        found = paper_parameters(clients, dropout)
        return 2 ** reliability_bound_log2(clients, found.connection_probability, dropout, found.threshold)

    assert [round(bound(100, dropout), 4) for dropout in (0.0, 0.01, 0.05, 0.1)] == [0.0106, 0.0139, 0.0129, 0.0059]
    assert [round(bound(200, dropout), 4) for dropout in (0.0, 0.01, 0.05, 0.1)] == [0.0040, 0.0042, 0.0071, 0.0049]
    assert all(bound(clients, dropout) < 0.01 for clients in (300, 500, 1000) for dropout in (0.0, 0.01, 0.05, 0.1))


@pytest.mark.parametrize("clients", [1_000, 10_000, 100_000])
def test_rounds_fail_more_often_than_by_the_rate_of_appendix_d(clients: int) -> None:
    found = paper_parameters(clients, 0.0)
    root = math.sqrt(clients * math.log(clients))
    union = reliability_union_log2(clients, found.connection_probability, 0.0, found.threshold) * math.log(2)
    # Nobody drops out, so the round fails if one given client has too few neighbours: this is a lower bound.
    one_client = union - math.log(clients)
    printed = math.log(clients) - root
    # The gap grows with the number of clients, so no constant factor makes the printed rate right.
    assert one_client > printed + 0.6 * root
    # With about 3 root neighbours where 2 root are needed, the exponent tends to (1 + 2 log(2/3)) root.
    assert one_client < -(1 + 2 * math.log(2 / 3)) * root


@pytest.mark.parametrize("dropout", [0.0, 0.01, 0.05, 0.1])
def test_rounds_leak_less_often_than_by_any_power_of_the_clients(dropout: float) -> None:
    powers = []
    for clients in (100, 300, 1_000):
        found = paper_parameters(clients, dropout)
        powers.append(-privacy_bound_log2(clients, found.connection_probability, dropout) / math.log2(clients))
    assert powers[0] > 20
    assert powers == sorted(powers)


# Multi-RoundSecAgg (So et al. 2021/2023).


def test_a_quotient_of_float_factorials_is_truncated() -> None:
    quotient = float(math.factorial(40)) / (float(math.factorial(4)) * float(math.factorial(36)))
    assert int(quotient) == 91_389
    assert math.comb(40, 4) == 91_390


def test_cardinality_on_the_slides_is_truncated() -> None:
    exact = trade_off(120, 12, 0.2, levels=[6])[0].cardinality
    assert f"{exact:.6f}" == "11.777466"
    assert f"{exact:.2f}" == "11.78"


def test_algorithm_2_has_no_row_for_a_client_without_its_mate() -> None:
    family = [set(a) | set(b) for a, b in combinations([(0, 1), (2, 3), (4, 5), (6, 7)], 2)]
    available = {0, 2, 3, 4, 5, 6, 7}  # the least frequent client 0 is there, its mate 1 is not
    rows = [row for row in family if row <= available]
    assert rows
    assert not [row for row in rows if 0 in row]


def test_a_reduced_echelon_form_overstates_weak_privacy() -> None:
    """All rows of the reduced form are about three clients or more, a combination of them about two."""
    matrix = ((0, 1, 1, 0, 0, 1), (1, 0, 1, 0, 0, 1), (0, 1, 0, 1, 1, 0))  # the first minus the second is about two
    assert min(sum(value != 0 for value in row) for row in _reduced(matrix)) == 3
    assert least_weight(matrix, [1] * 6) == 2


def test_the_example_of_relaxed_privacy_repeats_a_row() -> None:
    rows = ["111100", "110011", "001111", "100111", "001111", "011110"]
    assert len(set(rows)) == 5
    new = coterie.audit([[int(bit) for bit in row] for row in rows])
    assert (new.weak_privacy, new.strong_privacy) == (2, 1)
    old = coterie.audit([[int(bit) for bit in row] for row in rows[:3]])
    assert (old.weak_privacy, old.strong_privacy) == (2, 2)


@pytest.mark.parametrize("privacy", [1, 2, 3])
def test_whole_circles_scatter_more_than_single_clients(privacy: int) -> None:
    """The variance of a cohort's mean over all unions of circles, against the constant printed and the right one."""
    population, cohort = 12, 6
    values = [Fraction(1) if client < privacy else Fraction(0) for client in range(population)]  # one circle differs
    circles = [range(start, start + privacy) for start in range(0, population, privacy)]
    means = [
        sum(values[client] for circle in chosen for client in circle) / cohort
        for chosen in combinations(circles, cohort // privacy)
    ]
    mean = sum(means) / len(means)
    variance = sum((value - mean) ** 2 for value in means) / len(means)
    population_variance = sum((value - mean) ** 2 for value in values) / population
    constant = variance / population_variance
    assert constant == Fraction((population - cohort) * privacy, cohort * (population - privacy))
    assert float(constant) == pytest.approx(selection_variance(population // privacy, cohort // privacy))
    printed = Fraction(population - cohort, cohort * (population - 1))
    assert constant == printed if privacy == 1 else constant > printed


def test_a_bound_at_the_mean_number_of_rounds_is_too_small() -> None:
    rounds, share, offset = 20, 0.5, 3.0
    chances = [math.comb(rounds, k) * share**k * (1 - share) ** (rounds - k) for k in range(rounds + 1)]
    expected = sum(chance / (offset + k) for k, chance in enumerate(chances))
    assert expected > 1.02 / (offset + rounds * share)


def test_heterogeneity_without_the_mean_is_negative_for_equal_clients() -> None:
    minima = [0.7] * 10  # everybody has the same loss, so its minimum is that of the mean loss
    assert 0.7 - sum(minima) < 0
    assert 0.7 - sum(minima) / len(minima) == pytest.approx(0)


def test_outputs_behind_a_relu_do_not_learn_again() -> None:
    import torch

    logits = torch.tensor([[-1.0, 2.0, 0.5]], requires_grad=True)
    target = torch.tensor([0])
    behind, linear = (
        torch.autograd.grad(torch.nn.functional.cross_entropy(outputs, target), logits)[0][0, 0].item()
        for outputs in (torch.relu(logits), logits)
    )
    assert behind == 0 > linear


# Confined gradient descent.


def test_staleness_bound() -> None:
    base = 1 - Fraction(math.comb(24, 6), math.comb(30, 6))
    assert f"{float(base**30):.4e}" == "4.4751e-04"
    assert math.log(1.33e-5) / math.log(base) == pytest.approx(43.7, abs=0.05)


def test_noise_of_theorem_1_is_too_small_by_its_own_condition() -> None:
    """The condition is m E[lambda] + m sigma^2 >= 4 T a log(1/delta) / epsilon^2, and sigma is solved for."""
    members, start, rounds, constant, epsilon, delta = 16, 0.1, 2000, 0.5, 60.0, 1e-5
    needed = 4 * rounds * constant * math.log(1 / delta) / epsilon**2
    printed = 4 * (needed / 4 / members - start)
    solved = 4 * (needed / 4 / members - start / 4)
    assert members * (start + printed) < needed
    assert members * (start + solved) == pytest.approx(needed)


def test_a_deviation_is_taken_for_a_variance() -> None:
    """Offsets lambda * N(0, 1) have the variance lambda^2, a tenth of lambda at lambda = 0.1."""
    offsets = 0.1 * np.random.default_rng(0).standard_normal(100_000)
    assert offsets.var() == pytest.approx(0.01, rel=0.02)


def test_noise_drawn_once_protects_no_difference() -> None:
    """Fresh noise stays in the difference of two releases; an offset drawn once is gone."""
    rng = np.random.default_rng(0)
    first, second, offset = rng.standard_normal((3, 100))
    assert np.allclose((first + offset) - (second + offset), first - second)
    fresh = rng.standard_normal((2, 100))
    assert not np.allclose((first + fresh[0]) - (second + fresh[1]), first - second)


def test_the_accountant_never_reports_less_than_its_floor() -> None:
    """With no cost at all, min over the orders of (cost + log(1/delta)) / order is 0.3598: the paper's epsilon."""
    orders, delta = (2, 4, 8, 16, 32), 1e-5
    assert min((0 + math.log(1 / delta)) / order for order in orders) == pytest.approx(0.359779, abs=1e-6)


def test_regret_does_not_vanish() -> None:
    """Theorem 2 for one participant, F(w) = sqrt(1 + w^2) from w = 3, steps 1 / (k + T/10)^2: G = L = 1, D = 3."""
    for rounds, bound in ((100, 0.709), (1_000, 0.089), (10_000, 0.010)):
        w, regret = 3.0, 0.0
        for k in range(1, rounds + 1):
            regret += (math.sqrt(1 + w * w) - 1) / rounds
            w -= w / math.sqrt(1 + w * w) / (k + 0.1 * rounds) ** 2
        claimed = 2 / rounds + 6 * (1 / (0.1 * rounds + 1) + math.log(0.1 * rounds + 1) / rounds)
        assert claimed == pytest.approx(bound, abs=1e-3)
        assert regret > 2.09 > claimed


def test_a_column_against_a_row_teaches_the_mean() -> None:
    """Predictions of shape (B, 1) against targets of shape (B,): the least loss is that of a constant."""
    targets: NDArray[np.float64] = np.random.default_rng(0).normal(size=50)

    def loss(predictions: NDArray[np.float64]) -> float:
        return float(np.mean((predictions[:, None] - targets) ** 2))

    assert loss(np.full(50, targets.mean())) == pytest.approx(targets.var())
    assert loss(targets) == pytest.approx(2 * targets.var())  # the perfect forecast is twice as bad


def _reduced(matrix: Matrix) -> list[list[Fraction]]:
    rows = [[Fraction(value) for value in row] for row in matrix]
    done = 0
    for column in range(len(rows[0])):
        at = next((index for index in range(done, len(rows)) if rows[index][column]), None)
        if at is not None:
            rows[done], rows[at] = rows[at], rows[done]
            rows[done] = [value / rows[done][column] for value in rows[done]]
            for other in range(len(rows)):
                if other != done:
                    factor = rows[other][column]
                    rows[other] = [a - factor * b for a, b in zip(rows[other], rows[done], strict=True)]
            done += 1
    return rows[:done]
