"""The rules for verdicts: the size of a run, few trials, equal trials, margins, and many claims at once."""

import json
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control
from tests.support.jobs import experiment_of

from coterie.reports.findings import Claim, Findings, Judgement
from coterie.reports.intervals import mean_interval, share_interval
from coterie.reports.markdown import write_findings
from coterie.reproduce.confined_table.experiment import ConfinedTable
from coterie.reproduce.declarations import declared, read_declaration
from coterie.reproduce.verdicts import (
    LEAST_TRIALS,
    RATE,
    Scale,
    Verdict,
    benjamini_hochberg,
    correct,
    holm,
    judge_mean,
    judge_share,
    settle,
)

HOLDS, FAILS, OPEN = Judgement.HOLDS, Judgement.FAILS, Judgement.OPEN
RESULTS = sorted((Path(__file__).parents[3] / "docs" / "results").glob("*/results.json"))
sizes = st.integers(0, 10**6)
scales = st.builds(Scale, sizes, sizes, sizes)
verdicts = st.sampled_from([HOLDS, FAILS, OPEN]).map(Verdict)
values = st.lists(st.integers(-1000, 1000), min_size=LEAST_TRIALS, max_size=12).map(lambda some: np.array(some) / 7)
bounds = st.tuples(st.floats(-200, 200), st.floats(0.1, 100)).map(lambda ends: (ends[0], ends[0] + ends[1]))
doubts = st.lists(st.floats(0, 1), max_size=30)


def expected(interval: tuple[float, float], least: float, most: float) -> Judgement:
    """Return what a confidence interval says: all of it inside, all of it outside, or neither."""
    low, high = interval
    if least <= low and high <= most:
        return HOLDS
    return FAILS if high < least or most < low else OPEN


# Size.


@given(scales, scales, verdicts)
def test_the_rule_is_the_same_for_rounds_examples_and_participants(ours: Scale, paper: Scale, verdict: Verdict) -> None:
    """If any of the three is smaller, the claim stays open, whatever the statistic says."""
    smaller = any(0 < own < theirs for own, theirs in zip(ours, paper, strict=True))
    found = settle("It works", "1 to 2", verdict, ours.shortfalls(paper))
    assert found.judgement is (OPEN if smaller else verdict.judgement)
    for order in ((1, 2, 0), (2, 0, 1), (0, 2, 1)):
        turned = Scale(*(ours[place] for place in order)), Scale(*(paper[place] for place in order))
        again = settle("It works", "1 to 2", verdict, turned[0].shortfalls(turned[1]))
        assert again.judgement is found.judgement


@given(scales, scales, verdicts)
def test_our_own_checks_are_judged_at_any_size(ours: Scale, paper: Scale, verdict: Verdict) -> None:
    found = settle("It works", "1 to 2", verdict, ours.shortfalls(paper), ours=True)
    assert found == Claim("It works", "1 to 2", verdict.judgement, ours=True)


def test_shortfalls_are_listed_in_the_claim() -> None:
    missing = Scale(300, 60_000, 16).shortfalls(Scale(2_000, 60_000, 4_900), "iterations")
    assert missing == ["300 of 2,000 iterations", "16 of 4,900 participants"]
    claim = settle("It works", "1 to 2", Verdict(FAILS, 0.01), [*missing, missing[0], "other features"], effort="9 h")
    assert claim.statistic == "1 to 2, 300 of 2,000 iterations, 16 of 4,900 participants, other features"
    assert (claim.needs, claim.doubt) == ("9 h", None)  # it was not tested, so it is not counted as a test
    assert "300 of 2,000 iterations" in settle("It works", "1 to 2", Verdict(FAILS), missing).needs
    assert Scale(300).shortfalls(Scale()) == Scale().shortfalls(Scale(300)) == []


# Statistics.


@given(values, bounds)
def test_means_are_judged_as_by_their_interval(found: np.ndarray, ends: tuple[float, float]) -> None:
    assume(np.ptp(found) > 0)  # the deviation of equal numbers may be a rounding error
    interval, (least, most) = mean_interval(found), ends
    assume(min(abs(end - bound) for end in interval for bound in ends) > 1e-6)
    assert judge_mean(found, least, most).judgement is expected(interval, least, most)
    assert judge_mean(found, least).judgement is expected(interval, least, inf)
    assert judge_mean(found, most=most).judgement is expected(interval, -inf, most)


