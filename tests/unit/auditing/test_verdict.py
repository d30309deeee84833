"""The words of a verdict are true to the findings, and safe to print whatever a log contains."""

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.rationals import matrices

from coterie.auditing.auditor import AuditReport, audit
from coterie.auditing.logs import Participation
from coterie.auditing.verdict import (
    Requirement,
    affordable,
    collusion_words,
    digits_of,
    equation,
    extent,
    judge,
    least_leak,
    measures,
    whose,
)

FRACTIONS = st.fractions(-50, 50, max_denominator=50).filter(bool)
VULGAR = {"½": Fraction(1, 2), "⅓": Fraction(1, 3), "⅔": Fraction(2, 3), "¼": Fraction(1, 4), "¾": Fraction(3, 4)}


def examine(matrix: list[list[int]], collusion: int = 0) -> AuditReport:
    return audit(Participation.from_matrix(matrix), collusion=collusion)


def read_back(text: str) -> dict[str, Fraction]:
    """Read a linear combination as a person would."""
    terms = {}
    for term in re.split(r" (?=[+−] )", text):
        match = re.fullmatch(r"([+−]?) ?(?:(\S+)·)?(\S.*)", term)
        assert match, term
        sign, factor, name = match.groups()
        size = VULGAR.get(factor) or Fraction(factor or 1)
        terms[name] = -size if sign == "−" else size
    return terms


@given(st.dictionaries(st.integers(0, 99), FRACTIONS, min_size=1, max_size=8), st.integers(0, 99), FRACTIONS)
def test_an_equation_says_exactly_what_was_found(
    terms: dict[int | str, Fraction], client: int, weight: Fraction
) -> None:
    left, right = equation(terms, {str(client): weight}).split(" = ")
    assert read_back(left) == {f"round {label}": value for label, value in terms.items()}
    assert read_back(right) == {f"client {client}'s update": weight}


def test_a_very_long_equation_is_counted_not_written() -> None:
    long = equation(dict.fromkeys(range(9), Fraction(1)), dict.fromkeys("abcdefghi", Fraction(1)))
    assert long == "a combination of 9 rounds = a combination of the updates of 9 clients"
    assert equation({1: Fraction(10**20)}, {"bob": Fraction(1)}) == "a combination of 1 round = bob's update"


def test_an_equation_has_a_term_for_each_of_two_names_that_are_shortened_to_the_same() -> None:
    first, second = ("a round or a client with a very long name, " * 2 + number for number in "12")
    terms: dict[int | str, Fraction] = {first: Fraction(1), second: Fraction(-2)}
    left, right = equation(terms, {str(name): value for name, value in terms.items()}).split(" = ")
    for side in (left, right):
        assert side.count("with a very long name") == 2
        assert " − 2·" in side


def test_numbers_are_shown_with_the_word_client_and_names_are_not() -> None:
    assert (whose("17"), whose("ann")) == ("client 17", "ann")


@pytest.mark.parametrize("name", ["7" * 1_000, "x" * 1_000])
def test_long_names_and_numbers_are_shortened_in_a_sentence(name: str) -> None:
    assert len(whose(name)) < 70


@given(matrices(6, 6), st.integers(0, 3))
def test_the_verdict_follows_from_the_findings(matrix: list[list[int]], collusion: int) -> None:
    report = examine(matrix, collusion)
    verdict = judge(report)
    revealed = any(map(any, matrix))
    assert (verdict.level == "nothing") == (not revealed)
    assert (verdict.level == "danger") == bool(report.exposed)
    if report.exposed:
        assert verdict.headline.startswith(f"{len(report.exposed)} of ")
        assert f"{whose(report.exposed[0].client)}, since round {report.exposed[0].round}" in verdict.headline
    if verdict.level == "safe":
        assert report.strong_privacy is not None
        assert report.strong_privacy > 1
        assert f"at least {report.strong_privacy} clients" in verdict.headline
    if verdict.level == "caution":
        assert report.strong_privacy == 1
        alone = sum(len(group) == 1 for group in report.groups)
        assert verdict.headline.startswith(f"Strong T is 1: {alone} of ")
        least = least_leak(report)
        assert (least is None) == (report.leak is None or len(report.leak.witness) == 1)
    else:
        assert least_leak(report) is None
    shown = {measure.name: measure.value for measure in measures(report)}
    assert shown["Strong T"] == ("–" if report.strong_privacy is None else str(report.strong_privacy))
    assert shown["Weak T"] == ("–" if report.weak_privacy is None else str(report.weak_privacy))
    assert shown["Exposed"] == str(len(report.exposed))
    assert extent(report, 0).startswith(f"{len(report.clients)} client")
    words = collusion_words(report)
    if collusion and revealed:
        assert words is not None
        assert ("could be alone" in words) == bool(report.collusion and report.collusion.unprotected)
    else:
        assert words is None


@given(matrices(6, 6), st.integers(1, 5), st.booleans())
def test_a_requirement_is_judged_by_its_own_t(matrix: list[list[int]], privacy: int, weak: bool) -> None:
    report = examine(matrix)
    value = report.weak_privacy if weak else report.strong_privacy
    requirement = Requirement(privacy, weak)
    holds = value is None or value >= privacy
    assert requirement.holds(report) is holds
    assert ("It holds" in requirement.words(report)) is holds
    assert ("does not hold" in requirement.words(report)) is not holds


def test_an_undecided_requirement_is_not_claimed_to_hold() -> None:
    report = replace(
        examine([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]]),
        weak_privacy=4,
        weak_privacy_at_least=2,
    )
    assert Requirement(2, weak=True).holds(report) is True
    assert "2 or more" in Requirement(2, weak=True).words(report)
    assert Requirement(3, weak=True).holds(report) is None
    assert "between 2 and 4" in Requirement(3, weak=True).words(report)
    assert Requirement(5, weak=True).holds(report) is False
    assert "4 at most" in Requirement(5, weak=True).words(report)
    assert measures(report)[1].value == "2–4"


def test_colluders_are_subtracted_before_the_requirement_is_checked() -> None:
    report = examine([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], collusion=1)
    assert Requirement(2).holds(report)
    assert not Requirement(3).holds(report)
    assert "1 colluding member in a group" in Requirement(3).words(report)


def test_numbers_of_clients_and_rounds_are_shown() -> None:
    report = examine([[1, 1, 0], [0, 0, 0]])
    assert extent(report, 1) == "3 clients (1 never aggregated), 2 rounds (1 without clients)"


@given(st.integers(1, 10**30), st.integers(1, 10**30))
def test_digits_are_estimated_well(numerator: int, denominator: int) -> None:
    value = Fraction(numerator, denominator)
    assert digits_of(value) == pytest.approx(len(str(value)), abs=2)


def test_only_as_many_witnesses_as_are_quick_are_computed() -> None:
    report = examine([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0]])
    assert len(report.exposed) == 4
    assert affordable(report.exposed) == 4
    assert affordable(report.exposed, digits=1) == 1
    assert affordable(report.exposed, 3, digits=1) == 3
    assert affordable(report.exposed, 9) == 4


def test_an_interrupted_audit_does_not_report_zero_exposures() -> None:
    report = examine([[1, 1, 0], [0, 1, 1]])
    assert not report.exposed
    assert measures(report)[2].note == "no client's own update can be computed"
    assert measures(replace(report, complete=False))[2].note == "found before the audit was interrupted"
