"""Many rounds of real secure aggregation in process, with circles, ledger, guard and the clients' own memories."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.rationals import strong_privacy
from tests.support.rounds import Population, in_sum, make_roster

from coterie.cohorts.ledger import Ledger, Outcome
from coterie.cohorts.policies import Random
from coterie.cohorts.roster import Roster
from coterie.errors import SeparationRisk
from coterie.secagg import Step, ThreatMode
from coterie.transports.faults import Fault, FaultKind, Faults, dropouts


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.sqlite") as opened:
        yield opened


def forget(population: Population) -> None:
    """Remove the clients' memories, so that only the ledger refuses sums."""
    for member in population.members.values():
        member._memory = None


def history(ledger: Ledger, roster: Roster) -> np.ndarray:
    return ledger.participation(roster.names).matrix


def test_three_hundred_rounds_with_dropouts_keep_their_promise(ledger: Ledger) -> None:
    roster = make_roster()
    population = Population(roster, ledger)
    rng = np.random.default_rng(0)
    outcomes, split = {}, 0
    for number in range(1, 301):
        faults = dropouts(0.0125, seed=number)  # about 5% over the four steps
        played = population.play(number, rng.random(24) >= 0.1, rng, faults)
        outcomes[number] = played.outcome
        if played.value is not None:
            assert in_sum(roster, played.value.total) == set(played.value.clients) == set(played.revealed)
            split += bool(played.stranded)
    matrix = history(ledger, roster)
    assert strong_privacy(matrix) >= 3
    assert list(outcomes.values()).count(Outcome.COMPLETED) > 100
    assert split > 20  # circles lost clients within rounds, and were left out whole
    assert outcomes == ledger.outcomes()
    assert [ledger.frequencies()[name] for name in roster.names] == matrix.sum(axis=0).tolist()
    ledger.verify()


def test_without_alignment_the_guard_ends_rounds(ledger: Ledger) -> None:
    roster = make_roster()
    population = Population(roster, ledger, aligned=False)
    forget(population)
    rng = np.random.default_rng(0)
    caught = []
    for number in range(1, 61):
        played = population.play(number, rng=rng, faults=dropouts(0.0125, seed=number))
        if isinstance(played.error, SeparationRisk):
            caught.append(number)
            assert played.outcome is Outcome.ABORTED_BEFORE_REVEAL
            assert played.attendance.revealers == played.revealed == ()
    assert caught
    assert strong_privacy(history(ledger, roster)) >= 3


def test_without_circle_alignment_promise_and_memory_a_client_is_exposed(ledger: Ledger) -> None:
    """The history that the guard would have refused exposes a client."""
    roster = make_roster()
    population = Population(roster, ledger, aligned=False, promised=1)
    forget(population)
    rng = np.random.default_rng(0)
    for number in range(1, 61):
        population.play(number, rng=rng, faults=dropouts(0.0125, seed=number))
    assert strong_privacy(history(ledger, roster)) == 1


def test_with_memory_clients_refuse_a_sum_that_the_ledger_would_accept(ledger: Ledger) -> None:
    population = Population(make_roster(), ledger, aligned=False, promised=1)
    played = population.play(1)
    assert played.outcome is Outcome.ABORTED_BEFORE_REVEAL
    refusals = population.carrier.report.refusals
    assert {refusal.client for refusal in refusals} == set(played.attendance.selected)
    assert all("the session has no circles" in refusal.reason for refusal in refusals)


def test_random_selection_is_stopped_by_the_guard(ledger: Ledger) -> None:
    roster = make_roster()
    population = Population(roster, ledger, policy=Random(12), aligned=False)
    forget(population)
    rng = np.random.default_rng(0)
    outcomes = [population.play(number, rng=rng).outcome for number in range(1, 21)]
    assert outcomes[0] is Outcome.COMPLETED
    assert Outcome.ABORTED_BEFORE_REVEAL in outcomes
    assert strong_privacy(history(ledger, roster)) >= 3


def test_clients_remember_what_the_ledger_records(ledger: Ledger, tmp_path: Path) -> None:
    roster = make_roster(12)
    population = Population(
        roster, ledger, cohort=6, memories=tmp_path / "clients.sqlite", mode=ThreatMode.ACTIVE_SERVER
    )
    for number in range(1, 5):
        assert population.play(number).outcome is Outcome.COMPLETED
    for column, client in zip(history(ledger, roster).T, roster.clients, strict=True):
        assert sum(answer.taking_part for answer in population.file.of(client).answers()) == column.sum()


def test_clients_refuse_a_regrouped_roster_whatever_the_server_says(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "clients.sqlite"
    Population(make_roster(12), ledger, memories=path).file.close()
    regrouped = make_roster(12, seed=9)
    population = Population(make_roster(12), ledger, memories=path)
    liar = Population(regrouped, ledger, cohort=6)
    liar.members = population.members
    played = liar.play(1)
    assert played.outcome is Outcome.ABORTED_BEFORE_REVEAL
    assert {refusal.step for refusal in liar.carrier.report.refusals} == {Step.ADVERTISE}
    assert not history(ledger, regrouped).any()


def test_failed_rounds_are_distinguished(ledger: Ledger) -> None:
    population = Population(make_roster(12), ledger, cohort=6)

    def lost(step: Step) -> Faults:
        return Faults(0, (Fault(FaultKind.DROP, step),))

    played = [
        population.play(1, np.zeros(12, bool)),
        population.play(2, faults=lost(Step.MASK)),
        population.play(3, faults=lost(Step.REVEAL)),
        population.play(4),
    ]
    assert [entry.outcome for entry in played] == [
        Outcome.SKIPPED,
        Outcome.ABORTED_BEFORE_REVEAL,
        Outcome.ABORTED_AFTER_REVEAL,
        Outcome.COMPLETED,
    ]
    assert [number for number, _ in ledger.rows()] == [3, 4]  # a sum that the server may have seen is recorded
    assert ledger.outcomes() == {entry.number: entry.outcome for entry in played}