@given(st.integers(0, 60), st.integers(LEAST_TRIALS, 60), st.floats(0.01, 0.5), st.floats(0.51, 0.99))
def test_shares_are_judged_as_by_their_interval(hits: int, tries: int, least: float, most: float) -> None:
    interval = share_interval(min(hits, tries), tries)
    assume(min(abs(end - bound) for end in interval for bound in (least, most)) > 1e-6)
    assert judge_share(min(hits, tries), tries, least, most).judgement is expected(interval, least, most)
    assert judge_share(min(hits, tries), tries, 0.0, most).judgement is expected(interval, 0.0, most)


@given(st.lists(st.floats(-1e6, 1e6), max_size=LEAST_TRIALS - 1), bounds)
def test_few_trials_decide_nothing(found: list[float], ends: tuple[float, float]) -> None:
    verdict = judge_mean(np.array(found), *ends)
    assert (verdict.judgement, verdict.doubt) == (OPEN, None)
    assert f"at least {LEAST_TRIALS} trials" in verdict.needs
    assert judge_share(0, len(found), 0.0, 0.9).judgement is OPEN


@given(st.floats(-1e3, 1e3), st.integers(LEAST_TRIALS, 50), bounds)
def test_an_interval_without_width_proves_nothing(value: float, trials: int, ends: tuple[float, float]) -> None:
    """Trials that are all equal show no spread, so nothing is known about how far off their mean is."""
    found = np.full(trials, value)
    assert mean_interval(found)[0] == pytest.approx(mean_interval(found)[1])
    assert judge_mean(found, *ends).judgement is OPEN


def test_an_improvement_below_the_margin_fails() -> None:
    """Without a margin, a difference of zero can never be shown."""
    alike = np.array([-0.1, 0.0, 0.1, 0.05, -0.05, 0.0])
    assert judge_mean(alike, 0.0).judgement is OPEN
    assert judge_mean(alike, 0.0, margin=0.5).judgement is FAILS
    assert judge_mean(alike + 0.3, 0.0, margin=0.5).judgement is HOLDS  # small, but surely there
    assert judge_mean(alike - 3, 0.0, margin=0.5).judgement is FAILS
    assert judge_mean(-alike, most=0.0, margin=0.5).judgement is FAILS


@given(values, bounds)
def test_the_requested_number_of_trials_would_decide(found: np.ndarray, ends: tuple[float, float]) -> None:
    verdict = judge_mean(found, *ends)
    if verdict.needs.startswith("about "):
        asked = int(verdict.needs.split()[1].replace(",", ""))
        deviation = found.std(ddof=1)
        rng = np.random.default_rng(0)
        others = rng.standard_normal(asked)
        alike = found.mean() + (others - others.mean()) / others.std(ddof=1) * deviation
        assert asked > found.size
        assert judge_mean(alike, *ends).judgement is not OPEN


# By construction.


def test_what_is_true_by_construction_is_called_so_unless_the_data_contradict_it() -> None:
    for verdict in (Verdict(HOLDS, 0.01), Verdict(OPEN, 0.5, "more")):
        found = settle("Masks hide", "50%", verdict, ["5 of 50 rounds"], construction=True)
        assert found == Claim("Masks hide", "50%", Judgement.BY_CONSTRUCTION)
    assert settle("Masks hide", "70%", Verdict(FAILS, 1e-9), construction=True).judgement is FAILS


# Many claims.


@given(doubts)
def test_the_correction_of_benjamini_and_hochberg_agrees_with_scipy(found: list[float]) -> None:
    limit = benjamini_hochberg(found)
    if found:
        adjusted = false_discovery_control(found)
        assume(np.abs(adjusted - RATE).min() > 1e-9)
        assert [one <= limit for one in found if limit or one] == [
            bool(one <= RATE) for one, raw in zip(adjusted, found, strict=True) if limit or raw
        ]
    else:
        assert limit == 0


@given(doubts)
def test_holm_is_stricter_and_bonferroni_stricter_still(found: list[float]) -> None:
    bonferroni = sum(one <= RATE / len(found) for one in found)
    assert bonferroni <= sum(one <= holm(found) for one in found if one) + found.count(0.0)
    assert holm(found) <= benjamini_hochberg(found)


