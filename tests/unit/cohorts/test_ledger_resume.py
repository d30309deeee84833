"""A server that crashed in a round may resume it with the same clients, and with no others."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.rounds import Population, make_roster

from coterie.cohorts.ledger import Ledger, Outcome
from coterie.errors import LedgerConflict
from coterie.rounds import RoundResult
from coterie.secagg import Aggregate, Step
from coterie.transports.faults import Fault, FaultKind, Faults

CIRCLE, OTHERS = ("ann", "bob"), ("cid", "dan")
ROSTER = b"\x01" * 32


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db") as opened:
        yield opened


def test_an_interrupted_round_is_resumed_without_a_second_row(ledger: Ledger) -> None:
    head = ledger.reveal(1, CIRCLE, promised=2, roster=ROSTER)
    assert ledger.reveal(1, CIRCLE[::-1], promised=2, roster=ROSTER, resuming=True) == head
    ledger.complete(1, resuming=True)
    assert [entry.kind for entry in ledger.entries()] == ["reveal", "complete"]
    assert ledger.outcomes() == {1: Outcome.COMPLETED}


@pytest.mark.parametrize("end", ["complete", "abort"])
def test_a_round_that_had_ended_can_be_repeated_as_it_was(ledger: Ledger, end: str) -> None:
    def play(*, resuming: bool) -> None:
        ledger.reveal(1, CIRCLE, promised=2, roster=ROSTER, resuming=resuming)
        if end == "complete":
            ledger.complete(1, resuming=resuming)
        else:
            ledger.abort(1, "too few shares", resuming=resuming)

    play(resuming=False)
    head = ledger.head()
    play(resuming=True)
    assert ledger.head() == head


def test_rounds_that_revealed_nothing_can_be_repeated(ledger: Ledger) -> None:
    ledger.skip(1, "nobody was there")
    ledger.abort(2, "too few masked inputs")
    head = ledger.head()
    assert ledger.skip(1, "nobody was there", resuming=True) == head
    assert ledger.abort(2, "too few masked inputs", resuming=True) == head


@pytest.mark.parametrize(
    ("aggregated", "promised", "roster"),
    [(OTHERS, 2, ROSTER), (CIRCLE + OTHERS, 2, ROSTER), (CIRCLE, 1, ROSTER), (CIRCLE, 2, b"\x02" * 32)],
)
def test_other_clients_another_promise_or_another_roster_are_refused(
    ledger: Ledger, aggregated: tuple[str, ...], promised: int, roster: bytes
) -> None:
    head = ledger.reveal(1, CIRCLE, promised=2, roster=ROSTER)
    with pytest.raises(LedgerConflict, match="round 1 is already recorded for other clients"):
        ledger.reveal(1, aggregated, promised=promised, roster=roster, resuming=True)
    assert ledger.head() == head


def test_a_finished_round_cannot_end_in_another_way(ledger: Ledger) -> None:
    ledger.skip(1, "nobody was there")
    with pytest.raises(LedgerConflict, match="already recorded as skipped"):
        ledger.reveal(1, CIRCLE, promised=2, resuming=True)
    ledger.reveal(2, CIRCLE, promised=2)
    ledger.complete(2)
    with pytest.raises(LedgerConflict, match="already recorded as completed"):
        ledger.abort(2, "too few shares", resuming=True)


def test_resuming_a_round_that_never_began_is_an_ordinary_round(ledger: Ledger) -> None:
    ledger.reveal(1, CIRCLE, promised=2, resuming=True)
    ledger.complete(1, resuming=True)
    assert ledger.outcomes() == {1: Outcome.COMPLETED}


def play_once(folder: Path, faults: Faults, *, resuming: bool) -> RoundResult[Aggregate]:
    """Play a round as a restarted server, which knows only the roster and the ledger."""
    with Ledger.open(folder / "ledger.db") as ledger:
        return Population(make_roster(12), ledger, cohort=6).play(1, faults=faults, resuming=resuming)


@pytest.mark.parametrize("lost", [(), (Step.MASK,), (Step.REVEAL,)])
def test_a_round_played_again_gives_the_same_sum_and_the_same_ledger(tmp_path: Path, lost: tuple[Step, ...]) -> None:
    faults = Faults(0, tuple(Fault(FaultKind.DROP, step) for step in lost))
    first = play_once(tmp_path, faults, resuming=False)
    entries = list(Ledger.open(tmp_path / "ledger.db").entries())
    again = play_once(tmp_path, faults, resuming=True)
    assert list(Ledger.open(tmp_path / "ledger.db").entries()) == entries
    assert (again.outcome, again.attendance.selected) == (first.outcome, first.attendance.selected)
    if first.value is not None and again.value is not None:
        assert again.value.total.tolist() == first.value.total.tolist()
        assert again.value.clients == first.value.clients
    assert (first.value is None) == (again.value is None) == bool(lost)
