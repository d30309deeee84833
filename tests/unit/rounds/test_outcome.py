"""The numbers of a round: every selected client is counted exactly once, and the numbers add up."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.cohorts.outcome import Outcome
from coterie.rounds.outcome import Attendance, RoundResult, Tally
from coterie.runs.records.record import RoundRecord

NAMES = tuple(f"c{number}" for number in range(9))


def some(of: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.booleans(), min_size=len(of), max_size=len(of)).map(
        lambda kept: tuple(name for name, stays in zip(of, kept, strict=True) if stays)
    )


@st.composite
def results(draw: st.DrawFn) -> RoundResult[int]:
    """Any course of a round: fewer and fewer are there, circles break, and it ends anywhere."""
    selected = draw(some(NAMES))
    advertisers = draw(some(selected))
    sharers = draw(some(advertisers))
    survivors = draw(some(sharers))
    aggregated = draw(some(survivors))
    revealers = draw(some(survivors))
    outcome = draw(st.sampled_from([o for o in Outcome if o is not Outcome.REVEALED]))
    remaining = draw(st.sampled_from([selected, advertisers, sharers, survivors, revealers]))
    attendance = Attendance(selected, advertisers, sharers, survivors, aggregated, revealers)
    if outcome is Outcome.SKIPPED:
        return RoundResult(1, outcome, Attendance(selected), selected)
    if outcome is Outcome.COMPLETED:
        return RoundResult(1, outcome, attendance, revealers, aggregated, 5)
    # After a crash the ledger may know a row that this attempt did not get to.
    revealed = draw(some(selected)) if outcome is Outcome.ABORTED_AFTER_REVEAL else ()
    return RoundResult(1, outcome, attendance, remaining, revealed)


@settings(max_examples=100)
@given(results())
def test_every_selected_client_is_counted_once(result: RoundResult[int]) -> None:
    tally, selected = result.tally, result.attendance.selected
    listed = [name for group in (result.revealed, result.stranded, result.dropped) for name in group]
    assert len(listed) == len(set(listed))
    groups = [result.aggregated, result.stranded, result.dropped]
    named = [name for group in groups for name in group]
    assert len(named) == len(set(named))
    assert set(named) <= set(selected)
    assert tally.selected == len(selected)
    assert (tally.aggregated, tally.excluded, tally.dropped) == tuple(map(len, groups))
    assert tally.unused == len(selected) - len(named) >= 0
    assert set(result.left_later) <= {*result.revealed, *result.stranded}
    assert {*result.left_later, *result.dropped} == set(selected) - set(result.remaining)
    assert not tally.unused or result.outcome is not Outcome.COMPLETED or result.aggregated == ()
    record = RoundRecord(
        round=1,
        outcome=result.outcome,
        selected=len(selected),
        aggregated=result.revealed,
        dropped=result.dropped,
        stranded=result.stranded,
        left_later=result.left_later,
    )
    assert record.tally == tally
    assert msgspec.json.decode(msgspec.json.encode(record), type=RoundRecord) == record


@settings(max_examples=100)
@given(st.data(), some(NAMES))
def test_older_records_in_which_names_are_listed_twice_add_up_too(
    data: st.DataObject, selected: tuple[str, ...]
) -> None:
    aggregated, stranded, dropped = (data.draw(some(selected)) for _ in range(3))
    completed = data.draw(st.booleans())
    line = {
        "round": 1,
        "outcome": "completed" if completed else "aborted after reveal",
        "selected": len(selected),
        "aggregated": aggregated,
        "dropped": dropped,
        "stranded": stranded,
    }
    tally = msgspec.convert(line, RoundRecord, strict=False).tally
    assert tally.selected == len(selected)
    assert min(tally.aggregated, tally.dropped, tally.excluded, tally.unused) >= 0
    assert tally.aggregated == (len(aggregated) if completed else 0)


@settings(max_examples=100)
@given(st.lists(st.builds(Tally, *[st.integers(0, 99)] * 4)))
def test_tallies_of_rounds_add_up(tallies: list[Tally]) -> None:
    total = sum(tallies, Tally())
    assert total.selected == sum(tally.selected for tally in tallies)
    assert total.dropped == sum(tally.dropped for tally in tallies)


@pytest.mark.parametrize(
    ("tally", "said"),
    [
        (Tally(36, 3, 1), "36 of 40 aggregated, 3 dropped out, 1 excluded with its circle"),
        (Tally(3, 1, 2), "3 of 6 aggregated, 1 dropped out, 2 excluded with their circles"),
        (Tally(8), "8 of 8 aggregated"),
        (Tally(0, 4, 0, 4), "0 of 8 aggregated, 4 dropped out, 4 in rounds without a result"),
    ],
)
def test_outcomes_are_described_in_words(tally: Tally, said: str) -> None:
    assert str(tally) == said