def test_holm_stops_at_the_first_that_is_too_large() -> None:
    assert holm([0.01, 0.02, 0.03]) == 0.03  # at most 0.05 / 3, 0.05 / 2 and 0.05
    assert holm([0.01, 0.03, 0.04]) == 0.01  # 0.03 is above 0.05 / 2, so 0.04 is not looked at
    assert holm([0.04, 0.04]) == 0


@given(doubts)
def test_verdicts_that_do_not_survive_are_withdrawn_and_a_second_correction_changes_nothing(found: list[float]) -> None:
    claims = [Claim(str(n), "", HOLDS if p <= RATE else OPEN, doubt=p) for n, p in enumerate(found)]
    corrected = correct(claims)
    limit = benjamini_hochberg(found)
    for before, after in zip(claims, corrected, strict=True):
        survives = before.judgement is HOLDS and before.doubt is not None and before.doubt <= limit
        assert (after.judgement is HOLDS) == survives
        assert survives or before.judgement is OPEN or "does not survive" in after.needs
    assert correct(corrected) == corrected


def test_exact_answers_are_not_corrected() -> None:
    claims = [Claim("exact", "", FAILS), *(Claim(str(n), "", OPEN, doubt=0.9) for n in range(50))]
    assert correct(claims)[0].judgement is FAILS


# Reports.


def test_the_papers_claims_and_our_checks_are_in_separate_tables() -> None:
    claims = [Claim("It is ours", "2", HOLDS, ours=True), Claim("It is theirs", "1", FAILS)]
    text = write_findings(Findings(headlines=[], about="", claims=claims, claims_note="How it was judged."))
    theirs, ours = text.split("## What we checked beside it")
    assert "## What the paper claims" in theirs
    assert "| It is theirs | 1 | does not hold |" in theirs
    assert "| It is ours | 2 | holds |\n\nHow it was judged." in ours
    assert "It is ours" not in theirs
    assert [claim.summary()["source"] for claim in claims] == ["ours", "paper"]
    assert claims[0].headline.startswith("Our check: ")


def test_a_report_says_what_it_would_take_to_judge_the_rest() -> None:
    claims = [
        Claim("One", "1", OPEN, needs="9 h"),
        Claim("Two", "2", OPEN, needs="5 trials", doubt=0.123456),
        Claim("Three", "3", OPEN, needs="9 h"),
        Claim("Four", "4", HOLDS, doubt=0.01),
    ]
    text = write_findings(Findings(headlines=[], about="", claims=claims))
    _, rest = text.split("## What it would take to judge the others")
    assert "| One; and 1 more | 9 h |\n| Two | 5 trials |" in rest
    assert "Four" not in rest
    assert [claim.summary().get("p") for claim in claims] == [None, 0.123, None, 0.01]
    assert [claim.summary().get("needs") for claim in claims] == ["9 h", "5 trials", "9 h", None]


def test_without_claims_there_is_no_table_of_them() -> None:
    assert Findings(headlines=[], about="", claims_note="How it was judged.").claim_tables == []


@pytest.mark.parametrize("name", sorted(declared()))
def test_no_declared_check_of_the_sums_is_called_the_papers(name: str) -> None:
    """No paper has claims about what an observer of the sums learns, or about the model that this observer has."""
    for claim in read_declaration(declared()[name]).remarks.get("claims", ()):
        assert claim.get("ours", False) or "sums" not in claim["says"]


def test_a_size_for_costs_has_no_claims() -> None:
    assert not experiment_of(ConfinedTable, "cgd-scale", "cost").claims
    assert experiment_of(ConfinedTable, "cgd-scale", "medium").claims


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.parent.name)
def test_committed_claims_obey_the_rules(file: Path) -> None:
    """Every open claim says what it would take, and every verdict by a statistic survives the correction."""
    stored = json.loads(file.read_bytes())
    claims = stored["results"].get("claims", [])
    limit = benjamini_hochberg([claim["p"] for claim in claims if "p" in claim])
    for claim in claims:
        if claim["judgement"] == OPEN:
            assert claim["needs"], claim
        elif "p" in claim:
            assert claim["p"] <= limit, claim
            assert "2 trials" not in claim["statistic"]
            assert "2 runs" not in claim["statistic"]
