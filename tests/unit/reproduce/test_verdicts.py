"""The rule for verdicts: less than the paper has decides none of its claims, for it or against it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.reports.findings import Claim, Findings, Judgement
from coterie.reports.markdown import write_findings
from coterie.reproduce.declarations import declared, read_declaration
from coterie.reproduce.experiment import Scale, settle

sizes = st.integers(0, 10**6)
scales = st.builds(Scale, sizes, sizes, sizes)
judgements = st.sampled_from(list(Judgement))


@given(scales, scales, judgements)
def test_the_rule_is_the_same_for_rounds_examples_and_participants(
    ours: Scale, paper: Scale, judgement: Judgement
) -> None:
    """Whichever of the three is smaller, and whatever the statistic says, the claim stays open."""
    smaller = any(0 < own < theirs for own, theirs in zip(ours, paper, strict=True))
    found = settle("It works", "1 to 2", judgement, ours.shortfalls(paper))
    assert found.judgement is (Judgement.OPEN if smaller else judgement)
    for order in ((1, 2, 0), (2, 0, 1), (0, 2, 1)):
        turned = Scale(*(ours[place] for place in order)), Scale(*(paper[place] for place in order))
        again = settle("It works", "1 to 2", judgement, turned[0].shortfalls(turned[1]))
        assert again.judgement is found.judgement


@given(scales, scales, judgements)
def test_our_own_checks_are_about_what_was_run(ours: Scale, paper: Scale, judgement: Judgement) -> None:
    found = settle("It works", "1 to 2", judgement, ours.shortfalls(paper), ours=True)
    assert found == Claim("It works", "1 to 2", judgement, ours=True)


def test_what_is_missing_is_said() -> None:
    missing = Scale(300, 60_000, 16).shortfalls(Scale(2_000, 60_000, 4_900), "iterations")
    assert missing == ["300 of 2,000 iterations", "16 of 4,900 participants"]
    claim = settle("It works", "1 to 2", Judgement.FAILS, [*missing, missing[0], "other features"])
    assert claim.statistic == "1 to 2, 300 of 2,000 iterations, 16 of 4,900 participants, other features"
    assert Scale(300).shortfalls(Scale()) == Scale().shortfalls(Scale(300)) == []


def test_the_papers_claims_and_our_checks_are_apart() -> None:
    claims = [Claim("It is ours", "2", Judgement.HOLDS, ours=True), Claim("It is theirs", "1", Judgement.FAILS)]
    text = write_findings(Findings(headlines=[], about="", claims=claims, claims_note="How it was judged."))
    theirs, ours = text.split("## What we checked beside it")
    assert "## What the paper claims" in theirs
    assert "| It is theirs | 1 | does not hold |" in theirs
    assert "| It is ours | 2 | holds |\n\nHow it was judged." in ours
    assert "It is ours" not in theirs
    assert [claim.summary()["source"] for claim in claims] == ["ours", "paper"]
    assert claims[0].headline.startswith("Our check: ")


def test_without_claims_there_is_no_table_of_them() -> None:
    assert Findings(headlines=[], about="", claims_note="How it was judged.").claim_tables == []


@pytest.mark.parametrize("name", sorted(declared()))
def test_no_declared_check_of_the_sums_is_called_the_papers(name: str) -> None:
    """What whoever sees the sums learns, or has for a model, is in no paper."""
    for claim in read_declaration(declared()[name]).remarks.get("claims", ()):
        assert claim.get("ours", False) or "sums" not in claim["says"]


def test_a_size_for_costs_judges_nothing() -> None:
    declaration = read_declaration(declared()["cgd-scale"])
    assert not getattr(declaration.experiment("cost"), "claims")  # noqa: B009
    assert getattr(declaration.experiment("medium"), "claims")  # noqa: B009
